"""A report as PDF or PNG, and its charts as PNG: what only a browser can draw. Where there is none, that is said.

An installed Chromium is run without a window on files of a temporary folder; it needs no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path

from envsched_core.errors import EnvSchedError

__all__ = ["BROWSERS", "PrintError", "browser", "page_png", "pdf", "png"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
"""Commands that are looked for, in order; all of them are Chromium."""
NO_BROWSER = (
    "PDF and PNG need a Chromium-like browser on this machine, and none was found: install chromium, or open the HTML "
    "page in any browser and print it; the charts are there as SVG"
)
NOT_PRINTED = "{} did not print: {}; the HTML page can be printed by hand"
PATIENCE = 120.0
"""Seconds within which the browser must be done."""
FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
)


MEASURE = (
    '<title>?</title><iframe sandbox="allow-same-origin" style="border:0;width:{width}px;height:1px" '
    'onload="document.title = this.contentDocument.documentElement.scrollHeight" srcdoc="{page}"></iframe>'
)
"""A page of ours around the report: the report itself runs no script here either."""
MOST_PIXELS = 16_000
"""Of a picture's height: more than this a browser does not draw."""


class PrintError(EnvSchedError):
    """There is no browser, or it did not print."""


def browser() -> str | None:
    """Path of an installed browser that can print; None where there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def pdf(html: str) -> bytes:
    """A page printed as PDF.

    Raises:
        PrintError: there is no browser, or it did not print.
    """
    return _printed(html, "page.html", "--no-pdf-header-footer", "--print-to-pdf={}.pdf")


def page_png(html: str, width: int = 1000) -> bytes:
    """A whole page as one PNG, `width` pixels wide and as high as it is.

    Raises:
        PrintError: there is no browser, or it did not draw.
    """
    measured = _ran(MEASURE.format(width=width, page=escape(html)), "measure.html", "--dump-dom")
    height = re.search(rb"<title>(\d+)</title>", measured)
    if height is None:
        raise PrintError("the browser did not say how high the page is; the HTML page can be printed by hand")
    flags = (f"--window-size={width},{min(int(height[1]), MOST_PIXELS)}", "--screenshot={}.png")
    return _printed(html, "page.html", *flags)


def png(svg: str) -> bytes:
    """One chart as PNG, twice as fine as its SVG says.

    Raises:
        PrintError: there is no browser, or it did not print; or the SVG does not say how large it is.
    """
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    if size is None:
        raise PrintError("the chart does not say how large it is")
    flags = (f"--window-size={size[1]},{size[2]}", "--force-device-scale-factor=2", "--screenshot={}.png")
    return _printed(svg, "chart.svg", *flags)


def _printed(text: str, name: str, *flags: str) -> bytes:
    """What the browser makes of a file of `text`; the last flag takes the path of its output, its ending included."""
    with tempfile.TemporaryDirectory(prefix="envsched-print-", ignore_cleanup_errors=True) as folder:
        target = Path(folder, "printed")
        ending = flags[-1].partition("{}")[2]
        command = _run(Path(folder), text, name, *(flag.format(target) for flag in flags))[0]
        try:
            return target.with_suffix(ending).read_bytes()
        except OSError as error:
            raise PrintError(NOT_PRINTED.format(command, error)) from error


def _ran(text: str, name: str, *flags: str) -> bytes:
    """What the browser says of a file of `text`."""
    with tempfile.TemporaryDirectory(prefix="envsched-print-", ignore_cleanup_errors=True) as folder:
        return _run(Path(folder), text, name, *flags)[1]


def _run(folder: Path, text: str, name: str, *flags: str) -> tuple[str, bytes]:
    """Run the browser on a file of `text` in an empty folder: its path, and what it wrote to its standard output."""
    command = browser()
    if command is None:
        raise PrintError(NO_BROWSER)
    source = folder / name
    source.write_text(text, encoding="utf-8", errors="replace")
    # A container's root may not make a sandbox; the page has no script and may load nothing.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    own = [*FLAGS, *root, f"--user-data-dir={folder}/profile", *flags]
    try:
        done = subprocess.run([command, *own, source.as_uri()], capture_output=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise PrintError(NOT_PRINTED.format(command, error)) from error
    return command, done.stdout

"""A report as PDF, and its charts as PNG: what only a browser can draw. Where there is none, that is said.

An installed Chromium is run without a window on files of a temporary folder; it needs no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from envsched_core.errors import EnvSchedError

__all__ = ["BROWSERS", "PrintError", "browser", "pdf", "png"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
"""Commands that are looked for, in order; all of them are Chromium."""
NO_BROWSER = (
    "PDF and PNG need a Chromium-like browser on this machine, and none was found: install chromium, or open the HTML "
    "page in any browser and print it; the charts are there as SVG"
)
PATIENCE = 120.0
"""Seconds within which the browser must be done."""
FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
)


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
    return _printed(html, "page.html", "--no-pdf-header-footer", "--print-to-pdf={}")


def png(svg: str) -> bytes:
    """One chart as PNG, twice as fine as its SVG says.

    Raises:
        PrintError: there is no browser, or it did not print; or the SVG does not say how large it is.
    """
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    if size is None:
        raise PrintError("the chart does not say how large it is")
    flags = (f"--window-size={size[1]},{size[2]}", "--force-device-scale-factor=2", "--screenshot={}")
    return _printed(svg, "chart.svg", *flags)


def _printed(text: str, name: str, *flags: str) -> bytes:
    """Run the browser on a file of `text`; the last flag takes the path of its output."""
    command = browser()
    if command is None:
        raise PrintError(NO_BROWSER)
    with tempfile.TemporaryDirectory(prefix="envsched-print-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, name), Path(folder, "printed")
        source.write_text(text, encoding="utf-8", errors="replace")
        # A container's root may not make a sandbox; the page has no script and may load nothing.
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        own = [*FLAGS, *root, f"--user-data-dir={folder}/profile", *(flag.format(target) for flag in flags)]
        try:
            subprocess.run([command, *own, source.as_uri()], capture_output=True, timeout=PATIENCE, check=True)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise PrintError(f"{command} did not print: {error}; the HTML page can be printed by hand") from error

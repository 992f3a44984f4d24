"""What a file is by its first bytes, unpacked: a table, one of JSON's shapes, an archive, or nothing that is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from zipfile import is_zipfile

__all__ = ["START", "Kind", "kind_of", "why_no_text"]

Kind = Literal["jsonl", "array", "object", "csv", "parquet", "zip", "other", "empty"]

START = 4096
"""Bytes that are looked at."""
LINES = 20
MARK = b"\xef\xbb\xbf"
"""What some programs put before UTF-8."""
WIDE_MARKS = b"\xff\xfe", b"\xfe\xff"


def kind_of(start: bytes, path: Path) -> Kind:
    """The kind of a file that begins like this; one object is told from lines of objects by reading on (files.py)."""
    if _wide(start):
        return "other"
    start = start.removeprefix(MARK).lstrip()
    if start.startswith(b"PAR1"):
        return "parquet"
    if not start:
        return "empty"
    if start.startswith(b"["):
        return "array"
    if start.startswith(b"PK\x03\x04"):
        return "zip" if is_zipfile(path) else "other"
    if b"\0" in start and not start.startswith(b"{"):
        return "other"
    lines = start.splitlines()[:LINES]
    objects = sum(line.startswith(b"{") for line in lines)  # the first line of a log may be the damaged one
    return "jsonl" if start.startswith(b"{") or 2 * objects >= len(lines) > 1 else "csv"


def why_no_text(start: bytes) -> str:
    """What is wrong with a file of the kind "other", where its first bytes tell; else empty."""
    if _wide(start):
        return "text in UTF-16 or UTF-32, which is not read; save it as UTF-8"
    crashed = start.startswith(bytes(4))
    return "begins with zero bytes, as files do after a crash: cut them off (tr -d '\\0')" if crashed else ""


def _wide(start: bytes) -> bool:
    """Whether text is UTF-16 or UTF-32: a mark says so, or every other byte is zero."""
    even, odd = any(start[0:80:2]), any(start[1:80:2])
    return start.startswith(WIDE_MARKS) or (len(start) > 3 and even != odd)

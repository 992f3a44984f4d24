"""Large JSON texts cut into pieces without decoding the whole: items of an array, members of an object.

Works on the bytes of a memory map: strings are passed over whole and brackets counted, so that memory holds one
piece at a time whatever the size of the file.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

__all__ = ["SURROGATES", "Member", "decode", "items", "members", "without_surrogates"]

TOKENS = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+("?+)|[\[\]{}]', re.DOTALL)
"""A whole string, one that the text breaks off in (its group is empty), or a bracket.

Nothing is given back once it is taken: else the time for a text that breaks off in a string with many escaped quotes
would grow with its square.
"""
KEY = re.compile(rb'[\s,{]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+', re.DOTALL)
SCALAR = re.compile(rb"[^,}\]\s]+")
SURROGATES = re.compile("[\ud800-\udfff]")


class Member(NamedTuple):
    """One member of an object."""

    key: str
    start: int
    """First byte of its value."""
    end: int | None
    """Behind its last byte; None when the text ends, or was looked at no further, before it does."""


def items(data: mmap.mmap, start: int = 0) -> Iterator[tuple[int, int | None]]:
    """Start and end of every item of the array that is the first from `start`; a torn object or list has no end.

    An array that ends between two items is not told from a whole one.
    """
    depth = begin = 0
    done = start  # behind the last item
    for match in TOKENS.finditer(data, start):
        at, token = match.start(), data[match.start()]
        if depth == 1:
            yield from _bare(data, done, at)
            done = match.end()
        if token in b"[{":
            depth += 1
            begin = at if depth == 2 else begin
            done = match.end()
        elif token in b"]}":
            depth -= 1
            if depth == 1:
                yield begin, match.end()
                done = match.end()
            if depth <= 0:
                return
        elif depth == 1:
            yield at, match.end() if match.group(1) else None
    if depth > 1:
        yield begin, None


def _bare(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Start and end of numbers and words between two items."""
    if end - start > 1:
        yield from (found.span() for found in SCALAR.finditer(data, start, end))


def members(data: mmap.mmap, most: int) -> Iterator[Member]:
    """Every member of the object that the text is, as far as its first `most` bytes show."""
    opening = data.find(b"{", 0)
    if opening < 0:
        return
    position = opening + 1
    while found := KEY.match(data, position, most):
        start = found.end()
        end = _end_of(data, start, most)
        try:
            key = str(decode(found.group(1)))
        except ValueError:
            return
        yield Member(key, start, end)
        if end is None:
            return
        position = end


def _end_of(data: mmap.mmap, start: int, most: int) -> int | None:
    """Behind the value that begins at `start`."""
    first = data[start : start + 1]
    if first not in (b"[", b"{", b'"'):
        scalar = SCALAR.match(data, start, most)
        return scalar.end() if scalar else None
    depth = 0
    for match in TOKENS.finditer(data, start, most):
        token = data[match.start()]
        depth += (token in b"[{") - (token in b"]}")
        if depth == 0:
            return match.end() if match.group(1) != b"" else None
    return None


def decode(raw: bytes, mended: list[tuple[str, str]] | None = None) -> Any:
    """One JSON value, bare NaN and Infinity allowed as Python writes them; what was mended in it goes to `mended`.

    Raises:
        ValueError: with the reason in words.
    """
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # slower, but it reads what Python's own json writes
    try:
        value = json.loads(raw.decode("utf-8"))
        return without_surrogates(value, [] if mended is None else mended)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    except ValueError:
        raise ValueError("not JSON") from None


def without_surrogates(value: Any, mended: list[tuple[str, str]]) -> Any:
    """Replace halves of surrogate pairs, which no UTF-8 file can hold."""
    if isinstance(value, str):
        clean = SURROGATES.sub("\ufffd", value)
        if clean != value:
            mended.append((clean, value))
        return clean
    if isinstance(value, list):
        return [without_surrogates(item, mended) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key, mended): without_surrogates(item, mended) for key, item in value.items()}
    return value

"""Damages samples of every format, and a run folder, at random: nothing but an EnvSchedError may come out.

    python tests/fuzz_importers.py --minutes 5 --seed 0 --keep FOLDER

prints how many were tried and what broke, and leaves the files that broke something in FOLDER. The tests of
test_security_fuzz.py try a few of the same each time; what broke once is a test there.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from small_run import write_run

from envsched_core import views
from envsched_core.errors import EnvSchedError
from envsched_core.importers import FORMATS, ImportOptions, import_run
from envsched_core.store import RunReader, RunWriter, check_chain, list_runs, load_state
from envsched_core.views import RunView

__all__ = ["FILES", "damaged", "read_log", "read_run", "samples"]

FILES = Path(__file__).parent / "formats"
TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"\\ud800"),
    *(
        b"null",
        b"true",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-1",
        b"0",
        b"9" * 20,
        b"9" * 400,
        b"1.5",
        b'""',
        b"[]",
        b"{}",
    ),
    *(
        b"[" * 2000,
        b'{"a":' * 2000,
        b'"a"',
        b"PK\x03\x04",
        b"PAR1",
        b"\x1f\x8b",
        b"\x93NUMPY",
        b"../../",
        b"::",
        b" " * 50,
    ),
)
ODD: tuple[Any, ...] = (None, True, -1, 2**53, 2**70, 1e308, float("nan"), "", "\ud800", [], {}, [[]], [None], "a::b")
ODD += ({"a": None}, [{}], "[{]", "9" * 30, [1, "a"], {"": {}}, 0.5, "\x00", [[["x"]]], "1e400")


def samples() -> list[Path]:
    """Every sample: a file, or a folder that is one log."""
    return sorted(FILES.iterdir())


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes flipped, cut, doubled, put in or moved."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, size = rng.randrange(len(found) + 1), rng.choice((1, 1, 2, 8, 64, 1024))
        way = rng.randrange(6)
        if way == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del found[at : at + size]
        elif way == 2:
            found[at:at] = found[at : at + size]
        elif way == 3:
            found[at:at] = rng.choice(TOKENS)
        elif way == 4:
            found[at : at + size] = rng.choice(TOKENS)
        else:
            piece = bytes(found[at : at + size])
            there = rng.randrange(len(found) + 1)
            found[there : there + size] = piece
    return bytes(found[: rng.randrange(len(found) + 1)]) if rng.random() < 0.1 else bytes(found)


def _value(value: Any, rng: random.Random) -> Any:
    """A JSON value with another in one place of it, or one of its keys gone, renamed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        copy, key = dict(value), rng.choice(list(value))
        way = rng.random()
        if way < 0.1:
            del copy[key]
        elif way < 0.15:
            copy[rng.choice(list(value)) + "_"] = copy.pop(key)
        else:
            copy[key] = _value(copy[key], rng)
        return copy
    if isinstance(value, list) and value and rng.random() < 0.85:
        items, at = list(value), rng.randrange(len(value))
        items[at] = _value(items[at], rng)
        return items * 2 if rng.random() < 0.05 else items
    return rng.choice(ODD)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The content of a file with one or several things wrong with it."""
    if rng.random() < 0.5:
        lines = data.splitlines(keepends=True)
        for _ in range(rng.choice((1, 1, 3))):
            try:
                if rng.random() < 0.5:
                    return json.dumps(_value(json.loads(data), rng)).encode()
                at = rng.randrange(len(lines))
                lines[at] = json.dumps(_value(json.loads(lines[at]), rng)).encode() + b"\n"
            except (ValueError, IndexError, RecursionError):
                break
        else:
            return b"".join(lines)
    return _bytes(data, rng)


def _damage_one(folder: Path, rng: random.Random) -> Path:
    """Damage one of the files of a folder; returns it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "writer.lock")
    file = rng.choice(files)
    file.write_bytes(damaged(file.read_bytes(), rng))
    return file


def read_log(sample: Path, place: Path, rng: random.Random) -> None:
    """Import a damaged copy of a sample, made in the empty folder `place`.

    Raises:
        Exception: any but an EnvSchedError is a fault.
    """
    log = place / sample.name
    if sample.is_dir():
        shutil.copytree(sample, log)
        _damage_one(log, rng)
    else:
        log.write_bytes(damaged(sample.read_bytes(), rng))
    format = rng.choice([None, None, None, *FORMATS])
    options = ImportOptions(format=format, env=rng.choice([None, "e"]), reward=rng.choice([None, None, "reward"]))
    try:
        report = import_run([log], place / "run", options)
    except EnvSchedError:
        assert not (place / "run").exists()
        return
    assert report.kept + report.dropped == report.rows
    assert check_chain(place / "run") == []
    view = RunView(place / "run")
    view.poll()
    views.summary(view)


def read_run(run: Path, place: Path, rng: random.Random) -> None:
    """Read a damaged copy of a run folder by every way there is, and go on with it.

    Raises:
        Exception: any but an EnvSchedError is a fault.
    """
    copy = place / "run"
    shutil.copytree(run, copy)
    for _ in range(rng.choice((1, 1, 2))):
        _damage_one(copy, rng)
    list_runs(place)
    for read in (
        _read,
        _view,
        check_chain,
        lambda path: load_state(path, 1),
        lambda path: RunWriter.resume(path).close(),
    ):
        try:
            read(copy)
        except EnvSchedError:
            continue


def _read(run: Path) -> None:
    reader = RunReader(run)
    groups = [located.event.data for located in reader.events() if located.event.kind == "observed"]
    for take in (reader.tasks, reader.graph, *(lambda step=step: reader.scores(step) for step in range(3))):
        try:
            take()
        except EnvSchedError:
            continue
    for group in groups[:6]:
        try:
            reader.rollouts(group)
        except EnvSchedError:
            continue


def _view(run: Path) -> None:
    view = RunView(run)
    view.poll()
    steps = view.steps()
    last = steps[-1] if steps else None
    reads = (
        views.summary, views.steps, views.environments, views.report, views.log_facts, views.invariants,
        *([lambda v: views.batch(v, last), lambda v: views.composition(v, last)] if last is not None else []),
        lambda v: views.environment_map(v, last), views.stuck_tasks, views.unreadable_lines, views.odd_counts,
    )  # fmt: skip
    for read in reads:
        try:
            read(view)
        except EnvSchedError:
            continue


def main() -> None:
    """Try for some minutes, and say what broke."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("broken"))
    given = parser.parse_args()
    warnings.simplefilter("error")
    tried, broken = Counter[str](), Counter[str]()
    end, number = time.monotonic() + 60 * given.minutes, given.seed
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "sound", steps=3)
        ways = [*samples(), run]
        while time.monotonic() < end:
            number += 1
            rng, place = random.Random(number), Path(folder) / "place"
            sample = ways[number % len(ways)]
            place.mkdir()
            try:
                read_run(run, place, rng) if sample == run else read_log(sample, place, rng)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}"
                broken[what] += 1
                if broken[what] == 1:
                    print(f"{number} {sample.name}: {what}: {error}", flush=True)
                    shutil.copytree(place, given.keep / f"{number}-{sample.name}", dirs_exist_ok=True)
            tried[sample.name] += 1
            shutil.rmtree(place)
    print(f"{tried.total():,} inputs of {len(tried)} kinds tried, {broken.total():,} broke something: {dict(broken)}")


if __name__ == "__main__":
    main()

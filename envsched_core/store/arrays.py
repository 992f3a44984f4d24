"""Arrays of a run folder: graphs, scores of every task, snapshots. Never pickled, always renamed into place."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from envsched_core.errors import DamagedError, FormatVersionError, StoreError
from envsched_core.graph import DualRelationGraph
from envsched_core.limits import ARRAY_BYTES
from envsched_core.recording import StepScores

from .files import GRAPH, SCORES, STATE, blake, kept_inside, replace_file

MAX_SCORED_TASKS = 20_000
STATE_FORMAT = 1
_BLOCK = 1 << 20
_NAMES = "pattern_names.json"
_LEAF = "\0array"
_TREE = "tree"
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
"""A number as it is written here: no other spelling is one of ours."""
_UNREADABLE = (
    *(OSError, ValueError, KeyError, EOFError, OverflowError, TypeError, SyntaxError, RecursionError),
    *(MemoryError, NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy and zipfile raise for files that are not what they wrote."""


def graph_folder(version: int) -> str:
    """Where a graph stands inside the run folder."""
    return f"{GRAPH}/{version}"


def write_graph(run: Path, graph: DualRelationGraph) -> str:
    """Write a graph's arrays and names; returns the digest over its files."""
    folder = run / graph_folder(graph.version)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, array in graph.arrays().items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        (temporary / _NAMES).write_bytes(json.dumps(list(graph.pattern_names)).encode())
        if folder.exists():  # written before its event could be, in a run that was broken off there
            _take_over(run, folder, temporary)
        else:
            os.replace(temporary, folder)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error}; make room, then resume the run") from error
    return graph_digest(run, folder.name)


def _take_over(run: Path, folder: Path, temporary: Path) -> None:
    """Leave a graph that is on disk where it is, if it is the very one that was to be written."""
    same = graph_digest(run, folder.name) == graph_digest(run, temporary.name)
    shutil.rmtree(temporary)
    if not same:
        raise StoreError(f"{folder} is already written; a new graph needs a new version number")


def graph_digest(run: Path, name: str) -> str:
    """BLAKE2b-128 over names and bytes of the files of a graph's folder.

    Raises:
        DamagedError: something in it is no file of the run, or cannot be read.
    """
    folder = kept_inside(run, f"{GRAPH}/{name}", folder=True)
    try:
        files = [kept_inside(run, f"{GRAPH}/{name}/{file.name}") for file in sorted(folder.iterdir())]
        return blake(part for file in files for part in _parts(file))
    except OSError as error:
        raise DamagedError(f"{folder} cannot be read ({error}); make the run again from its source") from error


def _parts(file: Path) -> Iterator[bytes]:
    yield os.fsencode(file.name) + b"\0"
    with file.open("rb") as stream:
        yield from iter(lambda: stream.read(_BLOCK), b"")


def read_graph(run: Path, version: int) -> DualRelationGraph:
    """A graph with memory-mapped arrays.

    Raises:
        StoreError: there is no such graph. DamagedError: its files cannot be read.
    """
    folder = kept_inside(run, graph_folder(version), folder=True)
    if not folder.is_dir():
        raise StoreError(f"{run} has no graph {version}; it has {graph_versions(run) or 'none'}")
    try:
        files = [kept_inside(run, f"{graph_folder(version)}/{file.name}") for file in sorted(folder.glob("*.npy"))]
        arrays = {file.stem: _mapped(file) for file in files}
        names = json.loads(kept_inside(run, f"{graph_folder(version)}/{_NAMES}").read_bytes())
        graph = DualRelationGraph.from_arrays(version, arrays, names)
        graph.check()
        return graph
    except _UNREADABLE as error:
        raise DamagedError(f"{folder} cannot be read ({error}); make the run again from its source") from error


def graph_versions(run: Path) -> list[int]:
    """Numbers of the graphs on disk, lowest first."""
    return _numbers(run / GRAPH, "")


def write_scores(run: Path, scores: StepScores) -> bool:
    """Write the scores of a step; False, and nothing written, above 20,000 tasks."""
    if len(scores.score) > MAX_SCORED_TASKS:
        return False
    arrays = {name: np.asarray(value) for name, value in scores._asdict().items() if name != "step"}
    _write_npz(run / SCORES / f"{scores.step}.npz", arrays, compressed=True)
    return True


def read_scores(run: Path, step: int) -> StepScores | None:
    """The scores of a step; None when they were not kept."""
    path = kept_inside(run, f"{SCORES}/{step}.npz")
    if not path.exists():
        return None
    arrays = _read_npz(path)
    try:
        return StepScores(step, **{name: arrays[name] for name in StepScores._fields[1:]})
    except KeyError as error:
        raise DamagedError(f"{path} holds no {error}") from error


def scored_steps(run: Path) -> list[int]:
    """Steps whose scores are on disk, lowest first."""
    return _numbers(run / SCORES, ".npz")


def write_state(run: Path, step: int, state: Mapping[str, Any]) -> None:
    """Write a snapshot: nested dicts and lists of plain values, with arrays as leaves."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = {"format": STATE_FORMAT, "state": _take_arrays(state, arrays)}
    try:
        arrays[_TREE] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    except (TypeError, ValueError) as error:
        raise StoreError(f"a state that is not plain cannot be written: {error}") from error
    _write_npz(run / STATE / f"{step}.npz", arrays, compressed=False)


def load_state(run: Path, step: int) -> dict[str, Any]:
    """The snapshot of a step; tuples come back as lists.

    Raises:
        StoreError: there is none. FormatVersionError: a newer version wrote it. DamagedError: it cannot be read.
    """
    path = kept_inside(run, f"{STATE}/{step}.npz")
    if not path.exists():
        raise StoreError(f"{run} has no state of step {step}; it has {state_steps(run) or 'none'}")
    arrays = _read_npz(path)
    try:
        tree = json.loads(arrays[_TREE].tobytes())
        if tree["format"] > STATE_FORMAT:
            raise FormatVersionError(f"{path}: state format {tree['format']}, this version reads up to {STATE_FORMAT}")
        state: dict[str, Any] = _put_arrays(tree["state"], arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read ({error}); delete it, the events rebuild it") from error
    return state


def state_steps(run: Path) -> list[int]:
    """Steps with a snapshot, lowest first."""
    return _numbers(run / STATE, ".npz")


def drop_states(run: Path, keep: int) -> None:
    """Delete all snapshots but the newest `keep`."""
    for step in state_steps(run)[:-keep] if keep else state_steps(run):
        (run / STATE / f"{step}.npz").unlink(missing_ok=True)


def _take_arrays(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The same tree with each array replaced by its name in `arrays`."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {_LEAF: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == _LEAF:
                raise StoreError(f"a state key must be text, not {key!r}")
        return {key: _take_arrays(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_take_arrays(inner, arrays) for inner in value]
    return value


def _put_arrays(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `_take_arrays`."""
    if isinstance(value, dict):
        if _LEAF in value:
            return arrays[value[_LEAF]]
        return {key: _put_arrays(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list):
        return [_put_arrays(inner, arrays) for inner in value]
    return value


def _write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], *, compressed: bool) -> None:
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise StoreError(f"{path}: array {name} holds Python objects, which are not written")
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)  # type: ignore[arg-type]
    replace_file(path, buffer.getvalue())


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Every array of an archive, once what each claims to be is found true.

    NumPy makes room for an array by what its head claims, before it reads a byte of it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > (most := ARRAY_BYTES.now()):
                raise ValueError(f"it unpacks to more than {most:,} bytes, {ARRAY_BYTES.remedy()}")
            for member in members:
                with archive.open(member) as stream:
                    _check_head(stream, member.filename, member.file_size)
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except _UNREADABLE as error:
        raise DamagedError(f"{path} cannot be read ({error}); it may be deleted") from error


def _mapped(file: Path) -> NDArray[Any]:
    """An array as a memory map."""
    with file.open("rb") as stream:
        _check_head(stream, file.name, file.stat().st_size)
    array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


def _check_head(stream: IO[bytes], name: str, size: int) -> None:
    """Refuse an array of `size` bytes in all whose head claims another size, or Python objects.

    Raises:
        ValueError: with the reason.
    """
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} is no array of a version that is read")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    claimed = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or claimed != size - stream.tell():
        raise ValueError(f"{name} claims {claimed:,} bytes of {dtype}, which it does not have")


def _numbers(folder: Path, suffix: str) -> list[int]:
    if not folder.is_dir():
        return []
    names = (path.name.removesuffix(suffix) for path in folder.iterdir() if path.name.endswith(suffix))
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

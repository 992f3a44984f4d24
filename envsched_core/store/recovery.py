"""Where an unfinished run ends: what `RunWriter.resume` goes on from, and what it drops."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from envsched_core.errors import DamagedError

from .arrays import graph_folder, graph_versions
from .files import GRAPH, ROLLOUTS, SCORES, STATE, TASKS, TOOLS, cut, kept_inside, whole_size
from .lines import GENESIS, RawLine, Registered, decode_envelope, decode_told, line_hash, raw_lines, split_hash

_BEGUN = re.compile(r"\.(\w+\.json|linked\.jsonl|\d+|\d+\.npz)\.\d+\.tmp")
"""Names under which files of a run folder are begun."""


class End:
    """What the events of a run say of its end."""

    def __init__(self) -> None:
        """Of a run without events."""
        self.seq = 0
        """Of the next event."""
        self.hash = GENESIS
        """Of the last line."""
        self.torn: RawLine | None = None
        """A tail that is no line."""
        self._ends = {TASKS: 0, TOOLS: 0}
        self.graphs: set[int] = set()
        """Versions on record."""
        # A damaged line may be the very one that registers a task or a graph: then nothing whole is dropped.
        self._sure = True

    def take(self, raw: RawLine, writer: str) -> None:
        """Take in one line, in order."""
        parts = split_hash(raw.data)
        fits = parts is not None and parts[1] == line_hash(self.hash, parts[0])
        if raw.torn and not fits:
            self.torn = raw
            return
        self._sure = self._sure and fits
        try:
            envelope = decode_envelope(raw, writer)
            told = decode_told(envelope)
        except DamagedError:  # stays where it is; check_chain names it
            self._sure = False
            return
        if parts is not None:
            self.seq, self.hash = envelope.seq + 1, parts[1]
        if isinstance(told, Registered):
            self._ends = {TASKS: told.end, TOOLS: told.tools.end}
        elif told is not None:
            self.graphs.add(told.version)

    def drop_rest(self, run: Path) -> dict[str, int]:
        """Drop catalogue lines and graphs without an event, and torn rollouts; returns bytes dropped by file."""
        ends = dict(self._ends) if self._sure else {name: whole_size(run / name) for name in self._ends}
        ends[ROLLOUTS] = whole_size(run / ROLLOUTS)
        for version in set(graph_versions(run)) - self.graphs if self._sure else ():
            shutil.rmtree(kept_inside(run, graph_folder(version), folder=True))
        return {name: cut(run / name, end) for name, end in ends.items()}


def unfinished(run: Path) -> list[Path]:
    """Files and folders that a killed writer had begun under another name (`replace_file`, `write_graph`)."""
    folders = [run, *(run / name for name in (GRAPH, SCORES, STATE, "rollouts"))]
    return [path for folder in folders for path in folder.glob(".*.tmp") if _BEGUN.fullmatch(path.name)]


def drop_unfinished(run: Path) -> None:
    """Delete them; only the one writer of a run may."""
    for path in unfinished(run):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def find_end(run: Path, writer: str) -> End:
    """Read all events of a run to its end.

    Raises:
        FormatVersionError: a newer version wrote a line.
    """
    end = End()
    for raw in raw_lines(run):
        end.take(raw, writer)
    return end

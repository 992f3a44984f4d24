"""The run folder: the only code that writes one, and the code that reads it while it grows.

    run.json                 the manifest: format number first, `digest` last
    tasks.jsonl              one task a line as TaskSpec, its tools by name (in full where tools.jsonl says otherwise)
    tools.jsonl              each tool of an environment once: env, then the fields of Tool
    events/seg-000000.jsonl  append only; a segment is followed by the next before it would pass 64 MB
    graph/<version>/         one .npy per array, and pattern_names.json
    scores/<step>.npz        the latest scores of every task, up to 20,000 tasks
    state/<step>.npz         snapshots; may be deleted
    rollouts/rollouts.jsonl  one Rollout a line, found by the byte offsets in GroupResult.offsets; in a run made from
                             another, rollouts/linked.jsonl is the other's file
    counters.json            what a live session has counted; may be deleted
    writer.lock              holds the exclusive lock of the one writer

An event line is `{"v":1,"seq":S,"kind":K,"step":T,"data":{...},"hash":"H"}` and a newline. `hash` is always the
last field: H, 32 hex digits, is BLAKE2b-128 of the previous line's H (32 zeros before the first line) followed by
the raw bytes of this line up to, not including, `,"hash":"`. New fields of the same version stand before it.

    registered  count, total, digest, start, end: the bytes [start, end) of tasks.jsonl that the call appended and
                their BLAKE2b-128; tools: the same of tools.jsonl
    graph       version, digest (over names and bytes of its files), edges_within, edges_cross, patterns
    asked       a Decision        observed   a GroupResult, one line a group
    released    pick_ids, reason  resumed    dropped_bytes, files
    note        anything; the only place for clock readings

Promises: every call hands its whole lines to the system in one write; nothing is rewritten in place (manifest and
arrays are written under another name, then renamed); a tail without newline is no line: readers leave it and count it,
`resume` drops it and says so; a line that cannot be read is passed over and counted with its byte offset; a higher
format number or `v` is refused with the version that reads it; kinds and fields not known here are passed over.
"""

from envsched_core.recording import StepScores

from .archive import pack, unpack
from .arrays import load_state
from .chain import ChainProblem, check_chain
from .counters import Counters, read_counters
from .lines import Located, Problem
from .manifest import FORMAT, Manifest, list_runs, new_manifest, read_manifest
from .reader import RunReader
from .writer import RunWriter

__all__ = [
    "FORMAT",
    "ChainProblem",
    "Counters",
    "Located",
    "Manifest",
    "Problem",
    "RunReader",
    "RunWriter",
    "StepScores",
    "check_chain",
    "list_runs",
    "load_state",
    "new_manifest",
    "pack",
    "read_counters",
    "read_manifest",
    "unpack",
]

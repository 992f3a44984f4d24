"""Made-up events, a small graph and a run folder that holds one of each, for the tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from envsched_core.graph import DualRelationGraph
from envsched_core.records import Decision, GroupResult, TaskSpec, Tool
from envsched_core.store import Manifest, RunReader, RunWriter

SEGMENT = "events/seg-000000.jsonl"
EVENTS = 10
"""What `write_run` writes."""

CANDIDATE = {
    **{"env": "shop", "kept_as": "pick", "outcome": "selected", "score": 0.6, "rank": 1, "mean": 0.5, "variance": 0.2},
    **{"sd": 0.01, "low": 0.3, "high": 0.7, "usable": 0.99, "rollouts": 12.5, "state": "own history", "groups": 2},
    "terms": {"variance": 0.7, "uncertainty": 0.1234567890123, "penalty": -0.2},
    "shares": {"own": 0.5, "within": 0.25, "cross": 0.25, "environment": 0.0, "global": 0.0},
    "last_step": 3,
    "details": {"margin": 0.1},
}
EVIDENCE = {"env": "shop", "relation": "within", "weight": 0.1234, "share": 0.125, "mean": 0.5, "rollouts": 8.0}
DECISION = {
    **{"policy_version": None, "scheduler": "envsched", "config_digest": "c0ffee", "seed": 0, "asked": 2, "pool": 9},
    **{"eligible": 9, "cutoff": 0.5, "graph_version": 1, "trust": None, "counts": {"selected": 2}, "sample_rate": 0.1},
    **{"certificate": None, "quotas": (), "relaxed": (), "expired": ()},
}


def candidate(position: int) -> dict[str, Any]:
    evidence = [{**EVIDENCE, "task": f"t{i}", "last_step": 3} for i in range(8)]
    names = {"task": f"t{position}", "position": position, "pick_id": f"p{position}"}
    return {**CANDIDATE, **names, "evidence": evidence}


def decision(step: int = 0, picks: int = 2) -> Decision:
    return msgspec.convert({**DECISION, "step": step, "candidates": [candidate(i) for i in range(picks)]}, Decision)


def group(task: str, *, step: int = 0, **more: Any) -> GroupResult:
    return GroupResult(f"g{step}-{task}", "shop", task, (0.0, 1.0, 0.25), step=step, **more)


def small_graph(version: int = 1) -> DualRelationGraph:
    numbers = {"indptr": np.array([0, 1, 2, 2]), "indices": np.array([1, 0], dtype=np.int32)}
    ring = {**numbers, "weights": np.array([0.5, 0.5], np.float32), "part_text": np.array([0.5, 0.5], np.float32)}
    arrays = {f"within_{name}": array for name, array in ring.items()}
    arrays |= {f"cross_{name}": array if name == "indptr" else array[:0] for name, array in ring.items()}
    arrays |= {"cross_indptr": np.zeros(4, np.int64), "pattern": np.array([0, 1, -1], dtype=np.int32)}
    return DualRelationGraph.from_arrays(version, arrays, ["look, then act", "act"])


def write_run(path: Path) -> None:
    manifest = Manifest(1, "r", "replay", "envsched 0.1.0", "2026-01-01T00:00:00+00:00", seed=7)
    with RunWriter.create(path, manifest) as writer:
        writer.add_tasks([TaskSpec("shop", f"t{i}", text=f"buy {i}", tools=(Tool("pay", "v1"),)) for i in range(3)])
        writer.add_graph(small_graph(), 0)
        for step in range(2):
            writer.asked(decision(step))
            writer.observed([group("t0", step=step), group("t1", step=step)], step)
        writer.released(["p7"], "stale", 1)
        writer.note(1, {"seconds": 0.25})


def read(path: Path) -> list[Any]:
    return [located.event.data for located in RunReader(path).events()]

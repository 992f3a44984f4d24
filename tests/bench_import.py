"""How fast logs are imported: prints MB/s on invented files; a script, not a test.

    python tests/bench_import.py [--mb 100] [--only verl]

Every file is written to a temporary folder, imported into a run folder in one process (messages kept, and without)
and removed. MB/s are per second of one core's time. `peak` is what the process grew by at most: it follows the number
of rollouts, not the bytes. The first line says how fast the machine runs Python at the moment, which other processes
on it change: a step of an empty loop takes about 30 ns on a core of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from envsched_core.importers import ImportOptions, import_run, list_formats

GROUP = 8
WORDS = "order refund ticket flight seat price total customer agent please cancel change confirm status number".split()


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def verl(rng: random.Random) -> Iterator[dict[str, Any]]:
    """The trainer's dump: decoded prompt and answer."""
    while True:
        asked = f"system\nYou are a helpful agent.\nuser\n{_text(rng, 120)}"
        for _ in range(GROUP):
            said = f"assistant\n{_text(rng, 250)}"
            yield {"input": asked, "output": said, "gts": "42", "score": float(rng.random() < 0.4), "step": 12}


def table(rng: random.Random) -> Iterator[dict[str, Any]]:
    """A table with prompt and answer."""
    task = 0
    while True:
        task += 1
        asked = _text(rng, 60)
        for k in range(GROUP):
            yield {"env": f"env{task % 40}", "task_id": task, "step": task // 500, "rollout_id": k, "prompt": asked,
                   "completion": _text(rng, 120), "reward": float(rng.random() < 0.4), "tokens": 300}  # fmt: skip


def rollouts(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Rollouts without messages as trainers export them: ids, reward, metrics, timings; 0.9 kB a row."""
    task, names = 0, ("accuracy", "format", "calibration", "asymmetric_cost", "num_turns")
    while True:
        task += 1
        for k in range(GROUP):
            spans = {
                name: {
                    "start": 1778855146.1 + rng.random(),
                    "end": 1778855147.2 + rng.random(),
                    "duration": rng.random(),
                }
                for name in ("setup", "generation", "scoring", "model", "env", "overhead")
            }
            metrics = {name: round(rng.random(), 3) for name in names}
            yield {"step": task // 500, "task_id": task, "rollout_id": k, "env": f"env{task % 40}",
                   "reward": float(rng.random() < 0.4), "advantage": rng.random(),
                   "is_truncated": False, "metrics": metrics, "timing": spans}  # fmt: skip


def small(rng: random.Random) -> Iterator[dict[str, Any]]:
    """The smallest rows there are, 180 bytes each: here the number of rollouts counts, not their bytes."""
    task = 0
    while True:
        task += 1
        for k in range(GROUP):
            yield {"env": f"env{task % 40}", "task_id": f"task-{task}", "step": task // 500, "rollout_id": k,
                   "reward": float(rng.random() < 0.4), "metrics": {"exact": 0.5, "format": 1.0}, "tokens": 300,
                   "calls": ["search", "open", "answer"]}  # fmt: skip


def traces(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Episodes with tool calls, token ids and log-probabilities."""
    tools = [{"name": f"tool{k}", "description": _text(rng, 12), "parameters": {"type": "object"}} for k in range(8)]
    task = 0
    while True:
        task += 1
        asked = _text(rng, 80)
        work = {"type": "train", "step": task // 500, "policy": {"start": 3, "end": 3}}
        for k in range(GROUP):
            yield {"id": f"e{task}-{k}", "env": {"id": "pkg", "name": f"env{task % 40}"},
                   "task": {"type": "T", "data": {"idx": task, "prompt": asked}, "key": f"task-{task}"},
                   "group": {"id": f"g{task}"}, "run": {"type": "train", "work": work},
                   "ok": True, "errors": [], "traces": [_trace(rng, asked, tools)]}  # fmt: skip


def _trace(rng: random.Random, asked: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [{"message": {"role": "user", "content": asked}, "token_ids": list(range(100))}]
    for turn in range(4):
        call = {"id": f"c{turn}", "name": f"tool{rng.randrange(8)}", "arguments": '{"x": 1}'}
        said = {"role": "assistant", "content": _text(rng, 40), "tool_calls": [call]}
        ids = rng.choices(range(150_000), k=60)
        probabilities = [round(-rng.random(), 5) for _ in ids]
        nodes.append({"parent": len(nodes) - 1, "message": said, "sampled": True, "token_ids": ids,
                      "mask": [True] * 60, "logprobs": probabilities})  # fmt: skip
        answer = {"role": "tool", "tool_call_id": f"c{turn}", "content": _text(rng, 40)}
        nodes.append({"parent": len(nodes) - 1, "message": answer, "token_ids": ids})
    done = {"score": float(rng.random() < 0.4), "weight": 1.0}
    return {"version": 1, "id": "t", "agent": {"name": "agent", "trainable": True}, "tools": tools, "nodes": nodes,
            "rewards": {"done": done}, "metrics": {"turns": 4.0}, "ok": True, "num_output_tokens": 240,
            "stop_condition": "agent_done"}  # fmt: skip


KINDS: dict[str, Callable[[random.Random], Iterator[dict[str, Any]]]] = {
    "verl": verl,
    "table": table,
    "rollouts": rollouts,
    "small": small,
    "traces": traces,
}


def write(kind: str, path: Path, size: int) -> int:
    """An invented file of about `size` bytes; its size is returned."""
    rows, written = KINDS[kind](random.Random(1)), 0
    with path.open("wb") as stream:
        while written < size:
            written += stream.write(json.dumps(next(rows)).encode() + b"\n")
    return written


def measure(kind: str, path: Path, keep: bool) -> None:
    """Import a file once and print the speed; run in a process of its own, for its memory."""
    env = "bench" if kind == "verl" else None
    out = path.with_name("run")
    list_formats()  # the readers are loaded once, however large the log is
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, used = time.perf_counter(), time.process_time()
    report = import_run([path], out, ImportOptions(env=env, keep_rollouts=keep))
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    size = path.stat().st_size / 1e6
    what = "messages kept" if keep else "without messages"
    print(
        f"{kind:9} {what:17} {size:6.0f} MB  {size / used:6.1f} MB/s of CPU ({size / seconds:5.1f} wall)  "
        f"{report.rollouts:8,} rollouts, {report.rollouts / used:9,.0f}/s  peak {peak:4.0f} MB"
    )
    shutil.rmtree(out)


def _loop_step() -> float:
    """Nanoseconds of one core's time that a step of a simple loop takes; the least of three tries."""
    tries = []
    for _ in range(3):
        begin, total = time.process_time(), 0
        for k in range(1_000_000):
            total += k
        tries.append(time.process_time() - begin)
    return min(tries) * 1e3


def main() -> None:
    """Write, measure and remove one file after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--only", choices=KINDS, default=None)
    parser.add_argument("--measure", nargs=3, metavar=("KIND", "FILE", "KEEP"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        kind, file, keep = given.measure
        return measure(kind, Path(file), keep == "yes")
    print(f"a loop step takes {_loop_step():.0f} ns here")
    for kind in [given.only] if given.only else KINDS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.jsonl"
            write(kind, path, int(given.mb * 1e6))
            for keep in ("yes", "no"):
                subprocess.run([sys.executable, __file__, "--measure", kind, str(path), keep], check=True)


if __name__ == "__main__":
    main()

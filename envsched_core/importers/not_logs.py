"""Files that often lie beside a log and are none: what they are, so that a person is told more than "unknown"."""

from __future__ import annotations

from collections.abc import Callable

from .files import Head
from .pickles import is_pickle, why_not_loaded

__all__ = ["why_no_log"]


def why_no_log(head: Head) -> str:
    """What a file that no reader takes is known to be, and what to do with it; empty when nothing is known."""
    return next((said for found, said in KINDS if found(head)), "")


def _tool_documents(head: Head) -> bool:
    return "name" in head.keys and bool({"parameters", "input_schema", "inputSchema"} & set(head.keys))


def _function_documents(head: Head) -> bool:
    return set(head.keys) == {"type", "function"}


def _summaries(head: Head) -> bool:
    return "avg_reward" in head.keys and "model" in head.keys


def _profiles(head: Head) -> bool:
    return {"mean/reward", "max/reward"} <= set(head.keys)


def _training_metrics(head: Head) -> bool:
    """Numbers under names with slashes, as metric loggers write them."""
    if head.kind != "jsonl" or not head.first:
        return False
    plain = [isinstance(value, int | float) for value in head.first.values()]
    slashes = sum("/" in key for key in head.keys)
    data = head.first.get("data")
    nested = isinstance(data, dict) and "step" in head.keys and any("/" in key for key in data)
    return nested or (2 * slashes >= len(head.keys) and sum(plain) >= 0.8 * len(plain))


def _environments(head: Head) -> bool:
    return "env" in head.keys and "config" in head.keys and "task_id" not in head.keys


def _without_prompts(head: Head) -> bool:
    """NeMo-RL's training data, each value a list of one."""
    return {"content", "rewards"} <= set(head.keys) and bool({"input_lengths", "idx"} & set(head.keys))


def _run_settings(head: Head) -> bool:
    return {"environments", "rollouts_per_example", "batch_size"} <= set(head.keys)


def _evaluation_settings(head: Head) -> bool:
    return {"num_examples", "rollouts_per_example"} <= set(head.keys)


def _plain_text(head: Head) -> bool:
    return head.kind == "csv" and len(head.keys) == 1


KINDS: tuple[tuple[Callable[[Head], bool], str], ...] = (
    (_tool_documents, "tool documents, no log: --tools FILE adds them to one"),
    (_function_documents, "tool documents, no log: --tools FILE adds them to one"),
    (_summaries, "summaries of evaluations, no rollouts: the rewards behind the means are in the evaluation's results"),
    (_profiles, "rewards summed up by task, no rollouts"),
    (_training_metrics, "metrics of a training run by step, no rollouts"),
    (_environments, "a list of environments, no tasks"),
    (_run_settings, "settings of a training run, no rollouts: those are in the files beside it"),
    (_evaluation_settings, "settings of an evaluation, no rollouts: its results are in the file beside it"),
    (
        _without_prompts,
        "NeMo-RL's data of a step, which names no prompt: groups cannot be told; NeMo-Gym's rollouts can",
    ),
    (is_pickle, why_not_loaded()),
    (_plain_text, "lines of plain text or placeholders, no records: neither JSON nor columns"),
)

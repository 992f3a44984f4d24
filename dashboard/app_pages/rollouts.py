"""From a decision down to the rollouts: rewards, tool calls, the text on demand, and where they stand in the log."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from envsched_core.errors import EnvSchedError
from envsched_core.records import Rollout

from .. import loading, parts, words
from ..loading import Run

__all__ = ["show"]

MOST_TEXT = 20_000
"""Characters of one message shown."""


def show(run: Run, key: str, step: int | None) -> None:
    """What was observed of a task from a step on, and the rollouts of one of its groups."""
    st.subheader("What really happened" if step is None else f"What really happened from step {step} on", anchor=False)
    seen, hidden = _groups_of(run, key, step)
    if seen.empty:
        st.caption("No group of this task was observed.")
        return
    _groups(seen)
    number = _choose(seen)
    try:
        found = loading.recorded_rollouts(run, number) if hidden else loading.group_rollouts(run, number)
    except EnvSchedError as error:
        st.error("The rollouts cannot be read.", icon=":material/error:")
        parts.plain_text(str(error))
        return
    if not found:
        st.caption("The rollouts of this group were not kept when the log was imported.")
        return
    _rollouts(found)


def _groups_of(run: Run, key: str, step: int | None) -> tuple[pd.DataFrame, bool]:
    """Groups observed from `step` on, else before it, else those of the source log that this run never revealed."""
    seen = loading.afterwards(run, key, step)
    if len(seen):
        return seen, False
    earlier = loading.afterwards(run, key)
    if len(earlier):
        st.caption("Nothing was observed of this task from here on. Before:")
        return earlier, False
    log = loading.recorded(run, key)
    if log is not None and len(log):
        st.caption("This run never revealed a group of this task. The log it was made from holds:")
        return log, True
    return seen, False


def _groups(seen: pd.DataFrame) -> None:
    table = pd.DataFrame(
        {
            "step": seen["step"],
            "came out": ["mixed" if mixed else "flat" for mixed in seen["mixed"]],
            "rewards": seen["rewards"],
            "mean (mapped)": seen["mean"],
            "variance (mapped)": seen["variance"],
            "missing": seen["missing"],
            "policy": seen["policy_version"],
            "asked for": seen["asked"],
            "tokens": seen["tokens"],
            "seconds": seen["seconds"],
            "group": seen["group_id"],
        }
    ).dropna(axis=1, how="all")
    columns = {name: st.column_config.NumberColumn(format="%.3f") for name in ("mean (mapped)", "variance (mapped)")}
    parts.table(table, key="afterwards", columns=columns)


def _choose(seen: pd.DataFrame) -> int:
    """The group whose rollouts are shown: the first, or the one chosen where there are several."""
    numbers = [int(number) for number in seen["number"]]
    if len(numbers) == 1:
        return numbers[0]
    names = dict(zip(numbers, seen["group_id"], strict=True))
    return int(st.selectbox("Group", numbers, format_func=lambda n: str(names[n]), key="group"))


def _rollouts(found: list[Rollout]) -> None:
    st.markdown("**Its rollouts**")
    table = pd.DataFrame(
        {
            "rollout": [r.index + 1 for r in found],
            "reward": [r.reward for r in found],
            "parts": [", ".join(f"{name} {value:g}" for name, value in r.reward_parts.items()) for r in found],
            "tool calls": [" > ".join(call.name for call in r.calls) for r in found],
            "status": [r.status for r in found],
            "file": [r.place.file if r.place else "" for r in found],
            "line": [r.place.line if r.place else None for r in found],
            "tokens": [r.tokens for r in found],
        }
    )
    empty = [name for name in ("parts", "tool calls", "status", "file") if not table[name].astype(bool).any()]
    parts.table(table.drop(columns=empty).dropna(axis=1, how="all"), key="rollouts")
    if not any(r.messages for r in found):
        st.caption("The log kept no messages.")
        return
    wanted = st.selectbox(
        "Show the text of a rollout", [r.index for r in found], index=None, key="rollout_text",
        format_func=lambda i: f"rollout {i + 1}, reward {words.number(found[i].reward)}", placeholder="none",
    )  # fmt: skip
    if wanted is not None:
        _messages(next(r for r in found if r.index == wanted))


def _messages(rollout: Rollout) -> None:
    """Every message as plain text, exactly as the log had it."""
    for message in rollout.messages:
        with st.container(border=True):
            parts.plain_text(message.role)
            if message.content:
                st.code(message.content[:MOST_TEXT], language=None, wrap_lines=True)
                if len(message.content) > MOST_TEXT:
                    st.caption(f"The first {MOST_TEXT:,} of {len(message.content):,} characters.")
            for call in message.calls:
                st.code(f"{call.name}({call.arguments[:MOST_TEXT]})", language=None, wrap_lines=True)

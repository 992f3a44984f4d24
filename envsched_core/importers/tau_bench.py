"""tau-bench trials: one JSON array of {task_id, trial, reward, info, traj}, read item by item.

The file does not say which environment it is: `--env`, else the first tool name that only one of the
benchmark's two domains has, else the name `tau-bench` and a note. All trials of a task in a file are a group.
A trial with `info.error` never ran to its end: its reward (the file says 0) is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envsched_core.records import Place

from .base import UNUSABLE, Carries, Context, Drop, ImportOptions, Row, RowError, as_rows
from .files import Head, Source, head_of, records
from .identity import Identity
from .messages import calls_of, messages_from
from .values import floats, name, names, reward, text

__all__ = ["ABOUT", "CARRIES", "COMPANIONS", "NEEDS", "claims", "read"]

ABOUT = "tau-bench trials: a JSON array of task_id, trial, reward, info, traj (--tools FILE adds the tool documents)"
CARRIES = Carries(
    env="some",
    task="yes",
    group="yes",
    step="no",
    parts="yes",
    tools="no",
    calls="yes",
    messages="yes",
    cost="no",
    policy="no",
    every_group="yes",
    limits="the environment is told by its tool names, else --env",
)
COMPANIONS: tuple[str, ...] = ()
NEEDS = ("task_id", "reward", "info", "traj")

DOMAINS = {
    "airline": {
        *("book_reservation", "cancel_reservation", "get_reservation_details", "list_all_airports"),
        *("search_direct_flight", "search_onestop_flight", "send_certificate", "update_reservation_baggages"),
        *("update_reservation_flights", "update_reservation_passengers"),
    },
    "retail": {
        *("cancel_pending_order", "exchange_delivered_order_items", "find_user_id_by_email"),
        *("find_user_id_by_name_zip", "get_order_details", "get_product_details", "list_all_product_types"),
        *("modify_pending_order_address", "modify_pending_order_items", "modify_pending_order_payment"),
        *("modify_user_address", "return_delivered_order_items"),
    },
}
"""Tool names that only one domain has."""


def claims(head: Head, options: ImportOptions) -> bool:
    """Whether the first items are trials."""
    return head.kind in ("array", "jsonl") and set(NEEDS) <= set(head.keys)


def read(source: Source, context: Context) -> Iterator[Row | Drop]:
    """Every trial."""
    kind = head_of(source.path).kind
    env = context.options.env or _domain(source, kind)
    if env is None:
        env = "tau-bench"
        context.notes.add(f"{source.label}: no tool name tells the environment; it is called tau-bench (--env NAME)")

    def trial(item: Mapping[str, Any], place: Place, mark: int) -> Row:
        return _trial(item, place, mark, env, context.options.reward)

    yield from as_rows(records(source, kind), source, trial, Identity(source, context))


def _domain(source: Source, kind: Any) -> str | None:
    """The domain of the first trial that uses a tool only one domain has."""
    for record in records(source, kind):
        try:
            used = _tool_names(record.value) if not record.problem else set()
        except UNUSABLE:
            continue  # reading drops this item and says so
        for domain, tools in DOMAINS.items():
            if used & tools:
                return domain
    return None


def _tool_names(item: Mapping[str, Any]) -> set[str]:
    """Tools of the reference actions and of the trial itself."""
    observed = {call.name for call in calls_of(messages_from(item.get("traj")))}
    return observed | set(names(_task(item).get("actions")))


def _info(item: Mapping[str, Any]) -> Mapping[str, Any]:
    info = item.get("info")
    return info if isinstance(info, Mapping) else {}


def _task(item: Mapping[str, Any]) -> Mapping[str, Any]:
    task = _info(item).get("task")
    return task if isinstance(task, Mapping) else {}


def _trial(item: Mapping[str, Any], place: Place, mark: int, env: str, part: str | None) -> Row:
    """One trial as a row."""
    task, info = _task(item), _info(item)
    task_id = name(item.get("task_id"))
    if task_id is None:
        raise RowError("no task_id")
    error = info.get("error")
    parts = _parts(info.get("reward_info"))
    messages = messages_from(item.get("traj"))
    actions, outputs = task.get("actions"), task.get("outputs")
    score = reward(parts.get(part) if part is not None else item.get("reward"))
    return Row(
        place,
        env,
        task_id,
        (None if error is not None else score,),
        group=place.file,
        mark=mark if item.get("trial") is not None else 0,
        text=text(task.get("instruction")),
        verifier="" if actions is None else "actions and outputs" if outputs else "actions",
        reference=None if actions is None else names(actions),
        parts=parts,
        messages=messages,
        calls=calls_of(messages),
        status=f"error: {text(error)}" if error is not None else "",
    )


def _parts(reward_info: Any) -> dict[str, float]:
    """Named parts of the reward (r_actions, r_outputs)."""
    inner = reward_info.get("info") if isinstance(reward_info, Mapping) else None
    return floats(inner)

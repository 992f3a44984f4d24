"""Why, or why not, one task was picked at one step; its rivals, its history, and what happened afterwards."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.errors import UnknownTaskError
from envsched_core.explanation import verdict
from envsched_core.records import Candidate, Decision, Explanation, GroupResult, QuotaUse, Rollout, Trust
from envsched_core.replay import explain_run

from .run_view import OUTCOME_CODES, STATES, RunView

__all__ = ["Explained", "afterwards", "explained", "group_rollouts", "recorded", "rederived", "rivals", "timeline"]

TIMELINE_STEPS = 400
"""Most scored steps a timeline reads; older ones are told only where they are on record."""


class Explained(msgspec.Struct, frozen=True):
    """What the run says of one task at one step."""

    step: int
    env: str
    task: str
    source: Literal["recorded", "re-derived", "scores", "nothing"] = "nothing"
    """recorded: written when the batch was chosen. re-derived: computed again from the events. scores: only
    score, rank and outcome are on record. nothing: the step has no word on it."""
    verdict: str = ""
    """One sentence with the numbers; untrusted text where it names tasks."""
    picked: bool = False
    outcome: str = ""
    """Outcome code; empty when nothing is on record."""
    score: float | None = None
    rank: int | None = None
    variance: float | None = None
    """Predicted, in [0, 0.25]."""
    state: str = ""
    """Evidence state; empty when nothing is on record."""
    candidate: Candidate | None = None
    """Terms, shares and evidence; None when only the scores are known."""
    cutoff: float | None = None
    runner_up: str | None = None
    runner_up_score: float | None = None
    quota: QuotaUse | None = None
    trust: Trust | None = None
    eligible: int = 0
    """Tasks that could be picked when the step began."""
    spent: bool = False
    """Of a task known by its scores only: it was not available, and all its recorded groups came before the step."""


def explained(view: RunView, step: int, key: str) -> Explained:
    """The recorded explanation of task `key` (ENV::TASK) at `step`; falls back to the scores file.

    Raises:
        UnknownTaskError: the run has no such task.
    """
    node = view.node(key)
    decisions = view.decisions(step)
    # The latest ask has the last word on a task, but a pick stays a pick in the later asks of its step.
    found = [
        (c, d) for d in decisions for c in d.candidates if c.key == key and (c.kept_as == "pick" or d is decisions[-1])
    ]
    if found:
        candidate, decision = found[0]
        best = _runner_up([c for d in decisions for c in d.candidates])
        return _full(candidate, step, verdict(candidate, decision), decision, best)
    env, task = view.names(node)
    scores = view.scores(step)
    if not decisions:
        return Explained(step, env, task)
    last = decisions[-1]
    head = Explained(
        step, env, task, cutoff=last.cutoff, quota=_quota(last, env), trust=last.trust, eligible=last.eligible
    )
    if scores is None or node >= len(scores.score):
        return head
    outcome = OUTCOME_CODES[scores.outcome[node]]
    return msgspec.structs.replace(
        head,
        source="scores",
        outcome=outcome,
        score=float(_snapped(scores.score[node], last.cutoff)),
        rank=int(scores.rank[node]),
        variance=float(scores.variance[node]),
        state=STATES[scores.state[node]],
        spent=outcome == "unavailable" and _spent(view, step, env, task),
    )


def _snapped(scores: NDArray[np.float32] | np.float32, cutoff: float | None) -> NDArray[np.float64]:
    """Scores of a scores file, which has 7 digits; those that no digit tells from the cut-off are the cut-off."""
    exact = np.asarray(scores, dtype=np.float64)
    return exact if cutoff is None else np.where(np.asarray(scores) == np.float32(cutoff), cutoff, exact)


def _spent(view: RunView, step: int, env: str, task: str) -> bool:
    """Whether picks before a step were answered by all the groups that are recorded of a task."""
    found = view.row(
        """
        SELECT coalesce(bool_or(draws <= (SELECT count(*) FROM groups g JOIN candidates c USING (candidate)
            WHERE g.env = $env AND g.task = $task AND c.step < $step)), false) spent
        FROM tasks WHERE env = $env AND task = $task""",
        {"step": step, "env": env, "task": task},
    )
    return bool(found["spent"])


def rederived(view: RunView, step: int, key: str) -> Explained:
    """The same with every term, computed again from the run's events (slow: all steps before are replayed)."""
    explanations: list[Explanation] = explain_run(view.path, step, key)
    if not explanations:
        raise UnknownTaskError(f"{key} was not a task of this run at step {step}")
    e = explanations[0]
    c = e.candidate
    eligible = max((d.eligible for d in view.decisions(step)), default=0)
    return Explained(
        e.step, e.env, e.task, e.source, e.verdict, e.picked, c.outcome, c.score, c.rank, c.variance, c.state, c,
        e.cutoff, e.runner_up, e.runner_up_score, e.quota, e.trust, eligible,
    )  # fmt: skip


def _full(c: Candidate, step: int, sentence: str, decision: Decision, best: Candidate | None) -> Explained:
    picked = c.kept_as == "pick"
    return Explained(
        step, c.env, c.task, "recorded", sentence, picked, c.outcome, c.score, c.rank, c.variance, c.state, c,
        decision.cutoff, best.key if best else None, best.score if best else None, _quota(decision, c.env),
        decision.trust, decision.eligible,
    )  # fmt: skip


def _quota(decision: Decision, env: str) -> QuotaUse | None:
    return next((q for q in decision.quotas if q.env == env), None)


def _runner_up(candidates: list[Candidate]) -> Candidate | None:
    """The best candidate that was not picked."""
    picked = {c.key for c in candidates if c.kept_as == "pick"}
    return max((c for c in candidates if c.key not in picked), key=lambda c: c.score, default=None)


def rivals(view: RunView, step: int, key: str, each: int = 5) -> pd.DataFrame:
    """The tasks just above and just below one task in rank at a step.

    Columns: rank (1-based, before picks and quotas), env, task, score, outcome, variance [0, 0.25], state, this
    (the task itself). From the scores file where there is one, else from the candidates on record. The first of the
    ranking for a task without a rank.
    """
    node, scores, decisions = view.node(key), view.scores(step), view.decisions(step)
    if scores is None or node >= len(scores.score):
        return _recorded_rivals(view, step, key, each)
    order = np.lexsort((np.arange(len(scores.rank)), scores.rank))
    order = order[scores.rank[order] > 0]  # 0 = could not be picked
    at = int(np.flatnonzero(order == node)[0]) if scores.rank[node] > 0 else 0
    near = order[max(at - each, 0) : at + each + 1]
    names = [view.names(int(i)) for i in near]
    return pd.DataFrame(
        {
            "rank": scores.rank[near],
            "env": [env for env, _ in names],
            "task": [task for _, task in names],
            "score": _snapped(scores.score[near], decisions[-1].cutoff if decisions else None),
            "outcome": [OUTCOME_CODES[i] for i in scores.outcome[near]],
            "variance": scores.variance[near].astype(float),
            "state": [STATES[i] for i in scores.state[near]],
            "this": near == node,
        }
    )


def _recorded_rivals(view: RunView, step: int, key: str, each: int) -> pd.DataFrame:
    frame = view.query(
        """
        SELECT rank, env, task, score, outcome, variance, state, env || '::' || task = $key AS this
        FROM candidates WHERE step = $step AND rank > 0
        QUALIFY row_number() OVER (PARTITION BY env, task ORDER BY kept_as = 'pick' DESC, decision DESC) = 1
        ORDER BY rank, env, task""",
        {"step": step, "key": key},
    )
    at = np.flatnonzero(frame["this"])
    middle = int(at[0]) if len(at) else 0
    return frame.iloc[max(middle - each, 0) : middle + each + 1].reset_index(drop=True)


def timeline(view: RunView, key: str) -> pd.DataFrame:
    """One task over the steps of the run, in order.

    Columns: step, outcome, score, rank, variance (predicted, [0, 0.25]), mean (predicted, [0, 1]), state,
    position (its place among the step's picks), observed (variance of the group observed for that step,
    NULL when none was), observed_mean, mixed. Predictions come from the scores files, else from the record.
    """
    env, task = view.names(view.node(key))
    scored = _scored_steps(view, view.node(key))
    recorded = view.query(
        """
        SELECT step, outcome, score, rank, variance, mean, state, position FROM candidates
        WHERE env = ? AND task = ?
        QUALIFY row_number() OVER (PARTITION BY step ORDER BY kept_as = 'pick' DESC, decision DESC) = 1""",
        [env, task],
    )
    seen = view.query(
        """
        SELECT step, avg(variance) observed, avg(mean) observed_mean, bool_or(mixed) mixed FROM groups
        WHERE env = ? AND task = ? AND step IS NOT NULL GROUP BY step""",
        [env, task],
    )
    both = recorded.set_index("step")
    if len(scored):
        both = both.combine_first(scored.set_index("step"))
    whole = both.reset_index().merge(seen, on="step", how="outer").sort_values("step")
    return whole[["step", *recorded.columns.drop("step"), "observed", "observed_mean", "mixed"]].reset_index(drop=True)


def _scored_steps(view: RunView, node: int) -> pd.DataFrame:
    rows = []
    for step in view.scored_steps()[-TIMELINE_STEPS:]:
        s = view.scores(step)
        if s is not None and node < len(s.score):
            numbers = (float(s.score[node]), int(s.rank[node]), float(s.variance[node]), float(s.mean[node]))
            rows.append((step, OUTCOME_CODES[s.outcome[node]], *numbers, STATES[s.state[node]]))
    return pd.DataFrame(rows, columns=["step", "outcome", "score", "rank", "variance", "mean", "state"])


GROUP_COLUMNS = """number, step, group_id, candidate IS NOT NULL AS asked, mixed, mean, variance, scored, missing,
    status, policy_version, raw_mean, tokens, seconds, tool_calls"""


def afterwards(view: RunView, key: str, step: int | None = None) -> pd.DataFrame:
    """What was really observed of one task, from `step` on (all of it when None), in order of arrival.

    Columns: number (to ask `group_rollouts`), step, group_id, asked (it answers a pick), mixed, mean and
    variance (mapped rewards, [0, 1] and [0, 0.25]), scored and missing (rollouts), status, policy_version,
    raw_mean (reward units), tokens, seconds, tool_calls, rewards (reward units, comma separated).
    """
    env, task = view.names(view.node(key))
    frame = view.query(
        f"""
        SELECT {GROUP_COLUMNS}, payload FROM groups JOIN (SELECT number, payload FROM groups_raw) USING (number)
        WHERE env = $env AND task = $task AND ($step IS NULL OR step IS NULL OR step >= $step) ORDER BY number""",
        {"env": env, "task": task, "step": step},
    )
    rewards = [msgspec.json.decode(payload, type=GroupResult).rewards for payload in frame.pop("payload")]
    frame["rewards"] = [", ".join(f"{x:g}" for x in group) for group in rewards]
    return frame


def recorded(view: RunView, key: str) -> pd.DataFrame | None:
    """What the replayed log holds of a task, whether or not this run revealed it; None when it is not at hand.

    Columns as in `afterwards`.
    """
    source = view.source()
    if source is None or not source.knows(key):
        return None
    return afterwards(source, key)


def group_rollouts(view: RunView, number: int) -> list[Rollout]:
    """The rollouts of the group that arrived as `number`, as the log had them; empty when none were kept."""
    found = view.row("SELECT payload FROM groups_raw WHERE number = ?", [number])
    result = msgspec.json.decode(found["payload"], type=GroupResult)
    return view.rollouts(result)

"""Before there was data: what every prediction rested on, when evidence came, and which tasks never gave any.

Evidence states are those of records.EvidenceState, in columns named after them with an underscore for each space.
Nothing is recomputed: states of all tasks are read from the scores files; where those were not kept, they are
estimated from the candidates on record and the random sample of the rest, and the row says so.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from envsched_core.config import Config
from envsched_core.explanation import SOURCE_WORDS
from envsched_core.store import RunReader

from .run_view import STATES, RunView
from .trends import trust

__all__ = [
    "STATE_COLUMNS",
    "errors_by_source",
    "errors_by_state",
    "evidence_reached",
    "evidence_states",
    "first_evidence",
    "guesses",
    "picks_by_state",
    "rollouts_seen",
    "source_shares",
    "stuck_tasks",
    "transfer_off",
]

STATE_COLUMNS: tuple[str, ...] = tuple(state.replace(" ", "_") for state in STATES)
"""The evidence states as column names, least known first."""
SHARES = {"half": 0.5, "nine_tenths": 0.9, "all_tasks": 1.0}

_counted: WeakKeyDictionary[RunReader, dict[int, NDArray[np.int64]]] = WeakKeyDictionary()
"""Tasks in each state by step: scores files of past steps never change, and a log read anew has a new reader."""


def evidence_states(view: RunView, most_steps: int = 500) -> pd.DataFrame:
    """How many tasks of the pool were in each evidence state when each batch was chosen, in order of step.

    Columns: step; basis (counted: from the scores file of every task; estimated: from the candidates on record, the
    rest in proportion to their random sample); tasks (in the pool); prior_only, environment_only, neighbours,
    own_history (tasks, whole numbers where counted); not_known (tasks that nothing on record speaks for). Of more than
    `most_steps` steps the first half of that many are all shown and the rest evenly thinned.
    """
    steps = [int(step) for step in view.query("SELECT DISTINCT step FROM decisions ORDER BY step")["step"]]
    shown = _thinned(steps, most_steps)
    newest = view.health().last_step
    counted = {step: found for step in shown if (found := _in_each_state(view, step, newest)) is not None}
    estimated = _estimates(view) if len(counted) < len(shown) else {}
    rows: list[tuple[Any, ...]] = []
    for step in shown:
        if step in counted:
            rows.append((step, "counted", int(counted[step].sum()), *counted[step].tolist(), 0))
        elif step in estimated:
            rows.append((step, "estimated", *estimated[step]))
    return pd.DataFrame(rows, columns=["step", "basis", "tasks", *STATE_COLUMNS, "not_known"])


def _thinned(steps: list[int], most: int) -> list[int]:
    if len(steps) <= most:
        return steps
    early = steps[: most // 2]
    late = np.unique(np.linspace(len(steps) - 1, len(early), most - len(early)).astype(int))
    return early + [steps[i] for i in late]


def _in_each_state(view: RunView, step: int, newest: int | None) -> NDArray[np.int64] | None:
    """Tasks in each state [4] at a step; None without a scores file that can be read."""
    known = _counted.setdefault(view.reader, {})
    if step in known:
        return known[step]
    scores = view.scores(step)
    if scores is None or not len(scores.state):
        return None
    found = np.bincount(scores.state, minlength=len(STATES)).astype(np.int64)
    if step != newest:  # a further ask of the newest step replaces its file
        known[step] = found
    return found


def _estimates(view: RunView) -> dict[int, tuple[float, ...]]:
    """(tasks, one number a state, not known) by step: the tasks that stand for themselves, and the sample's shares.

    Picks of all asks of the step, near misses and sample of its last one. The sample is uniform over the rest, so the
    rest is divided as the sample is (the ratio estimator of sampling theory).
    """
    counts = ", ".join(
        f"count(*) FILTER ({kept} 'sample' AND state = '{state}')"
        for kept in ("kept_as <>", "kept_as =")
        for state in STATES
    )
    frame = view.query(
        f"""
        WITH last AS (SELECT step, max(decision) decision, max(pool) pool FROM decisions GROUP BY step),
        kept AS (
            SELECT c.step, last.pool, c.kept_as, c.state
            FROM candidates c JOIN last USING (step)
            WHERE c.kept_as = 'pick' OR c.decision = last.decision
            QUALIFY row_number() OVER (
                PARTITION BY c.step, c.env, c.task ORDER BY c.kept_as = 'pick' DESC, c.candidate DESC) = 1)
        SELECT step, any_value(pool) pool, {counts} FROM kept GROUP BY step"""
    )
    numbers = frame.to_numpy(dtype=float)
    pool, own, sample = numbers[:, 1], numbers[:, 2:6], numbers[:, 6:]
    rest, drawn = np.maximum(pool - own.sum(axis=1), 0.0), sample.sum(axis=1)
    whole = own + sample * (rest / np.maximum(drawn, 1.0))[:, None]
    unknown = np.where(drawn > 0, 0.0, rest)
    rows = zip(frame["step"], pool, whole.tolist(), unknown, strict=True)
    return {int(step): (int(tasks), *states, float(missing)) for step, tasks, states, missing in rows}


def picks_by_state(view: RunView) -> pd.DataFrame:
    """What the picks of each step rested on, in order of step.

    Columns: step; picks; prior_only, environment_only, neighbours, own_history (picks); guesses (prior-only picks that
    were chosen by score: a uniform draw asks for no evidence).
    """
    counts = ", ".join(
        f"count(*) FILTER (state = '{state}') {column}" for state, column in zip(STATES, STATE_COLUMNS, strict=True)
    )
    return view.query(
        f"""
        SELECT step, count(*) picks, {counts},
            count(*) FILTER (state = 'prior only' AND outcome <> 'uniform_draw') guesses
        FROM outcomes GROUP BY step ORDER BY step"""
    )


def guesses(view: RunView) -> pd.DataFrame:
    """Every pick that rested on the prior alone, in order of step and pick.

    Columns: step, position (0-based order in the step), env, task, drawn (by a uniform draw), predicted_mean [0, 1],
    predicted [0, 0.25] and observed variance, from_features (share of the predicted mean that the task's text, tools
    and environment told, [0, 1]; 0 until groups were observed that they could be learned from), ended (open, observed,
    released, expired), mixed (NULL unless observed).
    """
    return view.query(
        """
        SELECT step, position, env, task, outcome = 'uniform_draw' drawn, predicted_mean, predicted,
            CASE WHEN d.scored > 0 THEN coalesce(f.share, 0) ELSE 0 END from_features, ended, mixed, observed
        FROM outcomes o LEFT JOIN (SELECT decision, scored FROM decisions) d USING (decision)
            LEFT JOIN (SELECT candidate, share FROM shares WHERE source = 'features') f USING (candidate)
        WHERE state = 'prior only' ORDER BY step, position"""
    )


def evidence_reached(view: RunView) -> pd.DataFrame:
    """When how many tasks had evidence: one row a kind of evidence, over the steps of `evidence_states`.

    Columns: evidence (environment_only, neighbours, own_history: that much or nearer); half, nine_tenths, all_tasks
    (first step by which that share of the pool had it; NULL = not within the run); tasks (that have it at the last
    step), share (of the pool, [0, 1]).
    """
    states = evidence_states(view)
    rows: list[tuple[Any, ...]] = []
    for i, column in enumerate(STATE_COLUMNS[1:], 1):
        having = states[list(STATE_COLUMNS[i:])].sum(axis=1)
        share = having / states["tasks"].clip(lower=1)
        steps = [next(iter(states["step"][share >= least - 1e-12]), None) for least in SHARES.values()]
        last = (having.iloc[-1], share.iloc[-1]) if len(states) else (None, None)
        rows.append((column, *steps, *last))
    frame = pd.DataFrame(rows, columns=["evidence", *SHARES, "tasks", "share"])
    return frame.astype(dict.fromkeys(SHARES, "Int64"))


def first_evidence(view: RunView) -> pd.DataFrame:
    """One row per environment of the catalogue: how long it waited for a first result, longest first.

    Columns: env, tasks, first_pick, first_result, first_mixed (steps whose batch gave the first pick, the first group
    with a usable reward, the first mixed group; NULL = never), wait (steps from the run's first step to first_result;
    a result counts from the next step on), blind_picks (picks that rested on the prior alone), tasks_seen (with a
    usable reward), share_seen [0, 1].
    """
    return view.query(
        """
        WITH pool AS (SELECT env, count(*) tasks FROM tasks GROUP BY env),
        begin AS (SELECT least((SELECT min(step) FROM decisions), (SELECT min(step) FROM groups)) AS first),
        picked AS (
            SELECT env, min(step) first_pick, count(*) FILTER (state = 'prior only') blind_picks
            FROM outcomes GROUP BY env),
        seen AS (
            SELECT env, min(step) first_result, min(step) FILTER (mixed) first_mixed, count(DISTINCT task) tasks_seen
            FROM groups WHERE scored > 0 GROUP BY env)
        SELECT env, tasks, first_pick, first_result, first_mixed, first_result - begin.first AS wait,
            coalesce(blind_picks, 0) blind_picks, coalesce(tasks_seen, 0) tasks_seen,
            coalesce(tasks_seen, 0) / tasks AS share_seen
        FROM pool LEFT JOIN picked USING (env) LEFT JOIN seen USING (env), begin
        ORDER BY wait DESC NULLS FIRST, env"""
    )


def stuck_tasks(view: RunView, least: int = 2) -> pd.DataFrame:
    """Tasks that cost budget at least `least` times and never taught anything, most rollouts first.

    A visit is a pick that ended, or a group that nobody asked for. Columns: env, task; why (erroring: no visit gave a
    usable reward, so the task is unseen still; failing: every reward was the lowest
    of its range, and the range has more than one value); visits, groups
    (observed), rollouts (of these), missing (rollouts without a usable reward), ended (picks released or expired),
    first_step, last_step (NULL where the log has none), reasons (why picks were released, at most three).
    """
    return view.query(
        """
        WITH visits AS (
            SELECT env, task, step, ended <> 'observed' lost, reason, scored, missing, observed_mean AS mean
            FROM outcomes WHERE ended <> 'open'
            UNION ALL
            SELECT env, task, step, false, '', scored, missing, mean FROM groups WHERE candidate IS NULL)
        SELECT env, task, CASE WHEN coalesce(sum(scored), 0) = 0 THEN 'erroring' ELSE 'failing' END why,
            count(*) visits, count(*) FILTER (NOT lost) AS groups,
            coalesce(sum(scored + missing), 0)::BIGINT rollouts, coalesce(sum(missing), 0)::BIGINT missing,
            count(*) FILTER (lost) ended, min(step) first_step, max(step) last_step,
            array_to_string(list_sort(list(DISTINCT reason) FILTER (reason <> ''))[1:3], '; ') reasons
        FROM visits LEFT JOIN ranges r USING (env) GROUP BY env, task
        HAVING count(*) >= $least
            AND (coalesce(sum(scored), 0) = 0 OR max(mean) <= 1e-9 AND any_value(r.high) > any_value(r.low))
        ORDER BY rollouts DESC, visits DESC, env, task""",
        {"least": least},
    )


def rollouts_seen(view: RunView) -> int:
    """Rollouts of all observed groups, those without a usable reward included."""
    return int(view.row("SELECT coalesce(sum(scored + missing), 0) n FROM groups")["n"])


def errors_by_state(view: RunView, *, draws_only: bool = False) -> pd.DataFrame:
    """How far predictions were off, by what they rested on; one row a state that has answered picks.

    With `draws_only` over the uniform draws alone: the other picks were chosen for what was predicted of them, which
    biases what is seen. Columns: state, groups; mean_error (root mean square of observed minus predicted mean reward,
    [0, 1]), noise (the root mean square error that a perfect prediction would still show: the standard error of a
    group's mean, from its unbiased variance; NULL without groups of two), bias (mean of observed minus predicted);
    predicted_variance (times (G - 1) / G: what a group of G shows of it on average), observed_variance, variance_error
    (mean absolute difference of the two), chance (mean predicted chance of a mixed group), mixed (share that were),
    brier (mean squared difference of chance and outcome, [0, 1]; Brier 1950).
    """
    return _errors(view, "SELECT candidate, state FROM candidates", "state", list(STATES), draws_only=draws_only)


def errors_by_source(view: RunView, *, draws_only: bool = False) -> pd.DataFrame:
    """The same by the source that told most of the predicted mean (own, within, cross, environment, features, global).

    Columns: source, and those of `errors_by_state`. Before a group was observed all picks count as global: features
    had nothing to be learned from.
    """
    kinds = """
        SELECT candidate, CASE WHEN d.scored > 0 THEN s.source ELSE 'global' END AS source
        FROM (SELECT candidate, arg_max(source, share) AS source FROM shares GROUP BY candidate) s
        JOIN candidates USING (candidate) JOIN (SELECT decision, scored FROM decisions) d USING (decision)"""
    return _errors(view, kinds, "source", list(reversed(SOURCE_WORDS)), draws_only=draws_only)


def _errors(view: RunView, kinds: str, kind: str, order: list[str], *, draws_only: bool) -> pd.DataFrame:
    """`kinds`: SQL of this module that gives each candidate its `kind`; rows in `order`."""
    return view.query(
        f"""
        SELECT k.{kind}, count(*) AS groups, sqrt(avg((observed_mean - predicted_mean) ** 2)) mean_error,
            sqrt(avg(observed / (scored - 1)) FILTER (scored > 1)) noise, avg(observed_mean - predicted_mean) bias,
            avg(predicted * (scored - 1) / scored) FILTER (scored > 1) predicted_variance,
            avg(observed) observed_variance,
            avg(abs(observed - predicted * (scored - 1) / scored)) FILTER (scored > 1) variance_error,
            avg(c.usable) FILTER (scored > 1) chance, avg(mixed::INTEGER) FILTER (scored > 1) mixed,
            avg((c.usable - mixed::INTEGER) ** 2) FILTER (scored > 1) brier
        FROM outcomes o JOIN candidates c USING (candidate) JOIN ({kinds}) k USING (candidate)
        WHERE o.ended = 'observed' AND scored > 0 AND (NOT $draws OR o.outcome = 'uniform_draw')
        GROUP BY k.{kind} ORDER BY list_position($kinds, k.{kind}), k.{kind}""",
        {"draws": draws_only, "kinds": order},
    )


def transfer_off(view: RunView) -> pd.DataFrame:
    """Relations along which nothing is transferred at the last step.

    Columns: relation (within, cross); step; scored (groups that trust was learned from by then); learned (whether the
    weight 0 was learned: groups were scored, and the settings give trust more than one weight to choose from).
    """
    table, config = trust(view), view.manifest.config
    if table.empty:
        return pd.DataFrame(columns=["relation", "step", "scored", "learned"])
    last, rows = table.iloc[-1], []
    learns = bool(config.get("learn_trust", Config().learn_trust)) and last["scored"] > 0
    for relation in ("within", "cross"):
        if not last[f"tau_{relation}"]:
            grid = config.get(f"tau_{relation}_grid", getattr(Config(), f"tau_{relation}_grid"))
            rows.append((relation, int(last["step"]), int(last["scored"]), learns and len(grid) > 1))
    return pd.DataFrame(rows, columns=["relation", "step", "scored", "learned"])


def source_shares(view: RunView) -> pd.DataFrame:
    """Where the predicted means of the picks came from, step by step.

    Columns: step, source (own, within, cross, environment, features, global), share (mean over the step's picks, in
    [0, 1]; the sources of a step sum to 1).
    """
    return view.query(
        """
        WITH picks AS (SELECT candidate, step, count(*) OVER (PARTITION BY step) n FROM candidates
            WHERE kept_as = 'pick')
        SELECT step, source, sum(share) / any_value(n) AS share FROM shares JOIN picks USING (candidate)
        GROUP BY step, source ORDER BY step, source"""
    )

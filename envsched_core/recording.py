"""Recording: a batch at the moment of picking becomes a Decision, with every reason in it.

Candidates on record: all picks, as many near misses, and a seeded random sample of the rest. Scores of
picks are those at which they were picked; scores of all others are against the finished batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .catalogue import Catalogue
from .config import Config
from .evidence import evidence_of
from .features import PARTS
from .keyed import below, mix
from .ledger import Ledger
from .passes import ranks, top
from .predictor import SHARES, Prediction, Predictor
from .problem import Floats, Indices
from .records import (
    EVIDENCE_STATES,
    OUTCOME_CODES,
    Candidate,
    Decision,
    Evidence,
    QuotaUse,
)
from .selection import Batch, Chosen

__all__ = ["Recorder", "StepScores"]

SAMPLE = 3  # key that tells the sample's hash from the draws'
EVIDENCE_KEPT = {"pick": 8, "near_miss": 3, "sample": 1}
CODE = {name: i for i, name in enumerate(OUTCOME_CODES)}


class StepScores(NamedTuple):
    """What every task scored at one step, for the run folder."""

    step: int
    score: NDArray[np.float32]
    mean: NDArray[np.float32]
    variance: NDArray[np.float32]
    rank: NDArray[np.int32]
    """1-based before any pick; 0 = not available."""
    state: NDArray[np.int8]
    """Index into EVIDENCE_STATES."""
    outcome: NDArray[np.int8]
    """Index into OUTCOME_CODES."""


class Recorder:
    """Writes down one batch; holds references to the scheduler's parts, changes none of them."""

    def __init__(self, catalogue: Catalogue, ledger: Ledger, predictor: Predictor, config: Config) -> None:
        """The parts of one scheduler."""
        self.catalogue, self.ledger, self.predictor, self.config = catalogue, ledger, predictor, config

    def settle(self, batch: Batch, step: int, picks: Sequence[Chosen]) -> Settled:
        """How every task stands once `picks` are in the batch."""
        keys = batch.scores()
        scored = [pick.score for pick in picks if pick.how == "score"]
        cutoff = min(scored) if scored else None
        return Settled(batch, step, keys, cutoff, self._outcomes(batch, step, keys, cutoff))

    def _outcomes(self, batch: Batch, step: int, keys: Floats, cutoff: float | None) -> NDArray[np.int8]:
        """Outcome code [N]; later lines overrule earlier ones."""
        out = np.full(len(keys), CODE["below_cutoff"], dtype=np.int8)
        over = np.flatnonzero(keys >= (math.inf if cutoff is None else cutoff))
        if cutoff is not None and batch.penalty:
            held = batch.penalised()
            out[held[batch.scores_of(held, penalties=False) >= cutoff]] = CODE["too_similar"]
        full = batch.used >= batch.limit
        out[over[full[self.catalogue.env[over]]]] = CODE["quota_full"]
        out[np.flatnonzero(~batch.eligible)] = CODE["unavailable"]
        out[np.flatnonzero(batch.problem.reserve)] = CODE["cooling_down"]  # woken or not
        out[list(self.ledger.by_task)] = CODE["in_flight"]
        for pick in batch.chosen.values():
            out[pick.task] = CODE["uniform_draw" if pick.how == "uniform" else "selected"]
        return out

    # ------------------------------------------------------------------ the record

    def decision(self, settled: Settled, picks: Sequence[Chosen], asked: int, whole: bool, **facts: Any) -> Decision:
        """The Decision of one call; `whole` says that the call was its whole step."""
        batch, step = settled.batch, settled.step
        near, sample, rate = self._others(settled, len(picks))
        chosen = np.array([pick.task for pick in picks], dtype=np.int64)
        tasks = np.concatenate([chosen, near, sample])
        kept = ["pick"] * len(chosen) + ["near_miss"] * len(near) + ["sample"] * len(sample)
        counts = [int(np.count_nonzero(settled.outcome == code)) for code in range(len(OUTCOME_CODES))]
        return Decision(
            step=step,
            seed=self.config.seed,
            asked=asked,
            pool=len(self.catalogue),
            eligible=int(np.count_nonzero(batch.problem.eligible)),
            cutoff=_r(settled.cutoff),
            counts={name: count for name, count in zip(OUTCOME_CODES, counts, strict=True) if count},
            sample_rate=_r(rate),
            certificate=_r(batch.certificate()) if whole else None,
            quotas=self._quotas(batch),
            relaxed=tuple(batch.relaxed),
            candidates=self.candidates(settled, tasks, kept),
            **facts,
        )

    def _others(self, settled: Settled, n: int) -> tuple[Indices, Indices, float]:
        """Near misses (best first), the random sample of the rest, and its rate."""
        batch = settled.batch
        height = np.where(batch.eligible, settled.keys, -math.inf)
        if batch.penalty:  # a task held back by similarity is a near miss at its unpenalised height
            height[batch.penalised()] += list(batch.penalty.values())
        left = int(np.count_nonzero(batch.eligible))
        near = top(height, min(math.ceil(self.config.near_misses * n), left))
        rate = min(1.0, self.config.sample * n / max(left - len(near), 1))
        drawn = below(mix(batch.problem.hashes, SAMPLE, batch.position - n), rate) & batch.eligible
        drawn[near] = False
        return near, np.flatnonzero(drawn), rate

    def _quotas(self, batch: Batch) -> tuple[QuotaUse, ...]:
        envs = np.flatnonzero((batch.used > 0) | (batch.block_count > 0) | (batch.floor > 0))
        return tuple(
            QuotaUse(
                env=self.catalogue.env_names[e],
                limit=int(batch.limit[e]),
                floor=int(batch.floor[e]),
                used=int(batch.used[e]),
                price=_r(float(batch.price[e])),
                blocked=int(batch.block_count[e]),
            )
            for e in envs
        )

    def candidates(self, settled: Settled, tasks: Indices, kept: Sequence[str]) -> tuple[Candidate, ...]:
        """Full records of `tasks` [M]."""
        if not len(tasks):
            return ()
        sources, moments = self.predictor.sources(tasks), self.predictor.moments
        prediction = self.predictor.predict(tasks)
        low, high = prediction.interval()
        told = (prediction.mean, prediction.variance, prediction.sd, low, high)
        rows = _rounded(np.column_stack([*told, prediction.usable(self.config.group_size), prediction.n]))
        most = np.array([EVIDENCE_KEPT[kind] for kind in kept])
        columns = (
            tasks.tolist(),
            kept,
            self._scored(settled, tasks),
            rows,
            _rounded(sources / sources.sum(axis=1, keepdims=True)),
            self.states(tasks).tolist(),
            settled.ranks(tasks).tolist(),
            moments.groups[tasks].tolist(),
            moments.last_step[tasks].tolist(),
            self._costs(tasks),
            self._logits(tasks, kept),
            evidence_of(self.predictor, self.catalogue, tasks, most, [row[-1] for row in rows]),
        )
        return tuple(self._candidate(settled, _Facts._make(facts)) for facts in zip(*columns, strict=True))

    def _scored(self, settled: Settled, tasks: Indices) -> list[tuple[float, dict[str, float]]]:
        """Score and terms of each of `tasks` [M]."""
        batch = settled.batch
        batch.look_up(tasks)
        picks = [batch.chosen.get(task) for task in tasks.tolist()]
        terms = [pick.terms if pick else batch.terms_of(task) for task, pick in zip(tasks.tolist(), picks, strict=True)]
        keys = settled.keys[tasks].tolist()
        scores = [pick.score if pick else key for pick, key in zip(picks, keys, strict=True)]
        values = np.round([*scores, *(value for some in terms for value in some.values())], 12).tolist()
        rest = iter(values[len(scores) :])
        return [(score, {name: next(rest) for name in some}) for score, some in zip(values, terms, strict=False)]

    def _candidate(self, settled: Settled, facts: _Facts) -> Candidate:
        task, batch = facts.task, settled.batch
        spec, pick = self.catalogue.tasks[task], batch.chosen.get(task)
        score, terms = facts.scored
        mean, variance, sd, low, high, usable, rollouts = facts.numbers
        return Candidate(
            env=spec.env,
            task=spec.task,
            kept_as=facts.kept,  # type: ignore[arg-type]  # one of the literals
            outcome=OUTCOME_CODES[settled.outcome[task]],
            position=pick.position if pick else None,
            pick_id=self.ledger.by_task.get(task) if pick else None,
            score=score,
            rank=facts.rank,
            terms=terms,
            mean=mean,
            variance=variance,
            sd=sd,
            low=low,
            high=high,
            usable=usable,
            shares=dict(zip(SHARES, facts.shares, strict=True)),
            rollouts=rollouts,
            state=EVIDENCE_STATES[facts.state],  # type: ignore[arg-type]  # one of the literals
            groups=facts.groups,
            last_step=facts.last if facts.last >= 0 else None,
            details={**self._details(settled, task, pick), **facts.costs, **facts.logits},
            evidence=facts.evidence,
        )

    def _details(self, settled: Settled, task: int, pick: Chosen | None) -> dict[str, float | str]:
        """The numbers behind an outcome."""
        batch, env = settled.batch, self.catalogue.env[task]
        outcome = OUTCOME_CODES[settled.outcome[task]]
        out: dict[str, float | str] = {}
        if pick:
            out["how"] = pick.how
        elif settled.cutoff is not None:
            out["margin"] = _r(float(settled.keys[task]) - settled.cutoff)
        if outcome == "quota_full" or task in batch.blocked:
            out["quota_limit"], out["quota_used"] = float(batch.limit[env]), float(batch.used[env])
        if task in batch.blocked:
            out["blocked_at"] = float(batch.blocked[task][0])
        if task in batch.penalty and not pick:
            out.update(self._most_similar(batch, task))
        if outcome == "cooling_down":
            out["rests_until"] = float(self.ledger.last_pick[task] + self.ledger.cool_down + 1)
        if outcome == "in_flight":
            out["open_pick"] = self.ledger.by_task.get(task, "")  # it may have ended since
        if outcome == "unavailable":
            out["reason"] = self._reason(task)
        return out

    def _costs(self, tasks: Indices) -> list[dict[str, float]]:
        """What a group of each of `tasks` [M] is expected to cost beside the usual; empty where nothing is known."""
        cost = self.predictor.expected_cost(tasks)
        if cost is None:
            return [{}] * len(tasks)
        usual = _r(cost.usual)
        return [{"expected_cost": _r(amount), "usual_cost": usual} for amount in cost.group]

    def _logits(self, tasks: Indices, kept: Sequence[str]) -> list[dict[str, float]]:
        """The logit that features predict for each of `tasks` [M], by kind of feature; picks and near misses only."""
        regression, point = self.predictor.regression, self.predictor.point
        out: list[dict[str, float]] = [{} for _ in tasks]
        told = [i for i, kind in enumerate(kept) if kind != "sample"]
        if regression is None or point.features_share == 0.0 or not told:
            return out
        for i, parts in zip(told, _rounded(regression.split(point.h, tasks[told])), strict=True):
            out[i] = {f"logit_{name}": value for name, value in zip(PARTS, parts, strict=True)}
        return out

    def _most_similar(self, batch: Batch, task: int) -> dict[str, float | str]:
        others, similarity = batch.problem.similar(task)
        picked = [(float(s), int(o)) for o, s in zip(others, similarity, strict=True) if int(o) in batch.chosen]
        if not picked:
            return {}
        strongest, other = max(picked)
        return {
            "similar_to": self.catalogue.tasks[other].key,
            "similarity": _r(strongest),
            "similar_position": float(batch.chosen[other].position),
        }

    def _reason(self, task: int) -> str:
        c, spec = self.config, self.catalogue.tasks[task]
        if spec.key in c.exclude_tasks or spec.env in c.exclude_environments:
            return "it is excluded by the config"
        if self.ledger.drawn[task] >= self.ledger.limit[task]:
            return "all its recorded groups have been drawn"
        return "its pick of this step was released"

    # ------------------------------------------------------------------ every task

    def states(self, tasks: Indices | None = None) -> NDArray[np.int8]:
        """Evidence state of `tasks` [M] (all N when None) as an index into EVIDENCE_STATES."""
        at: Any = slice(None) if tasks is None else tasks
        p, m = self.predictor, self.predictor.moments
        point = p.point
        near = point.tau_within * p.spread["wn"][point.h][at] + point.tau_cross * p.spread["xn"][point.h][at] > 0
        out: NDArray[np.int8] = (m.env_n[point.h] > 0)[m.env[at]].astype(np.int8)
        out[near] = 2
        out[m.n[point.h][at] > 0] = 3
        return out

    def scores(self, settled: Settled) -> StepScores:
        """The arrays of one step, picks at the score at which they were picked."""
        prediction: Prediction = self.predictor.predict()
        score = settled.keys.astype(np.float32)
        for pick in settled.batch.chosen.values():
            score[pick.task] = pick.score
        return StepScores(
            step=settled.step,
            score=score,
            mean=prediction.mean.astype(np.float32),
            variance=prediction.variance.astype(np.float32),
            rank=settled.all_ranks(),
            state=self.states(),
            outcome=settled.outcome,
        )


class _Facts(NamedTuple):
    """What is written of one candidate; computed for all candidates together."""

    task: int
    kept: str
    scored: tuple[float, dict[str, float]]
    """Score and terms."""
    numbers: list[float]
    """Mean, variance, sd, low, high, usable, rollouts."""
    shares: list[float]
    state: int
    rank: int
    groups: int
    last: int
    costs: dict[str, float]
    """Expected and usual cost; empty without."""
    logits: dict[str, float]
    """What each kind of feature adds to the predicted logit; empty without."""
    evidence: tuple[Evidence, ...]


class Settled(NamedTuple):
    """A batch and how every task stands against it."""

    batch: Batch
    step: int
    keys: Floats
    """Score [N] against the finished batch."""
    cutoff: float | None
    outcome: NDArray[np.int8]

    def all_ranks(self) -> NDArray[np.int32]:
        """Rank [N] among the available tasks before any pick; 0 = not available."""
        return self.ranks(np.arange(len(self.keys)))

    def ranks(self, tasks: Indices) -> NDArray[np.int32]:
        """The same of `tasks` [M]."""
        eligible, first = self.batch.problem.eligible, self.batch.initial
        known, rank = eligible[tasks], np.zeros(len(tasks), dtype=np.int32)
        if known.any():
            rank[known] = ranks(first[tasks[known]], first if eligible.all() else first[eligible])
        return rank


def _rounded(array: Floats) -> list[list[float]]:
    """Rows of plain floats to 12 decimals."""
    rows: list[list[float]] = np.round(array, 12).tolist()
    return rows


def _r(value: Any) -> Any:
    """A float to 12 decimals, so that records are short and sums still exact to 1e-9; None stays."""
    return None if value is None else round(float(value), 12)

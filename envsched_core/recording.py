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
from .keyed import below
from .ledger import Ledger
from .predictor import SHARES, Predictor
from .problem import Floats, Indices
from .records import EVIDENCE_STATES, OUTCOME_CODES, Candidate, Decision, QuotaUse
from .selection import Batch, Chosen
from .settled import CODE, Settled

__all__ = ["Recorder", "StepScores"]

SAMPLE = 3  # key that tells the sample's hash from the draws'
LOGITS = tuple(f"logit_{name}" for name in PARTS)
ABSENT = {CODE["cooling_down"], CODE["in_flight"], CODE["unavailable"]}
EVIDENCE_KEPT = {"pick": 8, "near_miss": 3, "sample": 1}


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
        scored = [pick.score for pick in picks if pick.how == "score"]
        return Settled(batch, step, min(scored, default=None), self.ledger.by_task)

    # ------------------------------------------------------------------ the record

    def decision(self, settled: Settled, picks: Sequence[Chosen], asked: int, whole: bool, **facts: Any) -> Decision:
        """The Decision of one call; `whole` says that the call was its whole step."""
        batch, step = settled.batch, settled.step
        near, sample, rate = self._others(settled, len(picks))
        chosen = np.array([pick.task for pick in picks], dtype=np.int64)
        tasks = np.concatenate([chosen, near, sample])
        kept = ["pick"] * len(chosen) + ["near_miss"] * len(near) + ["sample"] * len(sample)
        return Decision(
            step=step,
            seed=self.config.seed,
            asked=asked,
            pool=len(self.catalogue),
            eligible=int(np.count_nonzero(batch.problem.eligible)),
            cutoff=_r(settled.cutoff),
            counts=settled.counts(),
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
        near = settled.nearest(math.ceil(self.config.near_misses * n))
        left = int(np.count_nonzero(batch.eligible))
        rate = min(1.0, self.config.sample * n / max(left - len(near), 1))
        drawn = below(batch.problem.hashes, rate, SAMPLE, batch.position - n) & batch.eligible
        drawn[near] = False
        return near, np.flatnonzero(drawn), rate

    def _quotas(self, batch: Batch) -> tuple[QuotaUse, ...]:
        envs = np.flatnonzero((batch.used > 0) | (batch.block_count > 0) | (batch.floor > 0))
        columns = (batch.limit, batch.floor, batch.used, np.round(batch.price, 12), batch.block_count)
        names = [self.catalogue.env_names[env] for env in envs.tolist()]
        return tuple(map(QuotaUse, names, *(column[envs].tolist() for column in columns)))

    def candidates(self, settled: Settled, tasks: Indices, kept: Sequence[str]) -> tuple[Candidate, ...]:
        """Full records of `tasks` [M], column by column: a call for every field of every candidate would cost more."""
        if not len(tasks):
            return ()
        batch, moments, index = settled.batch, self.predictor.moments, tasks.tolist()
        specs = [self.catalogue.tasks[task] for task in index]
        picks = [batch.chosen.get(task) for task in index]
        keys, outcomes = settled.keys(tasks), settled.outcomes(tasks)
        scores = [key if pick is None else pick.score for pick, key in zip(picks, keys.tolist(), strict=True)]
        prediction = self.predictor.predict(tasks)
        usable = prediction.usable(self.config.group_size)
        rollouts = _rounded(prediction.n)
        most = np.array([EVIDENCE_KEPT[kind] for kind in kept])
        columns = (
            [spec.env for spec in specs],
            [spec.task for spec in specs],
            kept,
            [OUTCOME_CODES[code] for code in outcomes.tolist()],
            [pick.position if pick else None for pick in picks],
            [self.ledger.by_task.get(pick.task) if pick else None for pick in picks],
            _rounded(np.array(scores)),
            settled.ranks(tasks).tolist(),
            batch.terms_of(tasks),
            *map(_rounded, (prediction.mean, *prediction.variance_and_sd(), *prediction.interval(), usable)),
            self._shares(tasks),
            rollouts,
            [EVIDENCE_STATES[state] for state in self.states(tasks).tolist()],
            moments.groups[tasks].tolist(),
            [last if last >= 0 else None for last in moments.last_step[tasks].tolist()],
            self._details(settled, tasks, picks, keys, outcomes, kept),
            evidence_of(self.predictor, self.catalogue, tasks, most, rollouts),
        )
        return tuple(map(Candidate, *columns))

    def _shares(self, tasks: Indices) -> list[dict[str, float]]:
        """Parts of the predicted mean of `tasks` [M]."""
        sources = self.predictor.sources(tasks)
        rows = _rounded(sources / sources.sum(axis=1, keepdims=True))
        names = SHARES  # zip without its check: this is done for every candidate
        return [dict(zip(names, row)) for row in rows]  # noqa: B905

    def _details(
        self,
        settled: Settled,
        tasks: Indices,
        picks: Sequence[Chosen | None],
        keys: Floats,
        outcomes: NDArray[np.int8],
        kept: Sequence[str],
    ) -> list[dict[str, float | str]]:
        """The numbers behind the outcomes, what a group is expected to cost, and the logits that features predict."""
        batch, cutoff, index = settled.batch, settled.cutoff, tasks.tolist()
        margins = [None] * len(tasks) if cutoff is None else _rounded(keys - cutoff)
        out: list[dict[str, float | str]] = [
            {"how": pick.how} if pick else {} if margin is None else {"margin": margin}
            for pick, margin in zip(picks, margins, strict=True)
        ]
        blocked = {i for i, task in enumerate(index) if task in batch.blocked}
        for i in sorted(blocked.union(np.flatnonzero(outcomes == CODE["quota_full"]).tolist())):
            env = self.catalogue.env[index[i]]
            out[i]["quota_limit"], out[i]["quota_used"] = float(batch.limit[env]), float(batch.used[env])
            if i in blocked:
                out[i]["blocked_at"] = float(batch.blocked[index[i]][0])
        held = [i for i, task in enumerate(index) if picks[i] is None and task in batch.penalty]
        for i, some in zip(held, self._most_similar(batch, tasks[held]), strict=True):
            out[i].update(some)
        for i, outcome in enumerate(outcomes.tolist()):
            if outcome in ABSENT:
                out[i].update(self._absence(index[i], outcome))
        self._add_costs(out, tasks)
        self._add_logits(out, tasks, kept)
        return out

    def _absence(self, task: int, outcome: int) -> dict[str, float | str]:
        """Why a task is not there to be picked."""
        if outcome == CODE["cooling_down"]:
            return {"rests_until": float(self.ledger.last_pick[task] + self.ledger.cool_down + 1)}
        if outcome == CODE["in_flight"]:
            return {"open_pick": self.ledger.by_task.get(task, "")}  # it may have ended since
        return {"reason": self._reason(task)}

    def _most_similar(self, batch: Batch, tasks: Indices) -> list[dict[str, float | str]]:
        """The pick that each of `tasks` [M] resembles most."""
        strongest: list[tuple[float, int]] = [(0.0, -1)] * len(tasks)
        for reach, others, similarity in batch.problem.similar(tasks):
            rows = np.repeat(np.arange(len(tasks)), reach)
            for row, other, how in zip(rows.tolist(), others.tolist(), similarity.tolist(), strict=True):
                if other in batch.chosen:
                    strongest[row] = max(strongest[row], (how, other))
        return [
            {
                "similar_to": self.catalogue.tasks[other].key,
                "similarity": _r(how),
                "similar_position": float(batch.chosen[other].position),
            }
            if other >= 0
            else {}
            for how, other in strongest
        ]

    def _add_costs(self, details: Sequence[dict[str, float | str]], tasks: Indices) -> None:
        """What a group of each of `tasks` [M] is expected to cost beside the usual; nothing where nothing is known."""
        cost = self.predictor.expected_cost(tasks)
        if cost is not None:
            usual = _r(cost.usual)
            for some, amount in zip(details, cost.group, strict=True):
                some["expected_cost"], some["usual_cost"] = _r(amount), usual

    def _add_logits(self, details: Sequence[dict[str, float | str]], tasks: Indices, kept: Sequence[str]) -> None:
        """The logit that features predict for each of `tasks` [M], by kind of feature; picks and near misses only."""
        regression, point = self.predictor.regression, self.predictor.point
        told = [i for i, kind in enumerate(kept) if kind != "sample"]
        if regression is None or point.features_share == 0.0 or not told:
            return
        for i, parts in zip(told, _rounded(regression.split(point.h, tasks[told])), strict=True):
            details[i].update(zip(LOGITS, parts, strict=True))

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
        prediction, everyone = self.predictor.predict(), np.arange(len(self.catalogue))
        score = settled.keys(everyone).astype(np.float32)
        for pick in settled.batch.chosen.values():
            score[pick.task] = pick.score
        return StepScores(
            step=settled.step,
            score=score,
            mean=prediction.mean.astype(np.float32),
            variance=prediction.variance.astype(np.float32),
            rank=settled.ranks(everyone),
            state=self.states(),
            outcome=settled.all_outcomes(),
        )


def _rounded(array: Floats) -> list[Any]:
    """Plain floats to 12 decimals: numbers of a column, or its rows."""
    return list(np.round(array, 12).tolist())


def _r(value: Any) -> Any:
    """A float to 12 decimals, so that records are short and sums still exact to 1e-9; None stays."""
    return None if value is None else round(float(value), 12)

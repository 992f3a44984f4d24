"""EnvSched behind the Scheduler contract.

    register(tasks)            may be called again: new tasks join mid-run
    ask(n, step=...)           the next picks; repeated asks within one step share one quota ledger
    observe(results)           the only way evidence enters; any order, any delay, twice counts once
    release(pick_ids, reason)  a pick that will give no result
    explain(step, task)        why, or why not
    metrics(), state_dict(), load_state_dict()

`ask` changes nothing but the ledger of open picks. Results are buffered and taken in when a later step is
first asked for: sorted by group id and scored together against the state before, so their order cannot
matter. No clock and no stream of random numbers: same tasks, config, seed and calls, same decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from envsched_core.catalogue import Catalogue
from envsched_core.config import Config, digest
from envsched_core.costs import told
from envsched_core.errors import ContractError, UnknownTaskError
from envsched_core.explanation import explanation
from envsched_core.graph import DualRelationGraph, GraphBuilder, Traces
from envsched_core.keyed import Hashes, gumbel, mix, unit
from envsched_core.ledger import Ledger
from envsched_core.moments import Discount, Floats, is_flat
from envsched_core.passes import blocks
from envsched_core.placebo import shuffled
from envsched_core.predictor import Predictor
from envsched_core.problem import Problem
from envsched_core.propagation import Reached, reached
from envsched_core.recording import Recorder, StepScores
from envsched_core.records import Decision, Explanation, GroupResult, TaskSpec
from envsched_core.selection import Batch
from envsched_core.settled import Settled

from .intake import checked_step, reason_of, sound
from .protocol import Worth
from .quotas import Quotas
from .state import load, save
from .worth import worth_of

__all__ = ["EnvSched"]

TIE_KEY, GUMBEL_KEY = 10, 11


class EnvSched:
    """The scheduler: predicted variance, uncertainty and coverage, under quotas and a similarity penalty.

    Baselines subclass it and replace `_worth`; everything else (availability, quotas, ledger, records) is
    shared, so that a comparison compares the choice and nothing else.
    """

    fills_batch = False  # True: benches discard flat groups and ask again until the batch is full (baselines)

    def __init__(self, config: Config | None = None, *, name: str = "envsched") -> None:
        """`config`: all knobs; the defaults when None."""
        self.name = name
        self.config = config or Config()
        c = self.config
        self.catalogue = Catalogue()
        self.ledger = Ledger(expire_after=c.expire_after, dedupe_steps=c.dedupe_steps, cool_down=c.cool_down)
        self.predictor = Predictor(c)
        self.traces = Traces()
        self.builder = GraphBuilder(c)
        self.built: DualRelationGraph | None = None  # as it was built; a placebo uses another
        self.quotas = Quotas(c, self.catalogue)
        self.recorder = Recorder(self.catalogue, self.ledger, self.predictor, c)
        self.visit_clock = Discount([c.coverage_half_life])
        self.visits = np.zeros(0)
        self.step = 0
        self.started = False
        self.counts: Counter[str] = Counter()
        self._pending: list[GroupResult] = []
        self._fresh_traces = 0
        self._batch: Batch | None = None
        self._settled: Settled | None = None
        self._decisions: list[Decision] = []
        self._expired: tuple[str, ...] = ()
        self._digest = digest(c)
        self._seeded: Hashes = np.zeros(0, dtype=np.uint64)  # of every task, with the seed

    @property
    def graph(self) -> DualRelationGraph | None:
        """The graph in use; None until tasks are registered or when no part of the config uses one."""
        return self.predictor.graph

    @property
    def uses_graph(self) -> bool:
        """Whether any knob in force reads the graph."""
        c = self.config
        return max(*c.tau_within_grid, *c.tau_cross_grid, c.weight_similarity, c.weight_pattern) > 0

    @property
    def values(self) -> Floats:
        """What a pick of each task [N] was worth when the latest step began, before coverage and penalty.

        Raises:
            ContractError: no step was asked for yet.
        """
        if self._batch is None:
            raise ContractError("values: no step was asked for yet")
        return self._batch.problem.value

    # ------------------------------------------------------------------ the contract

    def register(self, tasks: Sequence[TaskSpec]) -> None:
        """Make tasks known; new ones join, known keys are described anew. The graph follows.

        Raises:
            ContractError: a task has no environment or no id.
        """
        fresh = self.catalogue.add(tasks)
        for task in tasks:
            if (i := self.catalogue.index[task.key]) < len(self.ledger.limit):
                self.ledger.set_limit(i, task.draws)
        self.ledger.grow(self.catalogue.tasks[i].draws for i in fresh)
        n = len(self.catalogue)
        self.visits = np.concatenate([self.visits, np.zeros(len(fresh))])
        self.traces.grow(n)
        self.predictor.grow(self.catalogue)
        self._seeded = mix(self.catalogue.hashes, self.config.seed)
        if self.uses_graph and n:
            self._rebuild()
        if self._batch is not None:
            self._reopen()

    def ask(self, n: int, *, step: int, policy_version: str | None = None) -> Decision:
        """Choose up to `n` tasks for `step`.

        Raises:
            ContractError: `n` or `step` is no integer, `n` is negative, or `step` lies before one asked for.
        """
        step, n = checked_step(step), checked_step(n)
        if n < 0:
            raise ContractError(f"ask: n must be 0 or more, got {n}")
        if self.started and step < self.step:
            raise ContractError(f"ask: step {step} lies before step {self.step}, which was asked for already")
        if not self.started or step > self.step:
            self._begin(step)
        batch = self._batch = self._batch or Batch(self._problem())
        self._widen_quotas(batch, batch.position + n)
        whole = batch.position == 0
        batch.relaxed.clear()
        picks = batch.choose(n)
        settled = self._settled = self.recorder.settle(batch, step, picks)
        self.ledger.pick([pick.task for pick in picks], step, [pick.position for pick in picks])
        decision = self.recorder.decision(
            settled,
            picks,
            n,
            whole,
            policy_version=policy_version,
            scheduler=self.name,
            config_digest=self._digest,
            graph_version=self.graph.version if self.graph else 0,
            trust=self.predictor.trust(),
            expired=self._expired,
        )
        self._expired = ()
        self._decisions.append(decision)
        return decision

    def observe(self, results: Iterable[GroupResult]) -> None:
        """Take in groups; nothing a result holds raises, everything odd is counted in `metrics`."""
        for given in results:
            result = sound(given)
            if result is None:
                self.counts["observe/malformed"] += 1
                continue
            # A result from the future counts as of now.
            step = self.step if result.step is None else min(result.step, self.step)
            if result.key not in self.catalogue.index:
                self.counts["observe/unknown_task"] += 1
            elif step < self.step - self.config.dedupe_steps:
                self.counts["observe/too_old"] += 1
            elif self.ledger.first_time(result.group_id, self.step):
                self._accept(msgspec.structs.replace(result, step=step))

    def _accept(self, result: GroupResult) -> None:
        # At most one pick of a task is open; an id that names another task's pick is a slip, not an end.
        pick_id = self.ledger.by_task.get(self.catalogue.index[result.key])
        if result.pick_id is not None and result.pick_id != pick_id:
            self.counts["observe/other_pick"] += 1
        if pick_id is None:
            self.counts["observe/unasked"] += 1
        else:
            self.ledger.close(pick_id, "observed")
        self.counts["rewards/missing"] += result.missing
        self.counts["groups/observed"] += 1
        self.counts["groups/empty"] += not result.rewards
        self.counts["rollouts/observed"] += len(result.rewards) + result.missing
        if self.config.cost:
            self.counts[f"costs/{told(result.cost, self.config.cost)}"] += 1
        if len(result.rewards) > 1:
            flat = is_flat(result.rewards, self.config.min_std, self.config.min_range)
            self.counts["groups/flat" if flat else "groups/mixed"] += 1
        self._pending.append(result)

    def release(self, pick_ids: Iterable[str], reason: str) -> None:
        """End open picks without evidence: their quota and coverage are free again."""
        for pick_id in (pick_ids,) if isinstance(pick_ids, str) else pick_ids:
            pick = self.ledger.close(pick_id, "released")
            if pick is None:
                continue
            self.counts[reason_of(str(reason), self.counts)] += 1
            if self._batch is not None and pick.step == self.step:
                self._batch.drop(pick.task)

    def explain(self, step: int, task: str) -> Explanation:
        """Why the task was or was not picked at the latest step.

        Raises:
            UnknownTaskError: no such task, or `step` is not the latest step asked for.
        """
        index = self.catalogue.position(task)
        for decision in reversed(self._decisions if step == self.step else ()):
            for candidate in decision.candidates:
                if candidate.key == task and (candidate.kept_as == "pick" or decision is self._decisions[-1]):
                    return explanation(candidate, decision, "recorded")
        if self._settled is None or step != self.step:
            raise UnknownTaskError(f"step {step} is not in memory; `envsched explain RUN --step {step}` reads any step")
        (candidate,) = self.recorder.candidates(self._settled, np.array([index]), ["near_miss"])
        return explanation(candidate, self._decisions[-1], "re-derived")

    def scores(self) -> StepScores | None:
        """What every task scored at the latest step; None before the first."""
        return self.recorder.scores(self._settled) if self._settled is not None else None

    # ------------------------------------------------------------------ the step

    def _begin(self, step: int) -> None:
        """Close the step before: take in its results, let old picks expire, rebuild the graph if due."""
        self._take_in()
        self.predictor.advance(step)
        factor = self.visit_clock.advance(step)
        if factor is not None:
            self.visits *= factor[0]
        self.step, self.started = step, True
        self._batch, self._settled, self._decisions = None, None, []
        self._expired = tuple(pick_id for pick_id, _ in self.ledger.expire(step))
        if self.uses_graph and self.builder.due(self._fresh_traces, len(self.catalogue)):
            self._rebuild()

    def _take_in(self) -> None:
        results = sorted(self._pending, key=lambda r: r.group_id)
        self._pending = []
        moments, index = self.predictor.moments, self.catalogue.index
        tasks = np.array([index[r.key] for r in results], dtype=np.int64)
        steps = np.array([r.step or 0 for r in results], dtype=np.int64)
        np.add.at(self.visits, tasks, self.visit_clock.weight(steps)[0])
        scored = [r for r in results if r.rewards]
        asked = ((int(self.catalogue.env[index[r.key]]), r.env, r.rewards) for r in scored)
        for env, a, b in self.predictor.fit_ranges(asked):
            self.traces.remap(self.catalogue.env == env, a, b)
        groups = [moments.group(index[r.key], r, r.step or 0) for r in scored]
        self.predictor.observe(groups)
        for group, result in zip(groups, scored, strict=True):
            self.traces.add(group.task, group.mapped, result.calls)
        self._fresh_traces += len(scored)
        self._learn(scored)

    def _learn(self, results: Sequence[GroupResult]) -> None:
        """Hook for baselines with statistics of their own."""

    def _rebuild(self) -> None:
        self.built, self._fresh_traces = self.builder.build(self.catalogue.tasks, self.catalogue.env, self.traces), 0
        self.predictor.set_graph(self.as_used(self.built))

    def as_used(self, graph: DualRelationGraph) -> DualRelationGraph:
        """The graph, or the placebo of it that the config asks for."""
        return shuffled(graph, self.catalogue.env, self.catalogue.hashes, self.config)

    def _reopen(self) -> None:
        """Tasks joined in mid-step: the batch goes on over the larger pool, its picks kept."""
        old = self._batch
        if old is None:
            return
        self._batch, self._settled = Batch(self._problem()), None
        picks = [(pick.task, pick.position, pick.how) for pick in old.chosen.values()]
        self._batch.carry(picks, sorted(old.dropped), old.position)

    # ------------------------------------------------------------------ the problem

    def _problem(self) -> Problem:
        c = self.config
        worth = self._worth()
        barred = self.ledger.in_flight() | self.ledger.exhausted()
        barred |= self.catalogue.mask(c.exclude_tasks, c.exclude_environments)
        resting = self.ledger.resting(self.step)
        pinned = [i for key in c.pin_tasks if (i := self.catalogue.index.get(key, -1)) >= 0]
        hashes = mix(self._seeded, self.step)
        terms, fixed = worth.settled()
        return Problem(
            terms=terms,
            fixed=fixed,
            value=worth.value,
            cells=worth.cells,
            env=self.catalogue.env,
            limit=self._limits(c.batch_size),
            floor=self.quotas.floors(),
            eligible=~barred & ~resting,
            reserve=resting & ~barred,
            pinned=pinned,
            similar=self._similar,
            weight_similarity=c.weight_similarity if self.graph is not None else 0.0,
            factor=self._draws(hashes) if c.temperature > 0 else None,
            hashes=hashes,
            tie=unit(hashes, TIE_KEY),
            uniform_share=c.uniform_share,
            seed_hash=mix(np.zeros(1, dtype=np.uint64), c.seed, self.step),
            size=c.batch_size,
            env_names=self.catalogue.env_names,
        )

    def _draws(self, hashes: Hashes) -> Floats:
        """exp(temperature x Gumbel) [N], the Gumbel numbers shifted so that the last of a batch's best is about 0.

        The shift is one factor on all scores: it changes no choice and keeps scores in the unit of the gain.
        """
        out = gumbel(hashes, GUMBEL_KEY)
        shift = math.log(max(len(hashes) / self.config.batch_size, 1.0))
        for part in blocks(len(out)):
            some = out[part]
            some -= shift
            some *= self.config.temperature
            np.exp(some, out=some)
        return out

    def _limits(self, size: int) -> NDArray[np.int64]:
        """Most picks of each environment [E] in a step of `size` picks."""
        return self.quotas.limits(size)

    def _widen_quotas(self, batch: Batch, total: int) -> None:
        """A step that asks for more than `batch_size` has quotas to match."""
        if total > self.config.batch_size:
            grown = np.maximum(batch.limit, self._limits(total))
            if np.any(grown > batch.limit):
                batch.limit = grown
                batch.blocked.clear()
                batch._fill()

    def _similar(self, tasks: NDArray[np.int64]) -> list[Reached]:
        graph = self.graph
        return [] if graph is None else [reached(graph.within, tasks), reached(graph.cross, tasks)]

    def _worth(self) -> Worth:
        p = self.predictor
        return worth_of(self.config, p.predict, self.catalogue.env, self.graph, self._visits(), cost=p.expected_cost())

    def _visits(self) -> Floats:
        """Groups rolled out per task [N], discounted to now, open picks of earlier steps included."""
        count: Floats = self.visits * self.visit_clock.scale()[0]
        earlier = [pick.task for pick in self.ledger.open.values() if pick.step < self.step]
        np.add.at(count, np.array(earlier, dtype=np.int64), 1.0)
        return count

    # ------------------------------------------------------------------ metrics and state

    def metrics(self) -> dict[str, float]:
        """Counters and gauges, names separated by slashes."""
        trust, ledger = self.predictor.trust(), self.ledger
        gauges = {
            "tasks/registered": len(self.catalogue),
            "tasks/seen": int(np.count_nonzero(self.predictor.moments.groups)),
            "environments/registered": len(self.catalogue.env_names),
            "picks/open": len(ledger.open),
            "results/pending": len(self._pending),
            "rewards/clipped": self.predictor.moments.clipped,
            "rewards/ranges_widened": len(self.predictor.moments.widened),
            "trust/kappa_env": trust.kappa_env,
            "trust/features_share": trust.features_share,
            "trust/tau_within": trust.tau_within,
            "trust/tau_cross": trust.tau_cross,
            "trust/half_life": trust.half_life,
            "graph/version": self.graph.version if self.graph else 0,
        }
        counted = {f"picks/{name}": count for name, count in ledger.counts.items()}
        return {name: float(value) for name, value in {**counted, **self.counts, **gauges}.items()}

    def state_dict(self) -> dict[str, Any]:
        """Plain data and arrays, no pickle; leads with its format number."""
        return save(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Carry on from a saved state. Register the tasks first; those that vanished are counted and dropped.

        Raises:
            ContractError: the state is of a newer format or of another scheduler.
        """
        load(self, state)

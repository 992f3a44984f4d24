"""Predictor: past rewards, carried along both relations, become each task's predicted reward variance.

Evidence is counted in equivalent rollouts (Beta pseudo-counts). For task i, with sums discounted to now:

    a_i  = s_i + tau_w sum_j W_ij s_j + tau_x sum_j X_ij s_j + kappa_e m_e + kappa_0 m_0
    n^_i = n_i + tau_w sum_j W_ij n_j + tau_x sum_j X_ij n_j + kappa_e     + kappa_0
    mean     f_i = a_i / n^_i          a convex combination: every source has its exact share
    variance v_i = phi_e a_i b_i / (n^_i (n^_i + 1)),  b_i = n^_i - a_i

The mean is propagated and the variance derived: for rewards in [0, 1] a group says much about the mean
and little about the variance. kappa_e is a learned multiple of the environment's own concentration
(`RewardMoments.concentration`): in some environments the mean says much about each task, in others little; on
replays of public logs this was worth more than any other term. Trust (that multiple, tau_w, tau_x, half-life)
is a point on a small grid; each point earns the Beta-binomial log likelihood of every incoming group,
predicted from the state before the step, and the best (with hysteresis) serves the next decision. All sums
are updated along the edges of the tasks just observed, never by a pass over N.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .config import Config
from .graph import DualRelationGraph
from .moments import Floats, Group, RewardMoments
from .records import Trust

__all__ = ["SHARES", "Environments", "Point", "Prediction", "Predictor"]

SHARES = ("own", "within", "cross", "environment", "global")
Indices = NDArray[np.int64]


class Point(NamedTuple):
    """One setting of trust."""

    h: int
    """Index of the half-life."""
    kappa_env: float
    tau_within: float
    tau_cross: float


class Prediction(NamedTuple):
    """What is expected of tasks [M]."""

    a: Floats
    """Pseudo-successes, > 0."""
    n: Floats
    """Equivalent rollouts, > a."""
    phi: Floats
    """Dispersion of the task's environment, in [0, 1]."""
    mixing: Floats
    """Mixed groups seen over expected in the task's environment, > 0."""

    @property
    def mean(self) -> Floats:
        """Expected mean reward [M], in (0, 1)."""
        return self.a / self.n

    @property
    def variance(self) -> Floats:
        """Expected within-task reward variance [M], in [0, 1/4]: phi E[p (1 - p)] under Beta(a, n - a)."""
        return self.phi * self.a * (self.n - self.a) / (self.n * (self.n + 1.0))

    @property
    def sd(self) -> Floats:
        """Standard deviation of the variance prediction [M]: phi sqrt(E[(pq)^2] - E[pq]^2), exact for a Beta."""
        a, b, n = self.a, self.n - self.a, self.n
        first = a * b / (n * (n + 1.0))
        second = first * (a + 1.0) * (b + 1.0) / ((n + 2.0) * (n + 3.0))
        return self.phi * np.sqrt(np.maximum(second - first**2, 0.0))

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Central interval of the mean [M], [M] by Beta quantiles."""
        tail, b = (1.0 - level) / 2.0, self.n - self.a
        low, high = special.betaincinv(self.a, b, tail), special.betaincinv(self.a, b, 1.0 - tail)
        return np.asarray(low, dtype=float), np.asarray(high, dtype=float)

    def usable(self, group_size: int) -> Floats:
        """Chance [M] that a group of G is mixed: `mixing` times 1 - B(a+G, b)/B(a, b) - B(a, b+G)/B(a, b).

        The second factor is exact for binary rewards; the first corrects it by what the environment showed.
        """
        flat = _run_chance(self.a, self.n, group_size) + _run_chance(self.n - self.a, self.n, group_size)
        return np.clip(self.mixing * np.maximum(1.0 - flat, 0.0), 0.0, 1.0)


def _run_chance(a: Floats, n: Floats, size: int) -> Floats:
    """B(a + size, n - a) / B(a, n - a): the chance of `size` successes in a row, as a product (no log-gamma)."""
    if size > 64:
        return np.asarray(np.exp(special.betaln(a + size, n - a) - special.betaln(a, n - a)))
    chance = np.ones_like(a)
    for k in range(size):
        chance *= (a + k) / (n + k)
    return chance


class Environments(NamedTuple):
    """What is known of all environments at one half-life."""

    mean: Floats
    """m_e [E]."""
    overall: float
    """m_0."""
    phi: Floats
    """Dispersion [E], in [0, 1]."""
    concentration: Floats
    """Pseudo-rollouts [E] of the environment's mean."""
    mixing: Floats
    """Mixed groups seen over expected [E]."""


class Predictor:
    """Propagated evidence of N tasks, and the trust learned in it."""

    def __init__(self, config: Config) -> None:
        """Reads the grids, `kappa_global` and the reward ranges of `config`."""
        self.config = config
        flat = (config.min_std, config.min_range)
        self.moments = RewardMoments(config.half_lives, config.reward_ranges, flat)
        self.graph: DualRelationGraph | None = None
        grid = itertools.product(
            range(len(config.half_lives)), config.kappa_env_grid, config.tau_within_grid, config.tau_cross_grid
        )
        self.points = [Point(*point) for point in grid]
        self.loglik = np.zeros(len(self.points))
        self.used = self._middle()
        self.scored = 0
        h = len(config.half_lives)
        self.spread = {name: np.zeros((h, 0)) for name in ("wn", "ws", "xn", "xs")}
        self._environments: dict[int, Environments] = {}

    def _middle(self) -> int:
        c = self.config
        middle = Point(0, *(grid[len(grid) // 2] for grid in (c.kappa_env_grid, c.tau_within_grid, c.tau_cross_grid)))
        return self.points.index(middle)

    @property
    def point(self) -> Point:
        """The trust in use."""
        return self.points[self.used]

    def trust(self) -> Trust:
        """The trust in use, with the scores that speak for it."""
        p, logliks = self.point, self.loglik
        best = float(logliks[self.used])
        no_within = [float(s) for q, s in zip(self.points, logliks, strict=True) if q.tau_within == 0.0]
        no_cross = [float(s) for q, s in zip(self.points, logliks, strict=True) if q.tau_cross == 0.0]
        return Trust(
            kappa_env=p.kappa_env,
            tau_within=p.tau_within,
            tau_cross=p.tau_cross,
            half_life=self.config.half_lives[p.h],
            loglik=best,
            loglik_no_within=max(no_within, default=best),
            loglik_no_cross=max(no_cross, default=best),
            groups=self.scored,
        )

    # ------------------------------------------------------------------ evidence in

    def grow(self, env: Indices, env_names: Sequence[str]) -> None:
        """Make room for the tasks `env` [N] in the environments `env_names` [E]."""
        self.moments.grow(env, env_names)
        self._propagate_all()

    def set_graph(self, graph: DualRelationGraph) -> None:
        """Use another graph [N, N]; everything seen so far is carried along its edges."""
        self.graph = graph
        self._propagate_all()

    def _propagate_all(self) -> None:
        self._environments.clear()
        n, s, graph = self.moments.n, self.moments.s, self.graph
        for name, source in (("wn", n), ("ws", s), ("xn", n), ("xs", s)):
            self.spread[name] = np.zeros_like(source)
            if graph is not None and len(graph.pattern) == n.shape[1]:
                self.spread[name] += ((graph.within if name[0] == "w" else graph.cross) @ source.T).T

    def remap(self) -> None:
        """Carry all evidence again after an environment's reward range moved."""
        self._propagate_all()

    def advance(self, step: int) -> None:
        """Move the clock to `step`; old evidence and old predictive scores fade."""
        self._environments.clear()
        before = self.moments.discount.now
        factor = self.moments.discount.advance(step)
        if factor is not None:
            self.moments.rescale(factor)
            for array in self.spread.values():
                array *= factor[:, None]
        if self.config.trust_half_life > 0 and step > before:
            self.loglik *= 2.0 ** (-(step - before) / self.config.trust_half_life)

    def observe(self, groups: Sequence[Group]) -> None:
        """Score every trust against `groups` as predicted before them, then take them in."""
        if not groups:
            return
        self._score(groups)
        expected = self._expected_mixed(groups)
        self._environments.clear()
        self.moments.add(groups, expected)
        self._propagate(groups)

    def _expected_mixed(self, groups: Sequence[Group]) -> Floats:
        """Chance given to each group of being mixed, were rewards binary, from the state before it."""
        sizes = np.array([g.size for g in groups])
        binary = self.predict(np.array([g.task for g in groups]))._replace(mixing=np.ones(len(groups)))
        out = np.zeros(len(groups))
        for size in np.unique(sizes):
            out[sizes == size] = binary.usable(int(size))[sizes == size]
        return out

    def _propagate(self, groups: Sequence[Group]) -> None:
        if self.graph is None:
            return
        tasks = np.array([g.task for g in groups])
        weights = np.array([self.moments.discount.weight(g.step) for g in groups]).T
        sizes, totals = np.array([g.size for g in groups]), np.array([g.total for g in groups])
        for matrix, count, total in ((self.graph.within, "wn", "ws"), (self.graph.cross, "xn", "xs")):
            reach = np.diff(matrix.indptr)[tasks]
            edges = np.repeat(matrix.indptr[tasks], reach) + _counting(reach)
            targets, strength = matrix.indices[edges], matrix.data[edges]
            for h, weight in enumerate(weights):
                np.add.at(self.spread[count][h], targets, strength * np.repeat(weight * sizes, reach))
                np.add.at(self.spread[total][h], targets, strength * np.repeat(weight * totals, reach))

    # ------------------------------------------------------------------ prediction

    def environments(self, h: int) -> Environments:
        """What all environments look like now at half-life `h`; computed once until something changes."""
        if h not in self._environments:
            m = self.moments
            scale = m.discount.scale()[h]
            mean, whole = _shrunk(scale * m.env_n[h], scale * m.env_s[h])
            self._environments[h] = Environments(mean, whole, m.dispersion(h), m.concentration(h), m.mixing(h))
        return self._environments[h]

    def predict(self, tasks: Indices | None = None) -> Prediction:
        """What is expected of `tasks` [M] (all N when None) at the trust in use."""
        at: Any = slice(None) if tasks is None else tasks
        p = self.point
        return self._predict(p.h, at, p.kappa_env, p.tau_within, p.tau_cross)

    def _predict(self, h: int, at: Any, kappa_env: Any, tau_within: Any, tau_cross: Any) -> Prediction:
        """The formulas of the module's head; the trust may be columns [Q, 1], giving predictions [Q, M]."""
        m, whole, k0 = self.moments, self.environments(h), self.config.kappa_global
        scale, env = m.discount.scale()[h], m.env[at]
        spread = {name: array[h][at] for name, array in self.spread.items()}
        kappa = kappa_env * whole.concentration[env]
        n = scale * (m.n[h][at] + tau_within * spread["wn"] + tau_cross * spread["xn"]) + kappa + k0
        a = scale * (m.s[h][at] + tau_within * spread["ws"] + tau_cross * spread["xs"])
        a = a + kappa * whole.mean[env] + k0 * whole.overall
        return Prediction(np.clip(a, 1e-9, n - 1e-9), n, whole.phi[env], whole.mixing[env])

    def _score(self, groups: Sequence[Group]) -> None:
        """Add the Beta-binomial log likelihood of `groups` to every point, then choose one."""
        tasks = np.array([g.task for g in groups])
        success = np.array([g.total for g in groups])
        failure = np.array([g.size for g in groups]) - success
        for h in range(len(self.config.half_lives)):
            rows = [k for k, point in enumerate(self.points) if point.h == h]
            trust = np.array([self.points[k][1:] for k in rows]).T[:, :, None]
            p = self._predict(h, tasks, *trust)
            b = p.n - p.a
            gain = special.betaln(p.a + success, b + failure) - special.betaln(p.a, b)
            self.loglik[rows] += gain.sum(axis=1)
        self.scored += len(groups)
        best = int(np.argmax(np.round(self.loglik, 9)))
        if self.config.learn_trust and self.loglik[best] > self.loglik[self.used] + self.config.trust_margin:
            self.used = best

    # ------------------------------------------------------------------ attribution

    def sources(self, tasks: Indices) -> Floats:
        """Equivalent rollouts by source [M, 5], in the order of `SHARES`; rows sum to n^."""
        p, m = self.point, self.moments
        scale = m.discount.scale()[p.h]
        columns = (
            scale * m.n[p.h][tasks],
            scale * p.tau_within * self.spread["wn"][p.h][tasks],
            scale * p.tau_cross * self.spread["xn"][p.h][tasks],
            p.kappa_env * self.environments(p.h).concentration[m.env[tasks]],
            np.full(len(tasks), self.config.kappa_global),
        )
        return np.column_stack(columns)

    def neighbours(self, task: int) -> tuple[list[str], Indices, Floats, Floats]:
        """Every task that speaks for `task`: relation, index, edge weight, equivalent rollouts; own history first."""
        p, m = self.point, self.moments
        scale = m.discount.scale()[p.h]
        relations, indices = ["own"], [np.array([task])]
        weights, counts = [np.ones(1)], [scale * m.n[p.h][[task]]]
        for relation, tau in (("within", p.tau_within), ("cross", p.tau_cross)):
            if self.graph is None or tau == 0.0:
                continue
            index, weight = self.graph.row(relation, task)
            relations += [relation] * len(index)
            indices.append(index)
            weights.append(weight)
            counts.append(scale * tau * weight * m.n[p.h][index])
        return relations, np.concatenate(indices), np.concatenate(weights), np.concatenate(counts)

    def without(self, task: int, source: int) -> Prediction:
        """What `task` would be predicted had `source` (another task) never been rolled out.

        Trust, dispersion, concentration and graph stay as they are; the source also leaves the environment's and the
        overall mean, where it was counted.
        """
        p, m, now = self.point, self.moments, self.environments(self.point.h)
        scale, k0 = m.discount.scale()[p.h], self.config.kappa_global
        n_j, s_j = scale * m.n[p.h][source], scale * m.s[p.h][source]
        env_n, env_s = scale * m.env_n[p.h], scale * m.env_s[p.h]
        env_n[m.env[source]] -= n_j
        env_s[m.env[source]] -= s_j
        mean, overall = _shrunk(env_n, env_s)
        env = m.env[task]
        kappa = p.kappa_env * now.concentration[env]
        pull = 1.0 if source == task else self._pull(task, source)
        before = self.predict(np.array([task]))
        a = before.a - pull * s_j + kappa * (mean[env] - now.mean[env]) + k0 * (overall - now.overall)
        return Prediction(a, before.n - pull * n_j, before.phi, before.mixing)

    def _pull(self, task: int, source: int) -> float:
        """Tau times edge weight between two tasks, over both relations."""
        if self.graph is None:
            return 0.0
        total = 0.0
        for relation, tau in (("within", self.point.tau_within), ("cross", self.point.tau_cross)):
            index, weight = self.graph.row(relation, task)
            total += tau * float(weight[index == source].sum())
        return total

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Statistics, propagated sums and trust; the graph is kept by who owns it."""
        return {
            "moments": self.moments.state_dict(),
            "spread": {name: array.copy() for name, array in self.spread.items()},
            "loglik": self.loglik.copy(),
            "used": self.used,
            "scored": self.scored,
        }

    def load_state_dict(self, state: Mapping[str, Any], tasks: Indices, envs: Indices) -> None:
        """Take over saved statistics; `tasks` and `envs` map saved indices to those here (-1 = gone).

        The propagated sums are taken as saved when no task came or went (so that a resumed run is the same
        to the last bit), and carried again along the graph otherwise.
        """
        self.moments.load_state_dict(state["moments"], tasks, envs)
        self.loglik = np.array(state["loglik"])
        self.used, self.scored = int(state["used"]), int(state["scored"])
        self._environments.clear()
        if self.graph is not None and np.array_equal(tasks, np.arange(self.moments.n.shape[1])):
            self.spread = {name: np.array(array) for name, array in state["spread"].items()}
        else:
            self._propagate_all()


def _shrunk(env_n: Floats, env_s: Floats) -> tuple[Floats, float]:
    """m_e [E] and m_0: means over environments and over everything, each shrunk by two pseudo-rollouts."""
    overall = float((env_s.sum() + 1.0) / (env_n.sum() + 2.0))
    return (env_s + 2.0 * overall) / (env_n + 2.0), overall


def _counting(lengths: NDArray[Any]) -> NDArray[Any]:
    """0..l-1 for each length l, laid end to end."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths))

"""Predictor: past rewards, carried along both relations, become each task's predicted reward variance.

Evidence is counted in equivalent rollouts (Beta pseudo-counts). For task i, with sums discounted to now:

    a_i  = s_i + k_e [tau_w sum_j W_ij s_j + tau_x sum_j X_ij s_j] + kappa k_e [(1 - rho) m_e + rho r_i] + kappa_0 m_0
    n^_i = n_i + k_e [tau_w sum_j W_ij n_j + tau_x sum_j X_ij n_j] + kappa k_e                           + kappa_0
    mean     f_i = a_i / n^_i          a convex combination: every source has its exact share
    r_i      what the task's features predict (regression.py); rho of the environment's weight goes to it
    variance v_i = phi_e a_i b_i / (n^_i (n^_i + 1)),  b_i = n^_i - a_i

The mean is propagated and the variance derived: for rewards in [0, 1] a group says much about the mean
and little about the variance. The weight of the environment's mean is a learned multiple, kappa, of the
environment's own concentration k_e (`RewardMoments.concentration`): where tasks are either always right or always
wrong, the mean says little about one of them; on replays of public logs this was worth more than any other term.
Neighbours are counted in the same unit: counted plainly, they made tasks that have many look surely mixed. kappa_0
is next to nothing, since m_e leans on m_0 already.

Trust (that multiple, rho, tau_w, tau_x, half-life) is a point on a small grid; each point earns the Beta-binomial
log likelihood of every incoming group, predicted from the state before the step, and the best (with hysteresis)
serves the next decision; of equals, the first in the order of the grids. The middle of each grid stands until one
is better. All sums are updated along the edges of the tasks just observed, never by a pass over N.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .catalogue import Catalogue
from .config import Config
from .costs import Costs, ExpectedCost
from .graph import DualRelationGraph
from .moments import Floats, Group, RewardMoments
from .prediction import Prediction, beta_binomial
from .propagation import carried, carry
from .records import Trust
from .regression import Regression

__all__ = ["GRIDS", "SHARES", "Environments", "Point", "Prediction", "Predictor"]

SHARES = ("own", "within", "cross", "environment", "features", "global")
GRIDS = ("kappa_env_grid", "features_share_grid", "tau_within_grid", "tau_cross_grid")
"""The knobs that trust is learned over, beside the half-lives."""
Indices = NDArray[np.int64]


class Point(NamedTuple):
    """One setting of trust."""

    h: int
    """Index of the half-life."""
    kappa_env: float
    features_share: float
    tau_within: float
    tau_cross: float


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
    unit: Floats
    """Rollouts [E] that a neighbour's rollout counts for, before trust."""
    mixing: Floats
    """Mixed groups seen over expected [E]."""

    def of(self, env: Indices) -> Environments:
        """The same of the environments [M] of some tasks."""
        return Environments(self.mean[env], self.overall, *(table[env] for table in self[2:]))


class Predictor:
    """Propagated evidence of N tasks, and the trust learned in it."""

    def __init__(self, config: Config) -> None:
        """Reads the grids, `kappa_global` and the reward ranges of `config`."""
        self.config = config
        flat = (config.min_std, config.min_range)
        self.moments = RewardMoments(config.half_lives, config.reward_ranges, flat)
        self.graph: DualRelationGraph | None = None
        self.grids = tuple(getattr(config, name) for name in GRIDS)
        self.points = [Point(*point) for point in itertools.product(range(len(config.half_lives)), *self.grids)]
        self.regression = Regression(config.half_lives) if max(config.features_share_grid) > 0 else None
        self.costs = Costs(config) if config.cost else None
        self.loglik = np.zeros(len(self.points))
        self.used = self._middle()
        self.scored = 0
        self.spread = carried(None, self.moments.n, self.moments.s)
        self._environments: dict[int, Environments] = {}

    def _middle(self) -> int:
        return self.points.index(Point(0, *(grid[len(grid) // 2] for grid in self.grids)))

    @property
    def point(self) -> Point:
        """The trust in use."""
        return self.points[self.used]

    def trust(self) -> Trust:
        """The trust in use, with the scores that speak for it."""
        p, best = self.point, float(self.loglik[self.used])

        def best_without(source: str) -> float:
            scored = zip(self.points, self.loglik, strict=True)
            return max((float(score) for point, score in scored if getattr(point, source) == 0.0), default=best)

        return Trust(
            kappa_env=p.kappa_env,
            tau_within=p.tau_within,
            tau_cross=p.tau_cross,
            half_life=self.config.half_lives[p.h],
            loglik=best,
            loglik_no_within=best_without("tau_within"),
            loglik_no_cross=best_without("tau_cross"),
            groups=self.scored,
            features_share=p.features_share,
            loglik_no_features=best_without("features_share"),
        )

    # ------------------------------------------------------------------ evidence in

    def grow(self, catalogue: Catalogue) -> None:
        """Make room for the tasks of `catalogue` [N] and its environments [E]."""
        self.moments.grow(catalogue.env, catalogue.env_names)
        if self.regression is not None:
            self.regression.grow(catalogue)
        if self.costs is not None:
            self.costs.grow(catalogue.env, len(catalogue.env_names), self.graph)
        self.remap()

    def set_graph(self, graph: DualRelationGraph) -> None:
        """Use another graph [N, N]; everything seen so far is carried along its edges."""
        self.graph = graph
        if self.costs is not None:
            self.costs.carry_all(graph)
        self.remap()

    def fit_ranges(self, results: Iterable[tuple[int, str, Sequence[float]]]) -> list[tuple[int, float, float]]:
        """Widen undeclared reward ranges to the rewards of (environment, its name, rewards); what is kept follows.

        Returns what moved: in that environment a mapped reward r is now a r + b, in order. What the regression expects
        of the environment moves by as many logits as the environment's mean.
        """
        moved: list[tuple[int, float, float]] = []
        for env, name, rewards in results:
            if self.moments.holds(env, name, rewards):
                continue
            before = self._means_of(env)
            moved.append((env, *self.moments.fit_range(env, name, rewards)))
            self._environments.clear()
            if self.regression is not None:
                self.regression.shift(env, special.logit(self._means_of(env)) - special.logit(before))
        if moved:
            self.remap()
        return moved

    def _means_of(self, env: int) -> Floats:
        """Mean of an environment at each half-life [H]."""
        return np.array([self.environments(h).mean[env] for h in range(len(self.config.half_lives))])

    def remap(self) -> None:
        """Carry all evidence again, for instance after an environment's reward range moved."""
        self._environments.clear()
        self.spread = carried(self.graph, self.moments.n, self.moments.s)

    def advance(self, step: int) -> None:
        """Move the clock to `step`; old evidence and old predictive scores fade."""
        self._environments.clear()
        before = self.moments.discount.now
        factor = self.moments.discount.advance(step)
        if factor is not None:
            self.moments.rescale(factor)
            for array in self.spread.values():
                array *= factor[:, None]
            if self.costs is not None:
                self.costs.rescale(factor)
        if self.regression is not None:
            self.regression.advance(step)
        if self.config.trust_half_life > 0 and step > before:
            self.loglik *= 2.0 ** (-(step - before) / self.config.trust_half_life)

    def observe(self, groups: Sequence[Group]) -> None:
        """Score every trust against `groups` as predicted before them, then take them in."""
        if not groups:
            return
        tasks = np.array([g.task for g in groups])
        told = self._told(tasks)
        self._score(groups, tasks, told)
        expected = self._expected_mixed(groups, tasks, told[self.point.h])
        self._regress(groups)
        self._environments.clear()
        self.moments.add(groups, expected)
        self._propagate(groups)
        if self.costs is not None:
            self.costs.observe(groups, self.moments.discount, self.graph)

    def _regress(self, groups: Sequence[Group]) -> None:
        """Groups count for less the more their environment's tasks differ beyond their features (regression.py)."""
        if self.regression is None:
            return
        tasks, sizes = np.array([g.task for g in groups]), np.array([float(g.size) for g in groups])
        env = self.moments.env[tasks]
        alike = np.array([self.environments(h).concentration[env] for h in range(len(self.config.half_lives))])
        worth = sizes * (alike + 1.0) / (alike + sizes)
        self.regression.observe(tasks, np.array([g.mean for g in groups]), worth)

    def _expected_mixed(self, groups: Sequence[Group], tasks: Indices, told: Floats | float) -> Floats:
        """Chance given to each group of being mixed, were rewards binary, from the state before it."""
        sizes = np.array([g.size for g in groups])
        p = self.point
        binary = self._predict(p.h, tasks, told, *p[1:])._replace(mixing=np.ones(len(groups)))
        out = np.zeros(len(groups))
        for size in np.unique(sizes):
            out[sizes == size] = binary.usable(int(size))[sizes == size]
        return out

    def _propagate(self, groups: Sequence[Group]) -> None:
        weights = self.moments.discount.weight(np.array([g.step for g in groups]))
        sizes, totals = np.array([g.size for g in groups]), np.array([g.total for g in groups])
        carry(self.spread, self.graph, np.array([g.task for g in groups]), weights * sizes, weights * totals)

    # ------------------------------------------------------------------ prediction

    def environments(self, h: int) -> Environments:
        """What all environments look like now at half-life `h`; computed once until something changes."""
        if h not in self._environments:
            m = self.moments
            scale = m.discount.scale()[h]
            mean, whole = _shrunk(scale * m.env_n[h], scale * m.env_s[h])
            alike = m.concentration(h)
            unit = alike if self.config.neighbours_unit == "concentration" else np.ones_like(alike)
            self._environments[h] = Environments(mean, whole, m.dispersion(h), alike, unit, m.mixing(h))
        return self._environments[h]

    def predict(self, tasks: Indices | slice | None = None) -> Prediction:
        """What is expected of `tasks` [M] (all N when None) at the trust in use."""
        at: Any = slice(None) if tasks is None else tasks
        p = self.point
        features = self.regression.predict_all(p.h)[at] if self.regression and p.features_share > 0 else 0.0
        return self._predict(p.h, at, features, *p[1:])

    def _predict(
        self, h: int, at: Any, features: Any, kappa_env: Any, share: Any, tau_within: Any, tau_cross: Any
    ) -> Prediction:
        """The formulas of the module's head; the trust may be columns [Q, 1], giving predictions [Q, M]."""
        m, whole, k0 = self.moments, self.environments(h), self.config.kappa_global
        scale, env = m.discount.scale()[h], m.env[at]
        columns = bool(np.ndim(kappa_env))
        whole = whole.of(env) if columns else whole  # Q x M numbers, not Q x E

        def look_up(table: Any) -> Any:
            return table if columns else table.take(env)

        # All that is one number for an environment is worked out before it is looked up for tasks.
        kappa = kappa_env * whole.concentration
        trusted = {relation: tau for relation, tau in (("w", tau_within), ("x", tau_cross)) if np.any(tau)}
        pulls = {relation: look_up(tau * whole.unit) for relation, tau in trusted.items()}  # no trust, no pass

        def seen(own: Floats, sums: str) -> Any:
            out: Any = own[h][at]
            for relation, pull in pulls.items():
                out = out + pull * self.spread[relation + sums][h][at]
            return scale * out

        told = kappa * (1.0 - share) * whole.mean + k0 * whole.overall
        n = seen(m.n, "n") + look_up(kappa + k0)
        a = seen(m.s, "s") + look_up(told)
        if np.any(share):
            a = a + look_up(kappa * share) * features
        return Prediction(np.minimum(np.maximum(a, 1e-9), n - 1e-9), n, look_up(whole.phi), look_up(whole.mixing))

    def pulls(self, tasks: Any) -> tuple[Floats, Floats]:
        """Equivalent rollouts of a neighbour's rollout for `tasks` [M], over an edge of weight 1: within, cross."""
        p = self.point
        unit = self.environments(p.h).unit[self.moments.env[tasks]]
        return p.tau_within * unit, p.tau_cross * unit

    def _told(self, tasks: Indices) -> Sequence[Floats | float]:
        """What features tell of a few tasks [M] at each half-life, without a pass over all."""
        return self.regression.predict(tasks) if self.regression else [0.0] * len(self.config.half_lives)

    def _score(self, groups: Sequence[Group], tasks: Indices, told: Sequence[Floats | float]) -> None:
        """Add the Beta-binomial log likelihood of `groups` to every point, then choose one."""
        success = np.array([g.total for g in groups])
        failure = np.array([g.size for g in groups]) - success
        for h in range(len(self.config.half_lives)):
            rows = [k for k, point in enumerate(self.points) if point.h == h]
            trust = np.array([self.points[k][1:] for k in rows]).T[:, :, None]
            p = self._predict(h, tasks, told[h], *trust)
            self.loglik[rows] += beta_binomial(p.a, p.n, success, failure).sum(axis=1)
        self.scored += len(groups)
        best = int(np.argmax(np.round(self.loglik, 9)))
        if self.config.learn_trust and self.loglik[best] > self.loglik[self.used] + self.config.trust_margin:
            self.used = best

    def expected_cost(self, tasks: Indices | None = None) -> ExpectedCost | None:
        """What groups of `tasks` [M] (all N when None) cost at the trust in use; None without `cost` or any told."""
        if self.costs is None:
            return None
        at: Any = slice(None) if tasks is None else tasks
        p, m = self.point, self.moments
        kappa = p.kappa_env * self.environments(p.h).concentration[m.env[at]]
        return self.costs.expected(p.h, at, float(m.discount.scale()[p.h]), kappa, self.pulls(at))

    # ------------------------------------------------------------------ attribution

    def sources(self, tasks: Indices) -> Floats:
        """Equivalent rollouts by source [M, 6], in the order of `SHARES`; rows sum to n^."""
        p, m = self.point, self.moments
        scale = m.discount.scale()[p.h]
        kappa = p.kappa_env * self.environments(p.h).concentration[m.env[tasks]]
        within, cross = self.pulls(tasks)
        columns = (
            scale * m.n[p.h][tasks],
            scale * within * self.spread["wn"][p.h][tasks],
            scale * cross * self.spread["xn"][p.h][tasks],
            kappa * (1.0 - p.features_share),
            kappa * p.features_share,
            np.full(len(tasks), self.config.kappa_global),
        )
        return np.column_stack(columns)

    def without(self, task: int, source: int) -> Prediction:
        """What `task` would be predicted had `source` (another task) never been rolled out.

        Trust, dispersion, concentration, regression and graph stay as they are; the source also leaves the
        environment's and the overall mean, where it was counted.
        """
        p, m, now = self.point, self.moments, self.environments(self.point.h)
        scale, k0 = m.discount.scale()[p.h], self.config.kappa_global
        n_j, s_j = scale * m.n[p.h][source], scale * m.s[p.h][source]
        env_n, env_s = scale * m.env_n[p.h], scale * m.env_s[p.h]
        env_n[m.env[source]] -= n_j
        env_s[m.env[source]] -= s_j
        mean, overall = _shrunk(env_n, env_s)
        env = m.env[task]
        kappa = p.kappa_env * now.concentration[env] * (1.0 - p.features_share)
        pull = 1.0 if source == task else self._pull(task, source)
        before = self.predict(np.array([task]))
        a = before.a - pull * s_j + kappa * (mean[env] - now.mean[env]) + k0 * (overall - now.overall)
        return Prediction(a, before.n - pull * n_j, before.phi, before.mixing)

    def _pull(self, task: int, source: int) -> float:
        """What a rollout of `source` counts for `task`, over both relations."""
        total = 0.0
        for relation, pull in zip(("within", "cross"), self.pulls(task), strict=True):
            index, weight = self.graph.row(relation, task) if self.graph else (np.zeros(0), np.zeros(0))
            total += float(pull) * float(weight[index == source].sum())
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
            "regression": self.regression.state_dict() if self.regression is not None else None,
            "costs": self.costs.state_dict() if self.costs is not None else None,
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
        if self.regression is not None and state["regression"] is not None:
            self.regression.load_state_dict(state["regression"], envs)
        if self.costs is not None:
            self.costs.load_state_dict(state["costs"], tasks, envs, self.graph)
        if self.graph is not None and np.array_equal(tasks, np.arange(self.moments.n.shape[1])):
            self.spread = {name: np.array(array) for name, array in state["spread"].items()}
        else:
            self.remap()


def _shrunk(env_n: Floats, env_s: Floats) -> tuple[Floats, float]:
    """m_e [E] and m_0: means over environments and over everything, each shrunk by two pseudo-rollouts."""
    overall = float((env_s.sum() + 1.0) / (env_n.sum() + 2.0))
    return (env_s + 2.0 * overall) / (env_n + 2.0), overall

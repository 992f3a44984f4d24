"""Regression: success of a task from its features, learned online and forgetting.

Logistic, with an independent Gaussian for every weight (mean w, precision q): after each step the posterior
given that step's groups is approximated at its mode (Laplace) and becomes the next prior, as in Chapelle & Li
2011 (An empirical evaluation of Thompson sampling, algorithm 3). What is remembered is two arrays, whatever
the number of groups. Before each step precisions decay towards their first value, `q <- q0 + g (q - q0)` with
`g = 2^(-dt / half-life)`: an old weight becomes easier to move, which lets a policy that learns be followed.

A group of G rollouts with mean m counts as `G (k + 1) / (k + G)` rollouts, k the concentration of its environment
(moments.py): rollouts of one task resemble each other (the design effect, with correlation 1 / (k + 1)).

The mode is found in the space of the step's groups, not of the weights: w = w0 + Q^-1 X' c with one coefficient
c_b = n_b (m_b - p_b) a group, by Newton's method on B unknowns. No rollout beyond those of the batch is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .catalogue import Catalogue
from .features import ENV_FROM, PER_ENV, Features
from .passes import blocks

__all__ = ["Regression"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

PRECISION, PRECISION_OF_ALL = 1.0, 0.05
"""First precision of a weight (in logits^-2), and of the column of ones."""
ROUNDS = 16
"""Most Newton steps; six or seven are usual."""
HALVINGS = 20
"""Most halvings of one step: a whole step may overshoot where predictions are near 0 or 1, and never come back."""
SLACK = 1e-12
"""Relative rise of the objective that is taken for rounding."""
MOST = 128
"""Groups taken in at once; more are taken in one such block after the other (a solve costs their cube)."""
CLOSE = 1e-10
"""Newton's method ends when no coefficient is off by more."""


class Regression:
    """One model for each of H half-lives over the same features."""

    def __init__(self, half_lives: tuple[float, ...]) -> None:
        """`half_lives` [H] in steps; 0 = never forgets."""
        self.features = Features()
        self.rates = np.array([1.0 / h if h > 0 else 0.0 for h in half_lives])
        self.mean = np.zeros((len(half_lives), self.features.columns))
        self.precision = self._first(self.features.columns)
        self.now = 0
        self._redescribed = 0
        self._predicted: dict[int, Floats] = {}

    def _first(self, columns: int) -> Floats:
        first = np.full((len(self.rates), columns), PRECISION)
        first[:, :1] = PRECISION_OF_ALL
        return first

    def grow(self, catalogue: Catalogue) -> None:
        """Take in the features of tasks that joined, and make room for new environments.

        Features are made anew when known tasks are described anew; what their columns have learned stays.
        """
        if catalogue.redescribed > self._redescribed:
            self.features, self._redescribed = Features(), catalogue.redescribed
        fresh = catalogue.tasks[len(self.features) :]
        self.features.extend(fresh, catalogue.env, len(catalogue.env_names))
        known, columns = self.mean.shape[1], self.features.columns
        self.mean = np.concatenate([self.mean, np.zeros((len(self.rates), columns - known))], axis=1)
        self.precision = np.concatenate([self.precision, self._first(columns)[:, known:]], axis=1)
        self._predicted.clear()

    def advance(self, step: int) -> None:
        """Move the clock to `step`; precisions decay."""
        if step > self.now:
            keep = np.exp2(-(step - self.now) * self.rates)[:, None]
            first = self._first(1)[:, :1]
            self.precision[:, :1] = first + keep * (self.precision[:, :1] - first)
            self.precision[:, 1:] = PRECISION + keep * (self.precision[:, 1:] - PRECISION)
            self.now = step

    def predict(self, tasks: Indices) -> list[Floats]:
        """Expected mean reward [M] of `tasks` at each half-life, in (0, 1), row by row: for few tasks."""
        rows = self.features.rows(tasks)
        return [np.asarray(special.expit(rows @ mean)) for mean in self.mean]

    def predict_all(self, h: int) -> Floats:
        """The same of all tasks [N] at half-life `h`, in single precision; computed once until something changes.

        The two differ by about 1e-7. Each caller keeps to one of them, so that a resumed run takes the same way.
        """
        if h not in self._predicted:
            logits = self.features.dot(self.mean[h])
            with np.errstate(over="ignore"):  # far below 0 the chance is 0
                for part in blocks(len(logits)):  # a quarter of the time that special.expit takes
                    some = logits[part]
                    np.exp(np.negative(some, out=some), out=some)
                    some += 1.0
                    np.divide(1.0, some, out=some)
            self._predicted[h] = logits
        return self._predicted[h]

    def observe(self, tasks: Indices, means: Floats, counts: Floats) -> None:
        """Take in groups [B]: mean rewards in [0, 1], and rollouts each is worth at every half-life [H, B]."""
        for start in range(0, len(tasks), MOST):
            part = slice(start, start + MOST)
            rows = self.features.rows(tasks[part])
            columns, squares = rows.T.tocsr(), rows.power(2).T
            for h in range(len(self.rates)):
                self._update(h, (rows, columns, squares), means[part], counts[h][part])
        self._predicted.clear()

    def _update(self, h: int, block: tuple[Any, Any, Any], means: Floats, counts: Floats) -> None:
        """One block of groups: their rows, these transposed, and squared; of many thousand columns each has forty."""
        rows, columns, squares = block
        scaled = rows.copy()
        scaled.data = rows.data / self.precision[h][rows.indices]
        kernel, start = (scaled @ columns).toarray(), rows @ self.mean[h]
        coefficient = _mode(kernel, start, means, counts)
        chance = special.expit(start + kernel @ coefficient)
        self.mean[h] += scaled.T @ coefficient
        self.precision[h] += squares @ (counts * chance * (1.0 - chance))

    def shift(self, env: int, logits: Floats) -> None:
        """Move what is expected of an environment by `logits` [H]: its reward range moved."""
        self.mean[:, ENV_FROM + PER_ENV * env] += logits
        self._predicted.clear()

    def split(self, h: int, tasks: Indices) -> Floats:
        """The logits of what is predicted of `tasks`, by kind of feature [M, 5]; rows sum to them exactly."""
        return self.features.split(tasks, self.mean[h])

    def state_dict(self) -> dict[str, Any]:
        """Weights and their precisions; features follow from the tasks."""
        return {"mean": self.mean.copy(), "precision": self.precision.copy(), "now": self.now}

    def load_state_dict(self, state: Mapping[str, Any], envs: Indices) -> None:
        """Put saved weights in place; `envs` maps saved environments to those here (-1 = gone)."""
        for name in ("mean", "precision"):
            saved, here = np.asarray(state[name]), getattr(self, name)
            here[:, :ENV_FROM] = saved[:, :ENV_FROM]
            blocks = saved[:, ENV_FROM:].reshape(len(saved), len(envs), PER_ENV)
            own = here[:, ENV_FROM:].reshape(len(saved), -1, PER_ENV)
            own[:, envs[envs >= 0]] = blocks[:, envs >= 0]
            here[:, ENV_FROM:] = own.reshape(len(saved), -1)
        self.now = int(state["now"])
        self._predicted.clear()


def _mode(kernel: Floats, start: Floats, means: Floats, counts: Floats) -> Floats:
    """Coefficients [B] of the mode: damped Newton on 1/2 c' K c + sum n (log(1 + e^z) - m z), z = start + K c.

    That is convex, and a step is halved until it does not rise, so that it ends at the mode from any start.
    """

    def objective(coefficient: Floats, carried: Floats) -> float:
        z = start + carried
        return float(0.5 * coefficient @ carried + counts @ (np.logaddexp(0.0, z) - means * z))

    coefficient, carried = np.zeros(len(means)), np.zeros(len(means))
    reached = objective(coefficient, carried)
    for _ in range(ROUNDS):
        chance = special.expit(start + carried)
        off = coefficient - counts * (means - chance)
        if np.abs(off).max(initial=0.0) < CLOSE:
            break
        slope = np.eye(len(means)) + (counts * chance * (1.0 - chance))[:, None] * kernel
        step = np.linalg.solve(slope, off)
        for halving in range(HALVINGS):
            tried = coefficient - 0.5**halving * step
            value = objective(tried, kernel @ tried)
            if value <= reached + SLACK * abs(reached):
                break
        else:
            break
        coefficient, carried, reached = tried, kernel @ tried, value
    return coefficient

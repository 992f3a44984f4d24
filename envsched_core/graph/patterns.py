"""Interaction patterns: tasks whose calls play the same roles in the same order, clustered to at most P."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from envsched_core.similarity import Calls, Matrix, pattern_name

__all__ = ["Clusters"]

Indices = NDArray[np.int64]

MOST_FITTED = 2048
"""Kinds that k-means is fitted to, the most frequent ones; all others join the nearest cluster."""


class Clusters:
    """Clusters kinds of execution patterns; the same kinds twice cost nothing."""

    def __init__(self, most: int, seed: int) -> None:
        """`most`: clusters at most (P)."""
        self.most, self.seed = most, seed
        self._last: tuple[list[tuple[Calls, ...]], Indices] | None = None

    def patterns(
        self, kinds: list[tuple[Calls, ...]], kind: Indices, roles: Matrix
    ) -> tuple[NDArray[np.int32], list[str]]:
        """Pattern of each task [N] (-1 = no call known) and a name for each pattern.

        `kinds`: role sequences, in order of first appearance, `roles` [kinds + 1, D] their n-grams; `kind` [N]: of each
        task, -1 = none known.
        """
        if not kinds:
            return np.full(len(kind), -1, dtype=np.int32), []
        count = np.bincount(kind[kind >= 0], minlength=len(kinds))
        label = self._labels(kinds, count, roles)
        heads: list[Counter[str]] = [Counter() for _ in range(int(label.max()) + 1)]
        for one, cluster, many in zip(kinds, label.tolist(), count.tolist(), strict=True):
            heads[cluster][pattern_name(one[0])] += many
        pattern = np.where(kind >= 0, label[kind], -1).astype(np.int32)
        return pattern, _distinct([head.most_common(1)[0][0] for head in heads])

    def _labels(self, kinds: list[tuple[Calls, ...]], count: Indices, roles: Matrix) -> Indices:
        """Cluster of each distinct kind, numbered by first appearance."""
        if len(kinds) <= self.most:
            return np.arange(len(kinds))
        if self._last is None or self._last[0] != kinds:
            found = self._clustered(sparse.csr_array(roles[: len(kinds)]), count)
            _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
            self._last = (kinds, np.argsort(np.argsort(first))[inverse])
        return self._last[1]

    def _clustered(self, features: Matrix, count: Indices) -> Indices:
        """K-means on n-grams of roles [kinds, D]."""
        from sklearn.cluster import KMeans

        fitted = np.sort(np.argsort(-count, kind="stable")[:MOST_FITTED]) if len(count) > MOST_FITTED else slice(None)
        columns = np.unique(features.indices)
        sample = features[fitted][:, columns]
        # Different kinds may have the same n-gram profile; more clusters than profiles would be a warning.
        clusters = min(self.most, _profiles(sample, self.most))
        means = KMeans(clusters, n_init=1, random_state=self.seed).fit(sample.toarray())
        return np.asarray(means.predict(features[:, columns]), dtype=np.int64)


def _profiles(features: Matrix, enough: int) -> int:
    """Distinct rows, counted up to `enough`."""
    seen = set()
    for start, end in zip(features.indptr[:-1], features.indptr[1:], strict=True):
        seen.add((features.indices[start:end].tobytes(), features.data[start:end].round(6).tobytes()))
        if len(seen) >= enough:
            break
    return len(seen)


def _distinct(names: list[str]) -> list[str]:
    """Number names that occur more than once."""
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out

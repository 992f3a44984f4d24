"""Features: what is known of a task before any rollout, as sparse columns for the regression.

    everything    a column of ones
    length        words, lines and numbers of the text and calls of the reference path, each on a scale of octaves;
                  one row for each different set of lengths
    words         the words of the text, hashed
    tools         the words of its tools' names, hashed; one row for each different set of tools
    environment   a column for the environment, and its own length scale

Hashing needs no vocabulary: tasks that join later change no column, and a saved state fits as it is. Blocks of
words have length 1, so that a long text has no more say than a short one. Lengths, tools and environment are kept once
for all tasks that share them: at a million tasks the words are nearly all of the memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .records import TaskSpec
from .similarity import words_of

__all__ = ["PARTS", "Features"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

PARTS = ("everything", "length", "words", "tools", "environment")
"""Blocks of columns in order; what is predicted splits into them exactly."""
OCTAVES = 14
"""Columns of one length scale: 1 to 2^13, and beyond."""
MEASURES = 4
"""Words, lines, numbers, reference calls."""
WORDS, TOOLS = 1 << 14, 1 << 12
"""Hashed columns of words and of tools' words."""
OWN_LENGTH = 0.5
"""Size of an environment's own length columns: half the say of those that all environments share."""
PER_ENV = 1 + OCTAVES

LENGTH_FROM = 1
WORDS_FROM = LENGTH_FROM + MEASURES * OCTAVES
TOOLS_FROM = WORDS_FROM + WORDS
ENV_FROM = TOOLS_FROM + TOOLS
STARTS = (0, LENGTH_FROM, WORDS_FROM, TOOLS_FROM, ENV_FROM)
_NUMBER = re.compile(r"\d+")
_TOKEN = r"(?u)\b\w+\b"


class Features:
    """Feature rows of N tasks; D columns, which grow with the environments."""

    def __init__(self) -> None:
        """No task yet."""
        self.env: Indices = np.zeros(0, dtype=np.int64)
        self.environments = 0
        # A task's text [N, .] is one entry for its lengths, in column WORDS + their place among the different ones, and
        # its words after it: a product adds up as over a row that holds both, from fewer numbers where lengths repeat.
        self._measured: dict[tuple[int, ...], int] = {}
        self._lengths = _empty(0, WORDS_FROM - LENGTH_FROM)  # [different lengths, .]
        self._text = _empty(0, WORDS)
        self._octaves: tuple[NDArray[np.int32], NDArray[np.float32]] = (
            np.zeros((0, 2), dtype=np.int32),
            np.zeros((0, 2), dtype=np.float32),
        )
        self._sets: dict[tuple[str, ...], int] = {}
        self._tools = _empty(0, TOOLS)  # [different sets of tools, TOOLS]
        self._set_of: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        # Tasks that differ in nothing but their text are of one kind: a task of each, and the kind of every task [N].
        self._like: Indices = np.zeros(0, dtype=np.int64)
        self._kinds: Indices = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.env)

    @property
    def columns(self) -> int:
        """D."""
        return ENV_FROM + PER_ENV * self.environments

    def extend(self, tasks: Sequence[TaskSpec], env: Indices, environments: int) -> None:
        """Add `tasks`; `env` [N] is the environment of every task, these included, of `environments` in all."""
        if tasks:
            measures = [_measures(task) for task in tasks]
            self._add_text(tasks, measures)
            scale, weight = _octaves(np.array(measures, dtype=np.float64)[:, :1])
            self._octaves = (
                np.concatenate([self._octaves[0], scale[:, 0]]),
                np.concatenate([self._octaves[1], weight[:, 0]]),
            )
            self._add_tools(tasks)
        self.env, self.environments = env, environments
        self._like, self._kinds = _kinds(env, self._set_of, self._octaves)

    def _add_text(self, tasks: Sequence[TaskSpec], measures: Sequence[tuple[int, ...]]) -> None:
        words, known = _hashed([task.text for task in tasks], WORDS), len(self._measured)
        which = [self._measured.setdefault(key, len(self._measured)) for key in measures]
        fresh = list(self._measured)[known:]
        if fresh:
            self._lengths = _joined(self._lengths, _spread(*_octaves(np.array(fresh, dtype=np.float64))))
        starts, columns = words.indptr[:-1], WORDS + len(self._measured)
        data, indices = np.insert(words.data, starts, 1.0), np.insert(words.indices, starts, np.add(WORDS, which))
        pointer = words.indptr + np.arange(len(tasks) + 1)
        known_text = (self._text.data, self._text.indices, self._text.indptr)
        self._text = _joined(
            sparse.csr_array(known_text, shape=(self._text.shape[0], columns)),
            sparse.csr_array((data, indices, pointer), shape=(len(tasks), columns)),
        )

    def _add_tools(self, tasks: Sequence[TaskSpec]) -> None:
        names = [tuple(tool.name for tool in task.tools) for task in tasks]
        known = len(self._sets)
        which = [self._sets.setdefault(key, len(self._sets)) for key in names]
        fresh = list(self._sets)[known:]
        if fresh:
            texts = [" ".join(word for name in key for word in words_of(name)) for key in fresh]
            self._tools = _joined(self._tools, _hashed(texts, TOOLS))
        self._set_of = np.concatenate([self._set_of, np.array(which, dtype=np.int32)])

    def rows(self, tasks: Indices) -> sparse.csr_array:
        """The rows of `tasks` [M, D]."""
        ones = sparse.csr_array(np.ones((len(tasks), 1)))
        base = (PER_ENV * self.env[tasks])[:, None]
        octave, weight = self._octaves[0][tasks], self._octaves[1][tasks]
        columns = np.concatenate([base, base + 1 + octave], axis=1)
        values = np.concatenate([np.ones((len(tasks), 1)), OWN_LENGTH * weight], axis=1)
        pointer = np.arange(0, 3 * len(tasks) + 1, 3)
        shape = (len(tasks), PER_ENV * self.environments)
        own = sparse.csr_array((values.ravel(), columns.ravel(), pointer), shape=shape)
        blocks = [ones, *self._text_of(tasks), self._tools[self._set_of[tasks]], own]
        return sparse.csr_array(sparse.hstack(blocks, format="csr", dtype=np.float64))

    def _text_of(self, tasks: Indices) -> tuple[sparse.csr_array, sparse.csr_array]:
        """The length and the words of `tasks` [M, .], [M, WORDS]."""
        text = self._text[tasks]
        return self._lengths[text.indices[text.indptr[:-1]] - WORDS], text[:, :WORDS]

    def dot(self, weights: Floats) -> Floats:
        """Row times `weights` [D], for every task [N]: one pass over the words, look-ups for the rest."""
        like = self._like
        tools = self._tools @ weights[TOOLS_FROM:ENV_FROM]
        rest = weights[0] + tools[self._set_of[like]] + self._own(like, weights)
        lengths = self._lengths @ weights[LENGTH_FROM:WORDS_FROM].astype(np.float32)
        words = weights[WORDS_FROM:TOOLS_FROM].astype(np.float32)
        out: Floats = rest.take(self._kinds)
        out += self._text @ np.concatenate([words, lengths])
        return out

    def split(self, tasks: Indices, weights: Floats) -> Floats:
        """Row times `weights` [D] of `tasks`, by the blocks of `PARTS` [M, 5]; together: a row costs a millisecond."""
        length, words = self._text_of(tasks)
        return np.column_stack(
            [
                np.full(len(tasks), weights[0]),
                length @ weights[LENGTH_FROM:WORDS_FROM],
                words @ weights[WORDS_FROM:TOOLS_FROM],
                self._tools[self._set_of[tasks]] @ weights[TOOLS_FROM:ENV_FROM],
                self._own(tasks, weights),
            ]
        )

    def _own(self, tasks: Indices, weights: Floats) -> Floats:
        """What the columns of their environments add to `tasks` [M]."""
        own, first = weights[ENV_FROM:], PER_ENV * self.env[tasks]
        octave, weight = self._octaves[0][tasks], self._octaves[1][tasks]
        found: Floats = own[first] + OWN_LENGTH * (weight * own[(first + 1)[:, None] + octave]).sum(axis=1)
        return found


def _empty(rows: int, columns: int) -> sparse.csr_array:
    nothing = np.zeros(0, dtype=np.int64)
    return sparse.csr_array((nothing.astype(np.float32), (nothing, nothing)), shape=(rows, columns))


def _joined(known: sparse.csr_array, fresh: sparse.csr_array) -> sparse.csr_array:
    """Rows below rows, with indices no longer than they need be: half the memory of a product, and of the matrix."""
    out = sparse.csr_array(sparse.vstack([known, fresh], format="csr"))
    short = sparse.get_index_dtype(maxval=max(out.nnz, *out.shape))
    out.indptr, out.indices = out.indptr.astype(short, copy=False), out.indices.astype(short, copy=False)
    return out


def _kinds(
    env: Indices, tools: NDArray[np.int32], octaves: tuple[NDArray[np.int32], NDArray[np.float32]]
) -> tuple[Indices, Indices]:
    """Tasks alike in environment, set of tools and own length: one of each kind, and the kind of every task [N]."""
    _, length = np.unique(octaves[0][:, 0] + octaves[1][:, 1], return_inverse=True)
    several = max(int(tools.max(initial=0)), int(length.max(initial=0))) + 1
    alike = (env * several + tools) * several + length
    _, like, kinds = np.unique(alike, return_index=True, return_inverse=True)
    return like, kinds


def _measures(task: TaskSpec) -> tuple[int, int, int, int]:
    text = task.text
    return len(text.split()), text.count("\n") + 1, len(_NUMBER.findall(text)), len(task.calls or ())


def _octaves(measures: Floats) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Each measure [M, K] as two neighbouring octaves and their weights [M, K, 2], linear between them."""
    octave = np.minimum(np.log2(1.0 + measures), OCTAVES - 1.0)
    low = np.minimum(octave.astype(np.int32), OCTAVES - 2)
    rest = (octave - low).astype(np.float32)
    return np.stack([low, low + 1], axis=-1), np.stack([1.0 - rest, rest], axis=-1)


def _spread(octave: NDArray[np.int32], weight: NDArray[np.float32]) -> sparse.csr_array:
    """The length block [M, MEASURES * OCTAVES]."""
    columns = octave + OCTAVES * np.arange(MEASURES, dtype=np.int32)[None, :, None]
    pointer = np.arange(0, 2 * MEASURES * len(octave) + 1, 2 * MEASURES)
    return sparse.csr_array(
        (weight.ravel(), columns.ravel(), pointer), shape=(len(octave), MEASURES * OCTAVES), dtype=np.float32
    )


def _hashed(texts: Sequence[str], columns: int) -> sparse.csr_array:
    """Which words a text has [M, columns], each row of length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer  # on first use: slow to import

    vectorizer = HashingVectorizer(
        n_features=columns, binary=True, alternate_sign=False, norm="l2", token_pattern=_TOKEN, dtype=np.float32
    )
    return sparse.csr_array(vectorizer.transform(texts))

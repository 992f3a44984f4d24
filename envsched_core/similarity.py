"""What two tasks have in common, as feature blocks whose dot products are similarities. Pure functions.

Every block is a sparse matrix [N, D] with rows of length 1 (or 0 where a task has nothing to say there).
`combine` lays blocks side by side, so that the cosine of two rows is a weighted mean of the blocks'
cosines over what both tasks have, and splits exactly into the blocks' parts.

Within an environment: text, tools, state objects, verifier, reference call path.
Across environments: roles of the calls (the execution pattern), their shape, and the reward topology;
never tool names or plain text, which do not link domains. scikit-learn is loaded on first use: a scheduler
without a graph should not pay for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .records import TaskSpec, Tool

__all__ = [
    "CROSS_WEIGHTS",
    "ROLES",
    "WITHIN_WEIGHTS",
    "call_roles",
    "combine",
    "cross_blocks",
    "pattern_blocks",
    "pattern_name",
    "role_of",
    "within_blocks",
]

Matrix = sparse.csr_array
Calls = tuple[str, ...]
Indices = NDArray[np.int64]

WITHIN_WEIGHTS = {"text": 0.4, "tools": 0.15, "state": 0.1, "verifier": 0.05, "calls": 0.3}
CROSS_WEIGHTS = {"roles": 0.6, "shape": 0.15, "topology": 0.25}

ROLES: dict[str, str] = {
    "look_up": "get fetch read retrieve view show check inspect detail details lookup load describe status display"
    " think recall",
    "search": "search find list query filter browse lookup_all explore grep locate match scan discover",
    "create": "create add new make book insert register open generate write post place schedule start init touch mkdir"
    " upload submit draft compose build import",
    "update": "update modify edit change set put rename adjust replace patch configure fill enable disable activate"
    " deactivate toggle press lock unlock reset mark assign fix increase decrease",
    "delete": "delete remove cancel drop clear rm erase revoke unassign close stop end withdraw terminate rmdir",
    "move": "move transfer copy mv cp cd navigate go export forward route exchange swap return shift ship deliver",
    "compute": "compute calculate calc convert sum count estimate mean average sort evaluate solve run execute python"
    " eval compare diff analyze analyse plot round divide multiply subtract percentage max min std logarithm",
    "pay": "pay refund charge buy purchase order invoice bill deposit fund trade sell issue redeem",
    "message": "send message email notify reply comment tweet retweet contact call tell ask alert mention follow"
    " invite",
    "authenticate": "login logout authenticate auth verify identify signin signout sign authorize confirm password",
    "answer": "answer respond finish final done complete submit_answer escalate handoff human",
}
_ROLE = {role: i for i, role in enumerate([*ROLES, "other"])}
_VERBS = {verb: role for role, verbs in ROLES.items() for verb in verbs.split()}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@lru_cache(maxsize=65536)
def words_of(name: str) -> tuple[str, ...]:
    """Lower-case words of a snake_case, kebab-case or camelCase name."""
    return tuple(word.lower() for word in _WORD.findall(name))


@lru_cache(maxsize=65536)
def role_of(name: str, description: str = "") -> str:
    """The abstract role of a tool: from the verb in its name, else in its description, else ``other``."""
    for words in (words_of(name), words_of(description)[:8]):
        for word in words:
            role = _VERBS.get(word) or _VERBS.get(word.removesuffix("s"))
            if role:
                return role
    return "other"


def call_roles(calls: Iterable[str], tools: Sequence[Tool] = ()) -> tuple[str, ...]:
    """The role of every call; `tools` lend their descriptions where a name says nothing."""
    described = {tool.name: tool.description for tool in tools}
    return tuple(role_of(call, described.get(call, "")) for call in calls)


def pattern_name(roles: Sequence[str], most: int = 5) -> str:
    """A readable name of an execution pattern: its roles in order, repeats folded, cut after `most`."""
    folded = [role for i, role in enumerate(roles) if i == 0 or role != roles[i - 1]]
    name = " > ".join(role.replace("_", " ") for role in folded[:most])
    return name + (" > ..." if len(folded) > most else "") if folded else "no call"


def _normalised(matrix: Matrix) -> Matrix:
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.csr_array(sparse.diags_array(1.0 / np.where(norms > 0, norms, 1.0)) @ matrix)


def _counted(rows: Sequence[Mapping[Hashable, float]]) -> Matrix:
    """Rows of feature counts as a normalised matrix; columns in order of first appearance."""
    columns: dict[Hashable, int] = {}
    indices, data, indptr = [], [], [0]
    for row in rows:
        for feature, count in row.items():
            indices.append(columns.setdefault(feature, len(columns)))
            data.append(float(count))
        indptr.append(len(indices))
    shape = (len(rows), max(len(columns), 1))
    return _normalised(sparse.csr_array((np.array(data), np.array(indices, dtype=np.int64), indptr), shape=shape))


def _ngrams(sequence: Sequence[str], longest: int) -> Counter[Hashable]:
    return Counter(
        tuple(sequence[i : i + size]) for size in range(1, longest + 1) for i in range(len(sequence) - size + 1)
    )


def _text_block(texts: Sequence[str]) -> Matrix:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", max_features=50_000)
    try:
        return sparse.csr_array(vectorizer.fit_transform(texts))
    except ValueError:  # no task of this environment has a word
        return sparse.csr_array((len(texts), 1))


def _tool_words(tool: Tool) -> set[str]:
    return {*words_of(tool.name), *words_of(tool.description), *(w for p in tool.parameters for w in words_of(p))}


def _tools_block(tasks: Sequence[TaskSpec]) -> Matrix:
    """Tool names beside the words of their documentation, each kind with half of the row's length."""
    sets: dict[tuple[Tool, ...], int] = {}
    known: dict[int, int] = {}  # a set that tasks share as one object is hashed once
    for task in tasks:
        if id(task.tools) not in known:
            known[id(task.tools)] = sets.setdefault(task.tools, len(sets))
    rows: list[dict[Hashable, float]] = []
    for tools in sets:
        names = {("name", tool.name) for tool in tools}
        words = {("word", word) for tool in tools for word in _tool_words(tool)}
        row: dict[Hashable, float] = dict.fromkeys(names, len(names) ** -0.5) if names else {}
        row.update(dict.fromkeys(words, len(words) ** -0.5) if words else {})
        rows.append(row)
    return sparse.csr_array(_counted(rows)[[known[id(task.tools)] for task in tasks]])


def within_blocks(tasks: Sequence[TaskSpec]) -> dict[str, Matrix]:
    """Feature blocks of the tasks of one environment, by part."""
    return {
        "text": _text_block([task.text for task in tasks]),
        "tools": _tools_block(tasks),
        "state": _counted([dict.fromkeys(task.state, 1.0) for task in tasks]),
        "verifier": _counted([{task.verifier: 1.0} if task.verifier else {} for task in tasks]),
        "calls": _counted([_ngrams(task.calls or (), 2) for task in tasks]),
    }


def cross_blocks(
    patterns: Mapping[str, Matrix], pattern: NDArray[np.int64], topology: NDArray[np.float64]
) -> dict[str, Matrix]:
    """Feature blocks across environments, by part.

    Args:
        patterns: `pattern_blocks` of the distinct execution patterns.
        pattern: execution pattern of each row [N], as a row of them.
        topology: where its rewards lie [N, D], zero rows where nothing was seen.
    """
    blocks = {part: sparse.csr_array(block[pattern]) for part, block in patterns.items()}
    return {**blocks, "topology": _normalised(sparse.csr_array(topology))}


def pattern_blocks(kinds: Sequence[Sequence[Calls]]) -> dict[str, Matrix]:
    """Feature blocks of execution patterns, by part: counts of 1- to 3-grams of roles, and shape.

    Args:
        kinds: role sequences: one of a reference path, or one of each observed rollout; blank = nothing is known.
    """
    sequences = [s for pattern in kinds for s in pattern if s]
    owner = np.repeat(np.arange(len(kinds)), [sum(map(bool, pattern)) for pattern in kinds])
    size = np.array([len(s) for s in sequences], dtype=np.int64)
    role = np.array([_ROLE[r] for s in sequences for r in s], dtype=np.int64)
    sequence = np.repeat(np.arange(len(sequences)), size)
    many, base = len(_ROLE), 0
    rows, cols = [], []
    gram = np.zeros(len(role), dtype=np.int64)
    for longer in range(3):
        # The n-gram that begins at each call, as a number; it must not reach into the next sequence.
        gram = gram[: len(role) - longer] * many + role[longer:]
        whole = sequence[: len(role) - longer] == sequence[longer:]
        rows.append(owner[sequence[: len(role) - longer][whole]])
        cols.append(base + gram[whole])
        base += many ** (longer + 1)
    at = (np.concatenate(rows).astype(np.int32), np.concatenate(cols).astype(np.int32))
    counts = sparse.csr_array((np.ones(len(at[0])), at), shape=(len(kinds), base))
    counts.sum_duplicates()
    return {"roles": _normalised(counts), "shape": _shapes(len(kinds), owner, size, sequence * many + role)}


def _shapes(many: int, owner: Indices, size: Indices, calls: Indices) -> Matrix:
    """Mean length (octaves, linearly spread over two) and branching (different roles per call) of patterns.

    `owner`, `size`: pattern and length of each sequence; `calls`: a number for each pair of sequence and role.
    """
    sequences = np.bincount(owner, minlength=many)
    known = np.flatnonzero(sequences)
    octave = np.log2(np.bincount(owner, size, minlength=many)[known] / sequences[known])
    different = np.bincount(np.unique(calls) // len(_ROLE), minlength=len(size)) / size
    branching = np.bincount(owner, different, minlength=many)[known] / sequences[known]
    low = octave.astype(np.int64)
    values = np.concatenate([1.0 - (octave - low), octave - low, branching])
    columns = np.concatenate([low + 1, low + 2, np.zeros(len(known), dtype=np.int64)])
    shape = (many, int(columns.max(initial=0)) + 1)
    return _normalised(sparse.csr_array((values, (np.tile(known, 3), columns)), shape=shape))


def combine(blocks: Mapping[str, Matrix], weights: Mapping[str, float]) -> tuple[Matrix, dict[str, Matrix]]:
    """Lay blocks side by side: rows of length 1 [N, D], and each part's own columns of them.

    The dot product of two rows is their similarity in [0, 1]; the parts' dot products sum to it.
    """
    scaled = {part: block * weights[part] ** 0.5 for part, block in blocks.items()}
    joined: Any = sparse.hstack(list(scaled.values()), format="csr")
    norms = np.sqrt(np.asarray(joined.multiply(joined).sum(axis=1)).ravel())
    inverse = sparse.diags_array(1.0 / np.where(norms > 0, norms, 1.0))
    parts = {part: sparse.csr_array(inverse @ block) for part, block in scaled.items()}
    return sparse.csr_array(inverse @ joined), parts

"""Catalogue: the registered tasks and their indices. An index, once given, never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ContractError, UnknownTaskError
from .keyed import Hashes, name_hash
from .records import TaskSpec

__all__ = ["Catalogue"]


class Catalogue:
    """N tasks in E environments, in order of registration."""

    def __init__(self) -> None:
        """Starts empty."""
        self.tasks: list[TaskSpec] = []
        self.index: dict[str, int] = {}
        self.env_names: list[str] = []
        self.env_index: dict[str, int] = {}
        self.env: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.hashes: Hashes = np.zeros(0, dtype=np.uint64)
        self.redescribed = 0  # how often a known task was described differently

    def __len__(self) -> int:
        """N."""
        return len(self.tasks)

    def add(self, tasks: Sequence[TaskSpec]) -> list[int]:
        """Take in tasks; a key known already is replaced by the newer description. Returns the new indices.

        Raises:
            ContractError: a task has no environment or no id, or an environment holds ``::``.
        """
        for task in tasks:  # all of them first: a refused call changes nothing
            if not task.env or not task.task:
                raise ContractError(f"a task needs an environment and an id, got {task.env!r}::{task.task!r}")
            if "::" in task.env:
                raise ContractError(f"environment {task.env!r}: a name cannot hold '::', which ends it in ENV::TASK")
        fresh = []
        for task in tasks:
            known = self.index.setdefault(task.key, len(self.tasks))
            if known < len(self.tasks):
                self.redescribed += self.tasks[known] != task
                self.tasks[known] = task
                continue
            self.tasks.append(task)
            fresh.append(known)
            if self.env_index.setdefault(task.env, len(self.env_names)) == len(self.env_names):
                self.env_names.append(task.env)
        new = [self.tasks[i] for i in fresh]
        self.env = np.concatenate([self.env, np.array([self.env_index[t.env] for t in new], dtype=np.int64)])
        self.hashes = np.concatenate([self.hashes, np.array([name_hash(t.key) for t in new], dtype=np.uint64)])
        return fresh

    def position(self, key: str) -> int:
        """Index of ``ENV::TASK``.

        Raises:
            UnknownTaskError: no such task is registered.
        """
        if key not in self.index:
            raise UnknownTaskError(f"task '{key}' is not registered; tasks are named ENV::TASK")
        return self.index[key]

    def mask(self, tasks: Sequence[str], environments: Sequence[str]) -> NDArray[np.bool_]:
        """Tasks [N] named by key or by environment; unknown names are passed over (they may join later)."""
        out = np.zeros(len(self), dtype=bool)
        out[[self.index[key] for key in tasks if key in self.index]] = True
        named = [self.env_index[name] for name in environments if name in self.env_index]
        return out | np.isin(self.env, named)

    def state_dict(self) -> dict[str, Any]:
        """Keys and environment names in order."""
        return {"keys": list(self.index), "environments": list(self.env_names)}

    def translate(self, state: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where saved tasks and environments are here: two index arrays, -1 = gone."""
        tasks = np.array([self.index.get(key, -1) for key in state["keys"]], dtype=np.int64)
        envs = np.array([self.env_index.get(name, -1) for name in state["environments"]], dtype=np.int64)
        return tasks, envs

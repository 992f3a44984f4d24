"""The catalogue: indices never change."""

from __future__ import annotations

import pytest

from envsched_core.catalogue import Catalogue
from envsched_core.errors import ContractError, UnknownTaskError
from envsched_core.records import TaskSpec


def test_tasks_join_and_are_described_anew() -> None:
    catalogue = Catalogue()
    assert catalogue.add([TaskSpec("a", "1"), TaskSpec("b", "1")]) == [0, 1]
    assert catalogue.add([TaskSpec("a", "1", text="new"), TaskSpec("a", "2")]) == [2]
    assert catalogue.tasks[0].text == "new"
    assert catalogue.env.tolist() == [0, 1, 0]
    assert catalogue.mask(["a::2", "x::y"], ["b"]).tolist() == [False, True, True]


def test_errors() -> None:
    catalogue = Catalogue()
    with pytest.raises(ContractError):
        catalogue.add([TaskSpec("", "1")])
    with pytest.raises(ContractError, match="::"):
        catalogue.add([TaskSpec("b", "1"), TaskSpec("a::b", "c")])
    assert len(catalogue) == 0
    with pytest.raises(UnknownTaskError):
        catalogue.position("a::1")


def test_translate_marks_what_is_gone() -> None:
    old, new = Catalogue(), Catalogue()
    old.add([TaskSpec("a", "1"), TaskSpec("b", "1")])
    new.add([TaskSpec("c", "1"), TaskSpec("b", "1")])
    tasks, envs = new.translate(old.state_dict())
    assert tasks.tolist() == [-1, 1]
    assert envs.tolist() == [-1, 1]

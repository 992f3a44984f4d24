"""Usual names in metadata, what a transcript asks, and groups taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.importers.extras import Documents, named, objects, opening, parallel, unpacked
from envsched_core.importers.files import Record
from envsched_core.importers.values import RowError


@pytest.mark.parametrize(
    ("holders", "found"),
    [
        ([{"task_id": 3}], "3"),
        ([{"other": 1}, {"id": "x"}], "x"),
        ([{"scenario": "s", "id": "x"}], "s"),
        ([{"extra_info": {"index": 0}}], "0"),
        ([{"extra_info": '{"index": 4}'}], "4"),
        ([{"task_id": {"no": "name"}, "id": None}], ""),
        ([], ""),
    ],
)
def test_an_id_is_found_under_its_usual_names(holders, found):
    assert named(holders, "task", "scenario") == found


def test_objects_are_told_from_the_rest():
    assert objects({"a": 1}, '{"b": 2}', "text", None, {}, [1]) == [{"a": 1}, {"b": 2}]


def test_a_transcript_asks_what_stands_before_the_models_first_word():
    said = [("system", "s"), ("user", "one"), ("user", "two"), ("assistant", "a"), ("user", "three")]
    assert opening([{"role": role, "content": content} for role, content in said]) == "one\ntwo"
    assert opening(None) == opening("text") == ""


def test_tools_are_read_again_only_when_they_change():
    documents = Documents()
    first = documents([{"name": "a"}])
    assert documents([{"name": "a"}]) is first
    assert [tool.name for tool in documents('[{"name": "b"}]')] == ["b"]
    assert documents(None) == ()


@given(st.lists(st.integers(), min_size=1, max_size=5))
def test_lists_side_by_side_become_rollouts(values):
    found = list(parallel({"a": values, "b": None}, ("a", "b", "c"), len(values)))
    assert found == [{"a": value, "b": None, "c": None} for value in values]
    with pytest.raises(RowError, match="a has not one entry per rollout"):
        list(parallel({"a": values}, ("a",), len(values) + 1))


def test_what_cannot_be_taken_apart_keeps_its_line():
    def items(value):
        if value == "refused":
            raise RowError("no scores")
        yield {"score": value["scores"][0]}

    records = [Record(1, {"scores": [1]}), Record(2, "refused"), Record(3, {}), Record(4, None, "not JSON")]
    assert [(record.line, record.value, record.problem) for record in unpacked(records, items)] == [
        (1, {"score": 1}, ""),
        (2, None, "no scores"),
        (3, None, "unexpected content (KeyError)"),
        (4, None, "not JSON"),
    ]

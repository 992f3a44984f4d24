"""Rows read in blocks give the same run as rows read one by one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.importers import ImportOptions, blocks, driver, grouping, import_log, import_run, table
from envsched_core.importers.formats import read_in_blocks, reader_of

ids = st.sampled_from(["a", "b", " a", 1, 7])
plain = st.fixed_dictionaries(
    {"env": st.sampled_from(["shop", "air"]), "task_id": ids, "reward": st.sampled_from([0, 0.5, 1.0, None])},
    optional={"note": st.sampled_from([None, "x", [1, {"a": 2}]])},
)
told = {
    "group_id": st.none() | ids,
    "step": st.none() | st.integers(0, 2),
    "rollout_id": st.none() | st.integers(0, 1),
    "policy": st.sampled_from([None, "", "small", 3]),
    "trained": st.sampled_from([None, True, False, "yes"]),
    "prompt": st.sampled_from([None, "", "one", "two"]),
    "completion": st.sampled_from([None, "so", [{"role": "assistant", "content": "x", "tool_calls": ["f(1)"]}]]),
    "calls": st.sampled_from([None, [], ["f", "g"], [{"name": "f", "arguments": {"x": 1}}], "f g"]),
    "tools": st.sampled_from([None, [], ["f"], [{"name": "g", "description": "does"}]]),
    "metrics": st.none() | st.dictionaries(st.sampled_from("uv"), st.floats(-2, 2) | st.integers(-2, 2), max_size=2),
    "tokens": st.none() | st.integers(0, 9) | st.floats(0, 9),
    "seconds": st.none() | st.floats(0, 0.3),
    "status": st.sampled_from([None, "stop", "Error", 4]),
    "error": st.sampled_from([None, False, "", "boom", {}]),
}
"""Further columns, with values that are as they should be."""
ODD = {
    "env": [None, "", "a::b", "x\x07", 2.5],
    "task_id": [None, "", "  ", "n" * 300, "\ud800", True, 1.0, ["l"]],
    "reward": [float("nan"), 1e200, "1", "no", [1, 0], True, {"a": 1}],
    "step": [-1, 1.0, "2", "x"],
    "tokens": [-1, "9", True, 1e300],
    "metrics": [{"u": None}, {"u": True}, {"u": {"score": 1}}, "{}", [1]],
    "policy": ["p" * 300, ["x"]],
    "trained": [False, None, "no"],
    "id": ["another"],
    "error": ["boom"],
    "total_ms": [5],
    'a "key"\n': [1],
}
"""What rows must be read one by one for, for most of it."""
odd = st.fixed_dictionaries({}, optional={column: st.sampled_from(values) for column, values in ODD.items()})
broken = st.sampled_from([b"", b"{", b"[1]", b'{"env": "\xff"}', b"\xef\xbb\xbf{}", b" {} {}", b"[" * 2000, b"x" * 700])


@st.composite
def logs(draw):
    """The bytes of a log, most of its rows plain, and whether it ends in a newline."""
    columns = draw(st.sets(st.sampled_from(sorted(told))))
    row = st.builds(lambda first, more: {**first, **more}, plain, st.fixed_dictionaries({c: told[c] for c in columns}))
    rows = [json.dumps(each).encode() for each in draw(st.lists(row, min_size=1, max_size=12))]
    lines = rows * draw(st.integers(1, 8))
    for at in draw(st.lists(st.integers(1, len(lines)), max_size=3)):
        merged = json.dumps({**json.loads(rows[0]), **draw(odd)}).encode()
        lines.insert(at, draw(st.sampled_from([merged, draw(broken)])))
    return b"\n".join(lines) + draw(st.sampled_from([b"\n", b"", b"\r\n", b'\n{"env": "sh']))


def run_of(log, folder, options):
    """What an import wrote, file by file, or why it did not."""
    try:
        report = import_run([log], folder, options)
    except driver.LogFormatError as error:
        return str(error)
    names = ["tasks.jsonl", "tools.jsonl", "rollouts/rollouts.jsonl", "events/seg-000000.jsonl"]
    return report, {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def one_by_one(format, source, context):
    return reader_of(format).read(source, context)


def assert_same_run(folder, content, env, size):
    """That a log gives one run, in blocks and row by row."""
    log = folder / "log.jsonl"
    log.write_bytes(content)
    options = ImportOptions(env=env, format="table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENVSCHED_MAX_RECORD_BYTES", "600")
        patch.setattr(blocks, "BLOCK_BYTES", size)
        patch.setattr(blocks, "FEWEST", 2)
        patch.setattr(grouping, "MAX_GROUP", 30)
        found = run_of(log, folder / "blocks", options)
        patch.setattr(driver, "read_in_blocks", one_by_one)
        assert run_of(log, folder / "rows", options) == found


@given(content=logs(), env=st.sampled_from([None, "given"]), size=st.sampled_from([900, blocks.BLOCK_BYTES]))
def test_blocks_give_the_run_that_rows_give(tmp_path_factory, content, env, size):
    assert_same_run(tmp_path_factory.mktemp("blocks"), content, env, size)


@pytest.mark.parametrize("column", ODD)
def test_an_odd_value_is_read_as_ever(tmp_path, column):
    for number, value in enumerate(ODD[column]):
        (folder := tmp_path / str(number)).mkdir()
        whole = {"env": "e", "task_id": "t", "policy": None, "step": 1, "reward": 0.5, "tokens": 3, "trained": True}
        whole["metrics"] = {"u": 1}
        rows = [json.dumps(row) for row in (*[whole] * 5, whole | {column: value}, *[whole] * 5)]
        assert_same_run(folder, "\n".join(rows).encode(), None, blocks.BLOCK_BYTES)


def test_what_a_task_asks_is_what_its_first_rows_say(tmp_path):
    """A later group's prompt must not go before that of an earlier row, nor a row with tools alone lose the prompt."""
    told = [("a", None, None), ("a", "one", None), ("b", "two", None), ("b", "", ["f"]), ("c", "one", ["g"])]
    rows = [
        {"env": "e", "task_id": "t", "reward": 0.5, "group_id": group, "prompt": prompt, "tools": tools}
        for group, prompt, tools in told * 4
    ]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert_same_run(tmp_path, content, None, blocks.BLOCK_BYTES)
    task = import_log([tmp_path / "log.jsonl"]).tasks[0]
    assert (task.text, [tool.name for tool in task.tools]) == ("one", ["f"])


def test_lines_that_are_no_rows_are_touched_a_few_times_each(tmp_path, monkeypatch):
    """However many there are: the rest of a block is not gone through again at each."""
    touched = 0

    class Counting(list):
        def __iter__(self):
            nonlocal touched
            touched += len(self)
            return super().__iter__()

        def __getitem__(self, at):
            nonlocal touched
            found = super().__getitem__(at)
            touched += len(found) if isinstance(at, slice) else 1
            return found

    lines_of = table.lines_of
    monkeypatch.setattr(table, "lines_of", lambda source: map(Counting, lines_of(source)))
    log = tmp_path / "log.jsonl"
    log.write_text('{"env": "e", "task_id": "t", "reward": 1}\n' * 20 + "\n" * 10_000)
    assert import_log([log]).report.rows == 20
    assert 10_020 <= touched < 5 * 10_020


def test_a_plain_log_is_read_in_blocks(tmp_path, monkeypatch):
    rows = [{"env": "e", "task_id": k // 4, "reward": 0.5, "timing": {"start": 1}} for k in range(100)]
    rows[50] |= {"error": "an other column"}
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = []
    monkeypatch.setattr(
        driver, "read_in_blocks", lambda *given: (seen.append(item) or item for item in read_in_blocks(*given))
    )
    assert import_run([log], tmp_path / "run").rows == 100
    assert [len(item) for item in seen if isinstance(item, blocks.Block)] == [50, 100 - 50 - blocks.FEWEST]

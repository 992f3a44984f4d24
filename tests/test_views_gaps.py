from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from small_run import write_run

from envsched_core import views
from envsched_core.views import RunView
from envsched_core.views.gaps import Numbers, gap_table

SEGMENT = "events/seg-000000.jsonl"


@given(st.lists(st.sampled_from(["read", "unread", "lost", "end"]), max_size=40))
def test_only_what_no_line_stands_for_is_missing(lines):
    """A log of numbered lines: some can be read, some not, some are gone; `end` closes a segment."""
    numbers, segment, line, unread, lost = Numbers(), 0, 0, 0, 0
    waiting = False  # something is gone since the last line that was read
    gaps = 0
    for number, kind in enumerate(lines):
        number -= lines[:number].count("end")
        if kind == "end":
            segment, line = segment + 1, 0
        elif kind == "lost":
            lost, waiting = lost + 1, True
        elif kind == "unread":
            line, unread = line + 1, unread + 1
        else:
            line += 1
            numbers.take(number, f"seg-{segment}", line, 0, unread)
            gaps, waiting = gaps + waiting, False
    assert numbers.count == gaps
    read = [i for i, kind in enumerate(lines) if kind == "read"]
    gone = lines[: read[-1]].count("lost") if read else 0
    assert gap_table(numbers)["missing"].sum() == gone


def test_numbers_that_go_back_leave_nothing_out():
    numbers = Numbers()
    for line, number in enumerate([0, 1, 1, 2, 0], 1):
        numbers.take(number, "seg", line, 10 * line, 0)
    assert numbers.count == 2
    assert gap_table(numbers)[["line", "offset", "after", "event", "missing"]].to_numpy().tolist() == [
        [3, 30, 1, 1, 0],
        [5, 50, 2, 0, 0],
    ]


def test_a_line_that_is_gone_is_found_while_reading(tmp_path: Path) -> None:
    run = write_run(tmp_path / "demo")
    lines = (run / SEGMENT).read_bytes().splitlines(keepends=True)
    (run / SEGMENT).write_bytes(b"".join([*lines[:3], b"{broken\n", *lines[4:6], *lines[8:]]))
    view = RunView(run)
    view.poll()
    place = len(b"".join([*lines[:3], b"{broken\n", *lines[4:6]]))
    assert views.log_facts(view).gaps == 1
    assert views.log_gaps(view).iloc[0].tolist() == [SEGMENT, 7, place, 5, 8, 2]

from __future__ import annotations

import csv
import io
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsched_core.views import csv_bytes


@pytest.mark.security
@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1", " =1", "a;=1", "a\t=1", "a\n@x", "\uff1d1"]
)
def test_no_cell_is_a_formula(text):
    rows = list(csv.reader(io.StringIO(csv_bytes(pd.DataFrame({text: [text]})).decode(), newline="")))
    for cell in (rows[0][0], rows[1][0]):
        assert cell.replace("'", "") == text
        assert "'" in cell
        for part in re.split(r"[;\t\r\n]", cell):
            assert not part.lstrip().startswith(("=", "+", "-", "@", "\uff1d"))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.floats(allow_nan=False))
def test_csv_keeps_numbers_and_loses_no_text(text, value):
    data = csv_bytes(pd.DataFrame({"text": [text], "value": [value]}))
    _, (cell, number) = csv.reader(io.StringIO(data.decode(), newline=""))
    assert cell.replace("'", "") == text.replace("'", "")
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    assert float(number) == value


def test_numbers_stay_numbers_and_names_of_columns_are_guarded():
    table = pd.DataFrame({"=task": ["=1+1", " +x", "@a", "-2", "fine"], "n": [-1, 2, 3, 4, 5]})
    rows = list(csv.reader(io.StringIO(csv_bytes(table).decode(), newline="")))
    assert rows[0] == ["'=task", "n"]
    assert [row[0] for row in rows[1:]] == ["'=1+1", "' +x", "'@a", "'-2", "fine"]
    assert rows[1][1] == "-1"


def test_half_a_surrogate_pair_is_no_reason_to_fail():
    table = pd.DataFrame({"task": pd.Series(["a\ud800b", "c"], dtype=object)})
    assert csv_bytes(table).decode().splitlines() == ['"task"', '"a?b"', '"c"']

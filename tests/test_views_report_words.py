from __future__ import annotations

import math

import msgspec
import pandas as pd
import pytest

from envsched_core.evaluate import Interval
from envsched_core.views import report_words
from envsched_core.views.report_facts import Guessing, Savings


@pytest.mark.parametrize(
    ("mean", "low", "high", "start"),
    [(0.1, 0.05, 0.2, "Yes: scheduling spent"), (-0.1, -0.2, -0.05, "No: "), (0.1, -0.1, 0.2, "Not clearly: ")],
)
def test_the_answer_on_savings_follows_its_interval(mean, low, high, start):
    found = Savings("pool", "how", 1000, 250, 90, 0.5, 0.5 + mean, Interval(mean, low, high))
    text = report_words.savings_sentence(found)
    assert text.startswith(start)
    if found.clear:
        assert f"100 rollouts {'fewer' if mean > 0 else 'more'} wasted (95 % interval 50 to 200)" in text
    else:
        assert "-100 to +200 rollouts saved" in text


GUESSING = Guessing(
    picks=100, guesses=10, informed=60, guesses_until=2, last_guess=4, informed_from=5, informed_steps=7, steps=10,
    last_state="own history", predicts=True,
)  # fmt: skip


def test_every_end_of_guessing_has_its_words():
    def text(**changed):
        return report_words.guessing_sentence(msgspec.structs.replace(GUESSING, **changed), 9)

    first = "After step 2, the last one at which most picks were guesses"
    assert text().startswith(f"{first} (the very last guess was at step 4). From step 5 on")
    assert text(last_guess=2).startswith(f"{first}. From step 5 on")
    assert text(guesses_until=None).startswith("It hardly guessed at all")
    last = text(guesses_until=9, informed_from=None)
    assert last.startswith("At the last step most picks were guesses; so far it has not stopped. Over the whole run")
    late = text(informed_from=None, last_state="environment only")
    assert "or on tasks like it, was reached at 7 of 10 steps; at the last step" in late
    assert "the largest share of the picks rested on results of their environment, not of tasks like them. Over" in late
    assert "picks rested on their own results. Over" in text(informed_from=None, last_state="own history")
    assert text(predicts=False) == "It chose without predictions: it neither guessed nor stopped."


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({}, "after step 2"), ({"guesses_until": None}, "from the start"), ({"guesses_until": 9}, "not yet"),
        ({"predicts": False}, "n/a"), ({"picks": 0}, "n/a"),
    ],
)  # fmt: skip
def test_the_headline_of_guessing_says_what_the_sentence_says(changed, value):
    assert report_words.guessing_figure(msgspec.structs.replace(GUESSING, **changed), 9)[0] == value


def test_starved_environments_are_named_with_what_they_missed():
    table = pd.DataFrame(
        {
            "env": ["a", "b", "c"], "tasks": [10, 10, 10], "visits": [1, 14, 15], "expected": [10.0] * 3,
            "groups": [1, 14, 15], "mixed": [1, 7, 7], "log_mixed_share": [0.6, 0.3, 0.3],
            "starved": [True, False, False],
        }
    )  # fmt: skip
    text = report_words.starved_sentence(table, decided=True)
    assert "1 of 3 environments got less than 25% of the picks that uniform draws would have given" in text
    assert ": a (1 pick, 10 expected)." in text
    assert "60% of their groups are mixed, against 40% over all environments" in text
    assert "1 of their 1 observed group was mixed" in report_words.starved_sentence(
        table.assign(log_mixed_share=math.nan), decided=True
    )
    none = report_words.starved_sentence(table.assign(starved=False), decided=True)
    assert none.startswith("None: each of 3")
    assert none.endswith("Fewest, against that: a (1 pick, 10 expected).")


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("from /home/me/runs/log.jsonl, line 3", "from log.jsonl, line 3"),
        ('"/home/me/my logs/log.jsonl" is cut', '"log.jsonl" is cut'),
        ("rows of (/home/me/log.jsonl) and [/srv/x/]", "rows of (log.jsonl) and []"),
        ("see file:///home/me/log.jsonl:7", "see log.jsonl:7"),
        ("C:\\Users\\me\\log.jsonl and d:/me/b.csv", "log.jsonl and b.csv"),
        ("'C:\\my files\\log.jsonl' or \\\\host\\share\\c.csv", "'log.jsonl' or c.csv"),
        ("path=/home/me/a.csv; error:/srv/b.csv; ~/logs/c.csv", "path=a.csv; error:b.csv; c.csv"),
        ("1/2 of env/task at https://example.org/a/b, n/a", "1/2 of env/task at https://example.org/a/b, n/a"),
    ],
)
def test_folders_of_this_machine_are_left_out(note, kept):
    assert report_words.without_folders(note) == kept


@pytest.mark.parametrize(
    ("value", "text"), [(4979.6, "4,980"), (999.7, "1,000"), (98412.0, "98,412"), (12.345, "12.3"), (None, "n/a")]
)
def test_large_numbers_have_all_their_digits(value, text):
    assert report_words.number(value) == text

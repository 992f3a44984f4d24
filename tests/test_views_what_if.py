"""What-if tables and comparability: every cell against the decisions and runs they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.config import Config
from envsched_core.errors import ConfigError, UnknownTaskError
from envsched_core.replay import replay_pool
from envsched_core.replay.walk import Walk
from envsched_core.views.run_view import RunView

CHANGES = {"weight_task": 0.0, "max_shares": {"env1": 0.0}}


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> RunView:
    return opened(write_run(tmp_path_factory.mktemp("tables") / "demo"))


@pytest.fixture(scope="module")
def moments() -> views.Moments:
    return views.Moments()


@pytest.fixture(scope="module")
def found(view, moments) -> views.Rearranged:
    return moments.what_if(view, 2, CHANGES)


@pytest.fixture(scope="module")
def decided(view):
    moment = Walk(view.path).to(2)
    return moment.decide(), moment.decide(CHANGES)


def test_moves_say_what_both_decisions_say(found, decided):
    before, after = decided
    table = found.moves.set_index(["env", "task"])
    entering = {tuple(key.split("::")) for key in after.picks().keys() - before.picks().keys()}
    assert set(table[table["change"] == "enters"].index) == entering
    for (env, task), row in table.iterrows():
        for side, again in (("before", before), ("after", after)):
            told = again.explain(f"{env}::{task}")
            assert row[f"score_{side}"] == told.candidate.score
            assert (row[f"outcome_{side}"], row[f"why_{side}"]) == (told.candidate.outcome, told.verdict)
            position = told.candidate.position
            assert np.isnan(row[f"position_{side}"]) if position is None else row[f"position_{side}"] == position + 1
            assert row[f"cutoff_{side}"] == again.decisions[-1].cutoff
    assert found.picks == (8, 8)
    assert found.stay == 8 - len(entering)
    assert found.fault == ""


def test_terms_sum_to_both_scores(found):
    sums = found.terms.groupby(["env", "task"])[["before", "after"]].sum()
    scores = found.moves.set_index(["env", "task"])[["score_before", "score_after"]]
    assert sums.sort_index().to_numpy() == pytest.approx(scores.sort_index().to_numpy(), abs=1e-9)
    assert found.terms["difference"].to_numpy() == pytest.approx(
        (found.terms["after"] - found.terms["before"]).to_numpy()
    )


def test_environments_hold_every_pick_and_the_quotas(found, view):
    table = found.environments.set_index("env")
    recorded = view.query("SELECT env, count(*) n FROM outcomes WHERE step = 2 GROUP BY env").set_index("env")["n"]
    assert table["before"].sum() == table["after"].sum() == 8
    assert table.loc[recorded.index, "before"].tolist() == recorded.tolist()
    assert table["after"].get("env1", 0.0) == 0.0
    assert table["difference"].abs().is_monotonic_decreasing


def test_changes_are_told_with_what_they_were(found):
    assert found.changes.to_numpy().tolist() == [["weight_task", "1", "0"], ["max_shares", "none", "env1: 0"]]


def test_an_answer_is_kept_until_the_step_or_the_question_changes(view, moments, found):
    assert moments.what_if(view, 2, CHANGES) is found
    assert moments.what_if(view, 2, {}).moves.empty
    key = next(iter(found.moves.query("change == 'enters'").itertuples()))
    smallest = moments.smallest_change(view, 2, f"{key.env}::{key.task}")
    assert smallest.changes
    assert moments.smallest_change(view, 2, f"{key.env}::{key.task}") is smallest


def test_what_cannot_be_is_told(view, moments):
    with pytest.raises(ConfigError, match="cannot be changed for one step"):
        moments.what_if(view, 2, {"seed": 1})
    for wrong in (lambda: moments.what_if(view, 99, {}), lambda: views.what_if_settings(view, 99)):
        with pytest.raises(UnknownTaskError, match="at step 99"):
            wrong()


# ---------------------------------------------------------------------- comparability


@pytest.fixture(scope="module")
def replays(tmp_path_factory) -> dict[str, RunView]:
    """One log and replays of it, and a replay of another log."""
    folder = tmp_path_factory.mktemp("replays")
    write_log(folder / "log", steps=False)
    write_log(folder / "other", steps=True)
    made = {
        "a": ("log", 4, 0),
        "b": ("log", 4, 0),
        "seed": ("log", 4, 1),
        "batch": ("log", 6, 0),
        "source": ("other", 4, 0),
    }
    for name, (log, batch, seed) in made.items():
        replay_pool(folder / log, folder / name, config=Config(batch_size=batch, seed=seed), steps=2)
    return {name: opened(folder / name) for name in ("log", *made)}


def test_replays_of_one_log_are_comparable(replays):
    fit = views.comparability(replays["a"], replays["b"])
    assert (fit.word, fit.against, fit.care) == ("comparable", (), ())
    assert "another seed" in fit.limits[0]


def test_another_seed_is_comparable_with_care(replays):
    fit = views.comparability(replays["a"], replays["seed"])
    assert (fit.word, fit.against) == ("comparable with care", ())
    assert fit.care == ("their seeds differ (0 and 1): part of any difference is chance",)


BATCH, SOURCE = ("batch", "different batches: A takes 4"), ("source", "different sources")


@pytest.mark.parametrize(("other", "said"), [BATCH, SOURCE])
def test_another_batch_or_source_is_not_comparable(replays, other, said):
    fit = views.comparability(replays["a"], replays[other])
    assert fit.word == "not comparable"
    assert fit.against[0].startswith(said)


def test_another_pool_is_not_comparable(replays, view):
    fit = views.comparability(view, replays["a"])
    assert fit.word == "not comparable"
    assert fit.against[0] == "different pools: A has 48 tasks, B 24, and 24 are in both"
    assert any(
        reason.startswith("different sources: A holds the rewards of its own training") for reason in fit.against
    )


def test_a_log_has_the_rewards_of_its_replay(replays):
    fit = views.comparability(replays["log"], replays["a"])
    assert not any("source" in reason for reason in fit.against)
    assert any("of kind import" in reason for reason in fit.care)

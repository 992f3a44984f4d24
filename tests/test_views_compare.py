"""Two runs side by side: every number against a direct computation over both."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from small_run import opened, write_log, write_run

from envsched_core import views
from envsched_core.evaluate import paired_bootstrap, ratio_bootstrap
from envsched_core.views.run_view import RunView


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[RunView, RunView]:
    folder = tmp_path_factory.mktemp("pair")
    return opened(write_run(folder / "a")), opened(write_run(folder / "b", steps=5, batch=6, last_open=True))


@pytest.fixture(scope="module")
def found(pair) -> views.Comparison:
    return views.compare(*pair)


def outcomes(view: RunView) -> pd.DataFrame:
    return view.query("SELECT step, env, task, predicted, observed, mixed FROM outcomes")


def test_headline_figures_are_those_of_each_run(pair, found) -> None:
    table = found.headline.set_index("figure")
    for view, side in zip(pair, "ab", strict=True):
        summary = views.summary(view)
        assert table.loc["informative_share", side] == pytest.approx(summary.informative_share)
        assert table.loc["mean_variance", side] == pytest.approx(summary.mean_variance)
        assert table.loc["flat_share", side] == pytest.approx(summary.wasted_rollouts / summary.rollouts)
        assert table.loc["rollouts", side] == summary.rollouts
        assert table.loc["tokens", side] == 400.0 * summary.counted
        assert table.loc["tool_calls", f"{side}_known"] == 1.0
        assert (
            table.loc["informative_share", [f"{side}_low", f"{side}_high"]] - table.loc["informative_share", side]
        ).abs().max() > 0


def test_intervals_resample_steps_and_differences_pair_them(pair, found) -> None:
    row = found.headline.set_index("figure").loc["informative_share"]
    a, b = (outcomes(view)[lambda t: t["mixed"].notna()].groupby("step")["mixed"] for view in pair)
    interval = ratio_bootstrap(a.sum().astype(float).tolist(), a.size().astype(float).tolist(), seed=0)
    assert (row["a_low"], row["a_high"]) == pytest.approx((interval.low, interval.high))
    gaps = (a.mean() - b.mean()).dropna().astype(float)
    assert row["steps"] == len(gaps) == 4
    assert row[["difference", "low", "high"]].tolist() == pytest.approx(paired_bootstrap(gaps.tolist(), seed=0))
    tokens = found.headline.set_index("figure").loc["tokens"]
    groups = (a.size() - b.size()).dropna()
    assert tokens["difference"] == pytest.approx(400.0 * groups.sum())


def test_steps_beside_each_other(pair, found) -> None:
    table = found.steps.set_index("step")
    assert table.index.tolist() == [0, 1, 2, 3, 4]
    assert np.isnan(
        table.loc[4, ["informative_share_a", "jaccard", "tasks_a", "informative_share_b"]].astype(float)
    ).all()
    a, b = (outcomes(view) for view in pair)
    for step in range(4):
        picks = [set(map(tuple, t[t["step"] == step][["env", "task"]].to_numpy())) for t in (a, b)]
        row = table.loc[step]
        assert (row["picks_a"], row["picks_b"]) == (len(picks[0]), len(picks[1])) == (8, 6)
        assert row["shared"] == len(picks[0] & picks[1])
        assert row["jaccard"] == pytest.approx(len(picks[0] & picks[1]) / len(picks[0] | picks[1]))
        assert row["shared_by_chance"] == pytest.approx(8 * 6 / 48)
        for side, runs in (("a", a), ("b", b)):
            now, so_far = runs[runs["step"] == step], runs[runs["step"] <= step]
            assert row[f"predicted_variance_{side}"] == pytest.approx(now["predicted"].mean())
            assert row[f"realised_variance_{side}"] == pytest.approx(now["observed"].mean())
            assert row[f"informative_share_{side}"] == pytest.approx(now["mixed"].mean())
            assert row[f"tasks_{side}"] == len(so_far[["env", "task"]].drop_duplicates())
            assert row[f"environments_{side}"] == so_far["env"].nunique()


def test_environments_beside_each_other(pair, found) -> None:
    table = found.environments.set_index("env")
    for view, side in zip(pair, "ab", strict=True):
        runs = outcomes(view)
        share = runs.groupby("env")["mixed"].mean().reindex(table.index).astype(float)
        assert table[f"picks_{side}"].sum() == len(runs)
        assert table[f"picks_share_{side}"].sum() == pytest.approx(1.0)
        assert table[f"informative_share_{side}"].to_numpy() == pytest.approx(share.to_numpy(), nan_ok=True)
    assert (table["picks_a"] - table["picks_b"]).equals(table["picks_difference"])


def test_tasks_that_only_one_run_picked(pair, found) -> None:
    a, b = ({(e, t) for e, t in outcomes(view)[["env", "task"]].to_numpy()} for view in pair)
    for side, wanted in (("a", a - b), ("b", b - a)):
        rows = found.only[found.only["run"] == side]
        assert {(e, t) for e, t in rows[["env", "task"]].to_numpy()} == wanted
        assert rows["known"].all()
        assert (rows["picks"] >= 1).all()
    assert found.tasks == (48, 48, 48)


def test_a_run_beside_itself_differs_in_nothing(pair) -> None:
    found = views.compare(pair[0], pair[0])
    assert found.only.empty
    assert found.steps["jaccard"].tolist() == [1.0] * 4
    assert (found.headline["difference"] == 0).all()


def test_a_log_with_other_tasks_and_unknown_costs(pair, tmp_path) -> None:
    """Steps come from its groups; costs that no group tells are missing, never 0."""
    found = views.compare(pair[0], opened(write_log(tmp_path / "log", steps=False)))
    table = found.headline.set_index("figure")
    assert np.isnan(table.loc["tokens", "b"])
    assert table.loc["tokens", "b_known"] == 0
    assert table.loc["rollouts", "b"] == 96
    assert np.isnan(table.loc["informative_share", ["b_low", "difference"]].astype(float)).all()
    assert found.tasks == (48, 24, 24)
    assert np.isnan(found.steps["shared"]).all()


def test_trust_over_time(pair) -> None:
    table = views.trust(pair[0])
    decisions = [pair[0].decisions(step)[-1].trust for step in range(4)]
    assert table["step"].tolist() == [0, 1, 2, 3]
    assert table["features_share"].tolist() == [t.features_share for t in decisions]
    assert table["gain_features"].tolist() == pytest.approx([t.loglik - t.loglik_no_features for t in decisions])
    assert table["scored"].tolist() == [t.groups for t in decisions]

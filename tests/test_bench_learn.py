"""bench learn: scores of known curves, paired seeds, the chart, the JSON, the folder."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import msgspec
import numpy as np
import pytest

pytest.importorskip("numba")

from envsched_core.bench.chart import Point, curves_svg
from envsched_core.bench.curves import Run, Runs, curve_rows, score, score_rows
from envsched_core.bench.learn import LearnPlan, based, checked_folder, run_learn, run_one, run_worlds, write_report
from envsched_core.bench.overall import overall
from envsched_core.cli import main
from envsched_core.errors import ConfigError, StoreError
from envsched_core.evaluate import nested_bootstrap
from envsched_core.testbed import Curve

STEPS = (0, 20, 40)


def curve(*values: float, flat: float = 0.5, calls: float = 99.0) -> Curve:
    macro = dict(zip(STEPS, values, strict=True))
    micro = {step: value / 2 for step, value in macro.items()}
    spent = {step: calls * step / STEPS[-1] for step in STEPS}
    return Curve(macro, micro, (0.0, flat, flat, flat), 10, 64, calls, 4, spent, 0.25, flat)


def invented() -> dict[Run, Curve]:
    """Two worlds with two seeds: a is 0.1 above uniform in the middle, oracle 0.2."""
    curves = {}
    for world in (1, 2):
        for seed in (0, 1):
            base = 0.1 * world + 0.01 * seed
            for name, gain in (("uniform", 0.0), ("a", 0.1), ("oracle", 0.2)):
                curves[Run(world, seed, name)] = curve(base, base + 0.2 + gain, base + 0.4 + gain, flat=0.3)
    return curves


def test_scores_of_known_curves():
    scores = score(invented())
    a, uniform, oracle = (scores[name] for name in ("a", "uniform", "oracle"))
    assert a.curve == pytest.approx({0: 0.155, 20: 0.455, 40: 0.655})
    assert a.curve_micro[40] == pytest.approx(0.655 / 2)
    assert a.at_40 == pytest.approx(0.655)
    # worlds and seeds differ, but the paired difference does not
    assert a.difference_at_40 == pytest.approx((0.1, 0.1, 0.1))
    assert uniform.difference_area == (0.0, 0.0, 0.0)
    assert a.area - uniform.area == pytest.approx(0.075)
    assert a.headroom_captured == pytest.approx(0.5)
    assert a.headroom_interval == pytest.approx((0.5, 0.5))
    assert (oracle.headroom_captured, uniform.headroom_captured_at_40) == pytest.approx((1.0, 0.0))
    assert uniform.steps_to_uniform_best == 40
    assert oracle.steps_to_uniform_best == 20
    assert a.steps_to_uniform_best == pytest.approx(30)
    assert a.steps_to_95_percent < 30
    assert (a.trusted_within, a.trusted_cross) == pytest.approx((0.25, 0.3))
    assert a.zero_variance_share == pytest.approx(0.225)
    assert a.early_informative_share == pytest.approx(0.8)
    assert a.early_informative_ratio == pytest.approx((1.0, 1.0, 1.0))
    assert (a.tasks_seen, a.rollouts, a.tool_calls) == (10, 64, 99)


def test_what_was_not_measured_is_none():
    curves = {run: c for run, c in invented().items() if run.scheduler != "oracle"}
    both = {0: 0.1, 5: 0.1}
    short = {run: c._replace(macro=both, micro=both, spent={0: 0.0, 5: 99.0}) for run, c in curves.items()}
    found = score(short)["a"]
    assert (found.at_40, found.difference_at_40, found.headroom_captured) == (None, None, None)
    falling = {run: c._replace(macro={0: 0.3, 5: 0.1 if run.scheduler == "a" else 0.4}) for run, c in short.items()}
    assert score(falling)["a"].steps_to_uniform_best is None
    harmful = {r: (c if r.scheduler != "oracle" else curve(0, 0, 0)) for r, c in invented().items()}
    assert score(harmful)["a"].headroom_captured is None


def test_equal_tool_calls_are_the_calls_that_both_made():
    plain, dear = curve(0.0, 0.4, 0.6), curve(0.0, 0.4, 0.6, calls=198.0)
    assert plain.area_of_calls(99.0) == pytest.approx(plain.area())
    assert plain.area_of_calls(49.5) == pytest.approx(0.2)
    assert plain.area_of_calls(0.0) == 0.0
    curves = {}
    for seed in (0, 1):
        curves |= {Run(1, seed, "uniform"): plain, Run(1, seed, "envsched"): dear}
    found = score(curves)
    assert found["envsched"].difference_area == (0.0, 0.0, 0.0)
    # for 99 calls the dear one has learned for 20 steps: mean .2 against (.2 + .5) / 2
    assert found["envsched"].difference_at_equal_calls == pytest.approx((-0.15, -0.15, -0.15))
    assert found["uniform"].envsched_minus_at_equal_calls == pytest.approx((-0.15, -0.15, -0.15))
    assert found["envsched"].envsched_minus_at_equal_calls is None


def test_intervals_widen_with_what_differs_between_worlds():
    same = nested_bootstrap(np.array([[0.0, 1.0], [0.0, 1.0]]), seed=0)
    apart = nested_bootstrap(np.array([[0.0, 0.0], [1.0, 1.0]]), seed=0)
    assert same.mean == apart.mean == 0.5
    assert (apart.low, apart.high) == (0.0, 1.0)
    one = nested_bootstrap(np.array([[0.25, 0.25]]), seed=0)
    assert one == (0.25, 0.25, 0.25)
    assert nested_bootstrap(np.array([[1.0, 2.0]]), np.array([[2.0, 4.0]]), seed=0).mean == 0.5
    assert np.isnan(nested_bootstrap(np.zeros((0, 0)), seed=0).mean)
    with pytest.raises(ValueError, match="worlds"):
        nested_bootstrap(np.zeros(3), seed=0)


def test_the_chart_is_one_harmless_file():
    svg = curves_svg(
        {"<a>": [Point(0, 0.1, 0.0, 0.2), Point(40, 0.5, 0.4, 0.6)]}, title="t & t", x_label="x", y_label="y"
    )
    root = ET.fromstring(svg)
    assert [child.text for child in root if child.tag.endswith("title")] == ["t & t"]
    assert "&lt;a&gt;" in svg
    assert "href" not in svg
    assert "script" not in svg


def test_rows_have_a_head_and_one_width():
    curves = invented()
    for rows in (list(curve_rows("M", curves)), list(score_rows("M", score(curves)))):
        assert len({len(row) for row in rows}) == 1
    assert len(list(curve_rows("M", curves))) == 1 + 12 * len(STEPS)


PLAN = LearnPlan(world="small", world_seeds=(1,), schedulers=("mopps", "oracle-top"), seeds=1, steps=2, batch_size=4)


def test_runs_are_paired_and_processes_change_nothing(tmp_path):
    seen: list[tuple[int, int]] = []
    report, curves = run_learn(PLAN, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert list(report.schedulers) == ["uniform", "mopps", "oracle-top"]
    starts = {run.scheduler: found.macro[0] for run, found in curves.items()}
    assert len(set(starts.values())) == 1  # the same base policy on the same held-out stream
    assert {found.rollouts for found in curves.values()} == {2 * 4 * 8}
    whole, found = run_worlds(PLAN, ("small",), workers=2)
    assert msgspec.json.encode(whole.worlds["small"]) == msgspec.json.encode(report)
    assert whole.overall == {}
    assert any("one world" in note for note in report.notes)
    folder = checked_folder(tmp_path / "out")
    write_report(whole, found, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "curves.csv",
        "curves.svg",
        "learn.json",
        "schedulers.csv",
    ]
    with pytest.raises(StoreError, match="not empty"):
        checked_folder(folder)


def test_several_worlds_have_a_table_each_and_a_mean(tmp_path):
    plan = msgspec.structs.replace(PLAN, schedulers=("envsched", "oracle"))
    report, curves = run_worlds(plan, based(("small",), (0, 10)), workers=1)
    assert list(report.worlds) == ["small-base0", "small-base10"]
    assert list(report.overall) == ["uniform", "envsched", "oracle"]
    gains = [one.schedulers["envsched"].difference_area[0] for one in report.worlds.values()]
    assert report.overall["envsched"].difference_area[0] == pytest.approx(np.mean(gains))
    assert report.overall["uniform"].envsched_minus[0] == pytest.approx(np.mean(gains))
    assert report.overall["envsched"].envsched_minus is None
    write_report(report, curves, tmp_path)
    names = {"curves-small-base0.svg", "curves-small-base10.svg", "overall.csv"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "schedulers.csv", "curves.csv", "learn.json"}
    assert set(json.loads((tmp_path / "learn.json").read_text())) == {"worlds", "overall", "notes"}
    assert based(("M", "E"), ()) == ("M", "E")


def test_the_mean_over_worlds_of_known_curves():
    rows = overall([Runs(invented()), Runs(invented())])
    assert rows["a"].headroom_captured == pytest.approx((0.5, 0.5, 0.5))
    assert rows["a"].difference_area == pytest.approx((0.075, 0.075, 0.075))
    assert rows["a"].envsched_minus is None
    assert rows["oracle"].tool_calls_ratio == pytest.approx((1.0, 1.0, 1.0))


def test_envsched_is_read_off_against_each_peer():
    curves = {
        run._replace(scheduler={"a": "envsched", "oracle": "dapo-envsched"}.get(run.scheduler, "uniform")): c
        for run, c in invented().items()
    }
    scores = score(curves)
    assert scores["uniform"].envsched_minus == pytest.approx((0.075, 0.075, 0.075))
    assert scores["envsched"].envsched_minus is None
    assert scores["envsched"].dapo_envsched_minus == pytest.approx((0.075, 0.075, 0.075))


def test_groups_of_schedulers_are_expanded():
    names = msgspec.structs.replace(PLAN, schedulers=("peers",)).checked().schedulers
    assert names[0] == "uniform"
    assert {"envsched", "dapo", "oracle"} < set(names)
    assert len(names) == len(set(names))
    assert "oracle" not in LearnPlan(world="bfcl", schedulers=("peers",)).checked().schedulers
    with pytest.raises(ConfigError, match="no oracle"):
        LearnPlan(world="bfcl", schedulers=("oracle",)).checked()


def test_all_generated_rollouts_are_billed():
    plan = msgspec.structs.replace(PLAN, schedulers=("dapo", "dapo-envsched"), steps=6)
    report, curves = run_learn(plan, workers=1)
    assert {found.rollouts for found in curves.values()} == {6 * 4 * 8}
    assert {tuple(found.macro) for found in curves.values()} == {(0, 5, 6)}
    updates = {run.scheduler: found.updates for run, found in curves.items()}
    assert updates["uniform"] == 6 > updates["dapo"] > 0
    assert report.schedulers["dapo"].dapo_envsched_minus is not None
    assert any("fills its batch" in note for note in report.notes)


def test_other_seeds_are_other_runs():
    plan = PLAN.checked()
    one, other, same = (run_one(plan, Run(1, seed, "uniform")) for seed in (0, 1, 0))
    assert one == same
    assert one.tool_calls != other.tool_calls


def test_wrong_plans_are_told_before_anything_runs(capsys):
    for changes in ({"schedulers": ("magic",)}, {"world_seeds": ()}, {"settings": {"weight_tusk": 1}}, {"world": "Q"}):
        with pytest.raises(ConfigError):
            run_learn(msgspec.structs.replace(PLAN, **changes))
    for wrong in (["--world-seeds", "one"], ["--world-seeds", "-1"], ["--schedulers", "magic"], ["--base", "15"]):
        with pytest.raises(SystemExit) as end:
            main(["bench", "learn", *wrong])
        assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_prints_what_it_promises(capsys):
    command = ["bench", "learn", "--world", "small", "--world-seeds", "1", "--seeds", "1", "--steps", "1"]
    command += ["--schedulers", "round-robin", "--batch-size", "4", "--workers", "1"]
    with pytest.raises(SystemExit) as end:
        main([*command, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert not end.value.code
    promised = {"curve", "at_40", "difference_at_40", "area", "steps_to_uniform_best", "headroom_captured"}
    promised |= {"zero_variance_share", "early_informative_share", "tasks_seen", "rollouts", "tool_calls"}
    assert set(found["schedulers"]) == {"uniform", "round-robin"}
    assert all(set(scores) >= promised for scores in found["schedulers"].values())
    assert list(found["schedulers"]["uniform"]["curve"]) == ["0", "1"]
    with pytest.raises(SystemExit):
        main(command)
    assert "round-robin" in capsys.readouterr().out

"""bench scale: an invented catalogue of any size, and figures that are measured."""

from __future__ import annotations

import json

import pytest

from envsched_core.bench.invented import invented_results, invented_tasks
from envsched_core.bench.scale import ScalePlan, measure
from envsched_core.errors import ConfigError
from envsched_core.records import Pick


def test_the_catalogue_has_its_size_and_is_the_same_twice():
    tasks = invented_tasks(103, 5, seed=1)
    assert len({task.key for task in tasks}) == 103
    assert len({task.env for task in tasks}) == 5
    assert tasks == invented_tasks(103, 5, seed=1) != invented_tasks(103, 5, seed=2)
    assert all(set(task.calls or ()) <= {tool.name for tool in task.tools} for task in tasks)
    assert {task.calls is None for task in tasks} == {True, False}


def test_results_are_keyed_and_show_calls_where_no_path_is_known():
    specs = invented_tasks(40, 4, seed=0)
    picks = [Pick(f"p{i}", spec.env, spec.task, i) for i, spec in enumerate(specs)]
    results = invented_results(picks, specs, 3, 8)
    assert results == invented_results(picks, specs, 3, 8)
    assert {len(result.rewards) for result in results} == {8}
    assert all(bool(result.calls) != bool(spec.calls) for result, spec in zip(results, specs, strict=True))


def test_costs_are_measured():
    cost = measure(ScalePlan(600, 12, batch_size=32, steps=2), "envsched")
    assert 0 < cost.select_seconds_median < cost.ask_seconds_median  # the record takes time, too
    assert 0 < cost.observe_seconds_median < cost.graph_seconds
    assert cost.groups == 4 * 32
    assert cost.edges_within > 600
    assert cost.edges_cross > 0
    assert cost.peak_memory_gb > 0.01


def test_the_command_prints_each_scheduler(envsched):
    sizes = ("--tasks", 60, "--environments", 3, "--batch-size", 8, "--steps", 1)
    status, out, _ = envsched("bench", "scale", *sizes, "--schedulers", "uniform", "--json")
    assert status == 0
    report = json.loads(out)
    assert report["notes"][-1] == "passes over all tasks: NumPy alone"  # they are few
    uniform = report["schedulers"]["uniform"]
    assert {"ask_seconds_median", "select_seconds_median", "observe_seconds_median", "graph_seconds"} <= set(uniform)
    assert {"register_1000_seconds", "peak_memory_gb", "resident_memory_gb"} <= set(uniform)
    assert uniform["edges_within"] == 0


@pytest.mark.parametrize("wrong", [{"schedulers": ("none",)}, {"tasks": 2}, {"settings": {"colour": 1}}])
def test_what_cannot_be_measured_is_refused(wrong):
    with pytest.raises(ConfigError):
        ScalePlan(**{"tasks": 60, "environments": 3, **wrong}).checked()

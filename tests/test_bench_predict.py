"""bench predict: scores against naive ones, orders, parts, the truth of the testbed, what is told and written."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from envsched_core.baselines import make_scheduler
from envsched_core.bench.parallel import checked_folder
from envsched_core.bench.predict import PredictPlan, predictors_of, run_predict, write_predict
from envsched_core.bench.predict_scores import combined, score_walk
from envsched_core.bench.prequential import batches_of, ceiling_draws, groups_of, own_order, walk
from envsched_core.errors import ConfigError
from envsched_core.evaluate import spearman
from envsched_core.records import GroupResult, TaskSpec
from envsched_core.replay import RecordedPool, config_for, load_pool
from envsched_core.store import new_manifest

BAYES = "empirical-bayes"


def invented(rates, *, groups=2, size=4, step=lambda k: None):
    """A pool of tasks with given success rates, by environment; rewards drawn with a fixed seed."""
    rng = np.random.default_rng(5)
    made, specs = [], []
    for env, ps in rates.items():
        for i, p in enumerate(ps):
            specs.append(TaskSpec(env, f"t{i}"))
            for k in range(groups):
                rewards = tuple(map(float, rng.binomial(1, p, size=size)))
                made.append(GroupResult(f"{env}/{i}/{k}", env, f"t{i}", rewards, step=step(k)))
    return RecordedPool(Path("log"), new_manifest("log", "import"), tuple(specs), tuple(made))


def halves(tasks=40):
    """One environment of coins, one of certainties: easy to tell apart once seen."""
    return invented({"coins": [0.5] * tasks, "sure": [0.0, 1.0] * (tasks // 2)})


def scored(pool, name=BAYES, seed=0, size=8):
    config = config_for(pool, {"batch_size": size})
    told = walk(pool, make_scheduler(name, config), batches_of(pool, size, seed=seed))
    return told, groups_of(pool, config), config


def test_predictions_are_made_before_their_groups_are_seen():
    pool = halves()
    told, groups, _ = scored(pool)
    cut = 64
    changed = [
        g if i in told.places[:cut] else msgspec.structs.replace(g, rewards=(1.0,) * 4)
        for i, g in enumerate(pool.groups)
    ]
    again, _, _ = scored(pool._replace(groups=tuple(changed)))
    assert again.variance[: cut + 8].tolist() == told.variance[: cut + 8].tolist()
    assert again.variance[cut + 8 :].tolist() != told.variance[cut + 8 :].tolist()
    assert sorted(told.places.tolist()) == list(range(len(pool.groups)))
    assert not told.seen[:8].any()
    first = {int(groups.task[i]): k for k, i in reversed(list(enumerate(told.places)))}
    before = [first[int(groups.task[i])] // 8 < k // 8 for k, i in enumerate(told.places)]
    assert told.seen.tolist() == before


def test_scores_agree_with_naive_ones():
    pool = halves()
    told, groups, _ = scored(pool)
    found = score_walk(groups, told, np.zeros(len(pool.groups), dtype=bool), {}, len(pool.tasks))
    assert set(found.parts) == {"all", "unseen", "seen"}
    for part, at in (("unseen", ~told.seen), ("seen", told.seen)):
        places, one = told.places[at], found.parts[part]
        want = stats.spearmanr(told.variance[at], groups.variance[places]).statistic
        assert one["spearman"].value == pytest.approx(want)
        assert one["value_spearman"].value == pytest.approx(want)  # empirical Bayes ranks by its variance
        assert one["brier"].value == pytest.approx(np.mean((told.flat[at] - groups.flat[places]) ** 2))
        assert one["groups"].value == at.sum()
        assert one["log_score"].value == pytest.approx(told.log_score[at].sum() / (4 * at.sum()))
        flat = groups.flat[places] > 0
        pairs = told.flat[at][flat][:, None] - told.flat[at][~flat][None, :]
        assert one["auc"].value == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    assert found.parts["unseen"]["auc"].value > 0.6
    assert found.environments["sure"].groups == 80


def test_values_are_scored_beside_variances():
    """EnvSched's values order tasks otherwise than its variances: the chance of a mixed group is in them."""
    pool = invented({"coins": [0.5] * 30, "sure": [0.0, 1.0] * 15, "spread": list(np.linspace(0, 1, 30))}, size=8)
    told, groups, _ = scored(pool, "envsched")
    bayes, _, _ = scored(pool)
    none = np.zeros(len(pool.groups), dtype=bool)
    mine, theirs = (score_walk(groups, one, none, {}, len(pool.tasks)) for one in (told, bayes))
    for part, at in (("unseen", ~told.seen), ("seen", told.seen)):
        want = stats.spearmanr(told.value[at], groups.variance[told.places[at]]).statistic
        assert mine.parts[part]["value_spearman"].value == pytest.approx(want)
        assert mine.parts[part]["value_spearman"].value != pytest.approx(mine.parts[part]["spearman"].value, abs=1e-6)
    found = combined([{BAYES: [theirs], "envsched": [mine]}])["envsched"]["seen"]
    assert found.value_spearman == pytest.approx(mine.parts["seen"]["value_spearman"].value)
    lead = found.value_spearman - theirs.parts["seen"]["value_spearman"].value
    assert found.value_spearman_minus_empirical_bayes[0] == pytest.approx(lead)


def test_values_are_what_picks_go_by():
    """Without coverage, penalty and draw the next picks are those of highest value."""
    pool = halves()
    bare = {"weight_environment": 0, "weight_pattern": 0, "weight_task": 0, "weight_similarity": 0, "max_share": 1}
    config = config_for(pool, {"batch_size": 8, "temperature": 0, "uniform_share": 0, **bare})
    batches = batches_of(pool, 8, seed=0)[:9]
    told = walk(pool, make_scheduler("envsched", config), batches)
    scheduler = make_scheduler("envsched", config)
    scheduler.register([msgspec.structs.replace(task, draws=None) for task in pool.tasks])
    for step, places in batches[:-1]:
        scheduler.ask(0, step=step)
        scheduler.observe([msgspec.structs.replace(pool.groups[i], step=step, pick_id=None) for i in places])
    scheduler.ask(0, step=batches[-1][0])
    scores = scheduler.scores().score[groups_of(pool, config).task[batches[-1][1]]]
    assert told.value[-8:] == pytest.approx(scores, abs=1e-6)


@given(st.floats(0.05, 0.95), st.integers(1, 12), st.integers(0, 5))
def test_the_interval_holds_what_the_prediction_says(p, size, seed):
    pool = invented({"e": [p] * 6}, groups=1, size=size)
    told, _, _ = scored(pool, seed=seed, size=3)
    assert (told.mass >= 0.9 - 1e-9).all()
    assert (told.mass <= 1 + 1e-9).all()
    assert (told.log_score <= 0).all()


def test_the_interval_is_the_beta_binomials():
    pool = halves()
    told, groups, config = scored(pool)
    scheduler = make_scheduler(BAYES, config)
    scheduler.register(list(pool.tasks))
    scheduler.ask(0, step=0)
    one = scheduler.predictor.predict(groups.task[told.places[:1]])
    law = stats.betabinom(4, float(one.a[0]), float(one.n[0] - one.a[0]))
    low, high = law.ppf(0.05), law.ppf(0.95)
    assert told.mass[0] == pytest.approx(law.cdf(high) - law.cdf(low - 1))
    assert told.covered[0] == (low <= groups.total[told.places[0]] <= high)


def test_the_order_is_the_logs_where_it_has_one():
    own = invented({"e": [0.5] * 6}, groups=9, step=lambda k: 3 * k)
    assert own_order(own)
    batches = batches_of(own, 2, seed=0)
    assert [step for step, _ in batches] == [3 * k for k in range(9)]
    assert {len(places) for _, places in batches} == {6}
    phases = invented({"e": [0.5] * 6}, groups=3, step=lambda k: 100 * k)
    assert not own_order(phases)
    one, other = (batches_of(phases, 4, seed=seed) for seed in (0, 1))
    assert [step for step, _ in one] == list(range(5))
    assert np.concatenate([places for _, places in one]).tolist() != np.concatenate([p for _, p in other]).tolist()
    steps = [phases.groups[i].step for _, places in one for i in places]
    assert steps == sorted(steps)


def test_the_ceiling_is_above_every_predictor_and_below_one():
    pool = invented({"coins": [0.5] * 60, "sure": [0.0, 1.0] * 30, "spread": list(np.linspace(0, 1, 60))}, size=8)
    told, groups, _ = scored(pool)
    true, came = ceiling_draws(groups, draws=8, seed=0)
    ceiling = np.mean([spearman(v, r) for v, r in zip(true, came, strict=True)])
    assert spearman(told.variance, groups.variance[told.places]) < ceiling < 1
    assert came.mean() == pytest.approx(groups.variance.mean(), rel=0.1)  # the simulated log is as spread as the real


def test_differences_are_paired():
    pool = halves()
    told, groups, _ = scored(pool)
    one = score_walk(groups, told, np.zeros(len(pool.groups), dtype=bool), {}, len(pool.tasks))
    found = combined([{BAYES: [one], "envsched": [one]}, {BAYES: [one, one], "envsched": [one, one]}])
    assert found["envsched"]["unseen"].spearman_minus_empirical_bayes == (0.0, 0.0, 0.0)
    low, high = found["envsched"]["unseen"].spearman_ci
    assert low < found["envsched"]["unseen"].spearman < high


def test_runs_are_scored_together_and_processes_change_nothing(imported_run, tmp_path):
    plan = PredictPlan(runs=(imported_run,), schedulers=("envsched",), seeds=2, batch_size=32)
    seen: list[tuple[int, int]] = []
    report = run_predict(plan, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    assert list(report.schedulers) == ["envsched", BAYES]
    run = report.per_run["pool"]
    assert (run.groups, run.tasks, run.environments) == (288, 96, 12)
    assert "2 seeded orders" in run.order
    assert report.schedulers["envsched"]["unseen"].groups + report.schedulers["envsched"]["seen"].groups == 288
    assert report.schedulers[BAYES]["seen"].spearman > 0
    assert report.truth == {}
    assert set(run.per_environment["bank"]) == {"envsched", BAYES}
    plain = msgspec.structs.replace(plan, schedulers=())
    one, other = (msgspec.json.encode(run_predict(plain, workers=workers)) for workers in (1, 2))
    assert one == other
    folder = checked_folder(tmp_path / "out")
    write_predict(report, folder)
    names = {"environments.csv", "predict.json", "scores.csv", "spearman.svg", "truth.csv"}
    assert {file.name for file in folder.iterdir()} == names
    rows = (folder / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 2 * 2 * 3  # all runs and the one, two predictors, three parts
    assert len((folder / "environments.csv").read_text(encoding="utf-8").splitlines()) == 1 + 12 * 2


def test_the_testbed_tells_the_truth(tmp_path):
    pytest.importorskip("numba")
    from envsched_core.bench.training import TrainPlan, train_run
    from envsched_core.bench.truth import true_rates

    plan = TrainPlan(world="small", steps=12, batch_size=16, settings={"uniform_share": 0.3})
    train_run(tmp_path / "run", plan, keep_rollouts=False)
    report = run_predict(PredictPlan(runs=(tmp_path / "run",), schedulers=("envsched",)), workers=1)
    assert report.per_run["run"].order == "the log's own steps"
    assert {"all", "unseen"} <= set(report.truth["envsched"])
    one = report.truth["envsched"]["all"]
    assert one.tasks == min(512, len(load_pool(tmp_path / "run").tasks))
    assert -1 <= one.rate <= one.rate_ceiling <= 1
    assert "uniform" in report.schedulers["envsched"]
    keys = tuple(task.key for task in load_pool(tmp_path / "run").tasks[:5])
    told = true_rates(tmp_path / "run", {0: keys, 10: keys})
    assert told.problem == ""
    assert told.halves[0].shape == told.halves[10].shape == (5, 2)
    assert ((told.halves[10] >= 0) & (told.halves[10] <= 1)).all()


def test_who_predicts_nothing_is_refused(imported_run):
    assert predictors_of("all")[:2] == ("envsched", BAYES)
    assert predictors_of("peers") == ("envsched", BAYES)
    assert predictors_of("envsched, x") == ("envsched", "x")
    for wrong in ("uniform", "magic"):
        with pytest.raises(ConfigError, match=wrong):
            run_predict(PredictPlan(runs=(imported_run,), schedulers=(wrong,)))
    with pytest.raises(ConfigError, match="nothing"):
        run_predict(PredictPlan(runs=(), schedulers=()))


def test_the_command_prints_what_it_promises(imported_run, envsched, tmp_path):
    command = ["bench", "predict", imported_run, "--schedulers", "peers", "--seeds", 1, "--workers", 1]
    status, out, _ = envsched(*command, "--json")
    assert status == 0
    assert msgspec.json.decode(out)["runs"] == 1
    scores = json.loads(out)["schedulers"]["envsched"]["unseen"]
    assert {"spearman", "value_spearman", "spearman_ceiling", "auc", "brier", "coverage", "log_score"} <= set(scores)
    status, out, _ = envsched(*command, "--out", tmp_path / "out")
    assert "never seen before" in out
    assert "written to" in out
    assert envsched("bench", "predict", imported_run, "--schedulers", "mopps")[0] == 2

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the testbed needs the extra `train`")
pytest.importorskip("bfcl_eval", reason="the second world needs bfcl-eval")
pytest.importorskip("mpmath", reason="bfcl-eval's MathAPI needs mpmath")

from envsched_core.baselines import make_scheduler
from envsched_core.config import Config
from envsched_core.errors import LogFormatError, UnknownTaskError
from envsched_core.testbed import make_learner, train
from envsched_core.testbed.bfcl_calls import carry_out, is_right, parse_call
from envsched_core.testbed.bfcl_learner import BfclLearner

pytestmark = pytest.mark.bfcl


@pytest.fixture(scope="module")
def learner():
    made = make_learner("bfcl", group_size=4)
    assert isinstance(made, BfclLearner)
    return made


def test_its_own_checker_accepts_the_reference_and_not_nothing(learner):
    for task in learner.world.tasks[::5]:
        now = copy.deepcopy(task.start)
        answers = [carry_out(now, call) for call in task.reference]
        assert is_right(now, answers, task.finish, list(task.answers))
        assert not is_right(task.start, [], task.finish, list(task.answers))
        assert {call.text for call in task.reference} <= {call.text for call in task.candidates}


def test_scenarios_are_split(learner):
    world = learner.world
    assert len({spec.env for spec in world.specs}) == 60
    scenario = [task.spec.task.split("-")[0].rsplit("_", 1)[1] for task in world.tasks]
    assert not set(scenario[: world.training]) & set(scenario[world.training :])
    assert {spec.calls for spec in world.specs} == {None}
    assert len(world.places) == world.training > 1500


@pytest.mark.parametrize(
    "text", ["os.system('x')", "f(__import__('os'))", "f(g())", "a + b", "f(x=[y])", "f(", "f(*[1])"]
)
def test_only_literal_calls_are_parsed(text):
    with pytest.raises(LogFormatError):
        parse_call(text)


@given(st.sampled_from(["_load_scenario", "__init__", "nothing", "_api_description"]))
def test_only_public_methods_are_called(learner, name):
    start = copy.deepcopy(learner.world.tasks[0].start)
    assert "no tool" in carry_out(start, parse_call(f"{name}()"))


def test_it_is_driven_end_to_end_and_learns(learner):
    scheduler = make_scheduler("uniform", Config(batch_size=16, group_size=4))
    curve = train(learner, scheduler, steps=8, batch_size=16, evaluated=(0, 8))
    assert curve.macro[8] > curve.macro[0] + 0.03
    keys = [spec.key for spec in learner.specs[:6]]
    groups = learner.rollouts(keys, 9)
    later, earlier = learner.rollouts(keys[3:], 9), learner.rollouts(keys[:3], 9)
    assert groups == earlier + later
    rollout = learner.transcripts(groups[0])[0]
    assert tuple(call.name for call in rollout.calls) == groups[0].calls[0]
    with pytest.raises(UnknownTaskError):
        learner.rollouts([learner.world.tasks[-1].spec.key], 9)

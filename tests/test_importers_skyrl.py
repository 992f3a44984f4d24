"""SkyRL evaluation dumps: steps by folder, scores a token, chat lists and decoded text."""

import json
from pathlib import Path

from whole_way import whole_way

from envsched_core.importers import ImportOptions, import_log, sniff

RUN = Path(__file__).parent / "formats" / "skyrl"


def read(*paths, **options):
    return import_log(paths, ImportOptions(**options))


def test_evaluations_go_the_whole_way(tmp_path):
    way = whole_way(RUN, tmp_path)
    assert (way.report.formats, way.report.groups, way.report.environments) == (("skyrl",), 16, 2)
    assert (way.report.steps, way.report.notes) == ((10, 20), ())
    assert way.assessment.savings, way.assessment.sentence
    assert way.verdict
    first = way.rollouts[0]
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    assert [call.name for call in first.calls] in (["sail"], ["shunt"])


def test_scores_a_token_are_summed_and_evaluations_are_not_trained_on():
    group = next(read(RUN).groups())
    assert (group.key, group.rewards, group.step) == ("boats::boats_set/0", (1.0, 0.0, 0.0, 1.0), 10)
    assert group.trained is False


def test_chat_lists_and_rows_without_an_index(tmp_path):
    path = tmp_path / "any"
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "Where to?"}]
    row = {"input_prompt": asked, "output_response": "There.", "score": [None], "env_class": "maps", "env_extras": {}}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"score": 1}) + "\n")
    log = read(path)
    group = next(log.groups())
    assert sniff(path) == "skyrl"
    assert (group.env, group.rewards, group.missing, group.step) == ("maps", (1.0,), 1, None)
    assert log.tasks[0].text == "Where to?"
    assert any("a hash of the prompt" in note for note in log.report.notes)

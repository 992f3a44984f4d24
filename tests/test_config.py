"""The config: documented, checked, closed to unknown keys."""

from __future__ import annotations

import pytest

from envsched_core.config import PRESETS, RULES_BEFORE, Config, config_from, digest, knobs
from envsched_core.errors import ConfigError


def test_every_knob_is_documented_and_has_its_default() -> None:
    for knob in knobs():
        assert knob.doc
        assert knob.range
        assert knob.name in Config.__struct_fields__


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"temperatur": 1}, "did you mean 'temperature'"),
        ({"zzz": 1}, "`envsched config` lists all"),
        ({"max_share": 2.0}, "max_share"),
        ({"weight_environment": 5000.0}, "<= 10"),
        ({"batch_size": "many"}, "batch_size"),
        ({"half_lives": [-1.0]}, "half_lives"),
        ({"tau_cross_grid": []}, "tau_cross_grid"),
        ({"reward_ranges": {"e": (1.0, 1.0)}}, "the lower first"),
    ],
)
def test_wrong_values_are_named(values: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_from(values)


def test_text_from_a_command_line_is_read_as_its_type() -> None:
    assert config_from({"batch_size": "32", "temperature": "0.25"}).temperature == 0.25


def test_digest_names_the_values() -> None:
    assert digest(config_from(PRESETS["training"])) == digest(Config())
    assert digest(config_from(PRESETS["replay"])) != digest(Config())


def test_a_config_of_before_a_knob_keeps_its_digest() -> None:
    """The digest that a version without the knobs of `RULES_BEFORE` gave these values."""
    before = config_from({**RULES_BEFORE, "kappa_global": 0.1, "kappa_env_grid": (0.5, 1.0, 2.0, 4.0)})
    assert digest(before) == "f929a2879bbf9c7e"
    assert digest(before) != digest(config_from({"neighbours_unit": "concentration"}, before))

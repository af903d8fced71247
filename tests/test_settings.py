import math

import pytest
from pydantic import ValidationError

from attmask.settings import Config, setting


class Sample(Config):
    size: int = setting(4, "how big", paper="16", ge=1)
    rate: float = setting(0.5, "how fast", operational=True)


class WrongDefault(Config):
    size: int = setting(0, "how big", ge=1)


def test_a_setting_knows_its_default_meaning_and_paper_value() -> None:
    field = Sample.model_fields["size"]
    assert field.default == Sample().size == 4
    assert field.description == "how big"
    assert field.json_schema_extra == {"paper": "16", "operational": False}


def test_an_operational_setting_says_so() -> None:
    assert Sample.model_fields["rate"].json_schema_extra == {"paper": "", "operational": True}


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None])
def test_impossible_values_are_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="size"):
        Sample.model_validate({"size": value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        Sample(rate=value)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="sise"):
        Sample.model_validate({"sise": 4})


def test_a_config_cannot_be_changed() -> None:
    config = Sample()
    with pytest.raises(ValidationError, match="frozen"):
        config.__setattr__("size", 5)
    assert config.size == 4


def test_a_default_is_held_to_the_limits_too() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        WrongDefault()


@pytest.mark.parametrize("value", [1e31, -1e300, 1e-31, 5e-324])
def test_numbers_beyond_single_precision_are_refused(value: float) -> None:
    with pytest.raises(
        ValidationError, match=r"beyond single precision; use 0, or 1e-30 to 1e\+30"
    ):
        Sample(rate=value)
    assert (Sample(rate=0).rate, Sample(rate=-1e-30).rate) == (0, -1e-30)


def test_numbers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(ValidationError, match="beyond 64 bits; use a smaller one"):
        Sample(size=10**400)
    assert Sample(size=2**63 - 1).size == 2**63 - 1

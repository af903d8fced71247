"""The base of every config: typed, frozen, each setting with its meaning and the paper's value."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

_SMALLEST, _LARGEST = 1e-30, 1e30  # room for a square root, a product with a batch, a gradient
_LARGEST_INT = 2**63


class Config(BaseModel):
    """A group of settings that rejects unknown names and invalid values."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _within_single_precision(cls, value: Any) -> Any:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and number and not _SMALLEST <= abs(number) <= _LARGEST:
                wanted = f"0, or {_SMALLEST:g} to {_LARGEST:g}"
                raise ValueError(f"{number:g} is beyond single precision; use {wanted}")
            if isinstance(number, int) and abs(number) >= _LARGEST_INT:
                raise ValueError("this number is beyond 64 bits; use a smaller one")
        return value


def setting(
    default: Any, meaning: str, *, paper: str = "", operational: bool = False, **limits: Any
) -> Any:
    """Declare a setting: `paper` is the paper's value where it has one; an operational setting
    may change when a run is resumed, because it does not change the result."""
    extra: dict[str, Any] = {"paper": paper, "operational": operational}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)

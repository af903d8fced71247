"""The base of every config: typed, frozen, each setting with its meaning and the paper's value."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """A group of settings that rejects unknown names and invalid values."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


def setting(
    default: Any, meaning: str, *, paper: str = "", operational: bool = False, **limits: Any
) -> Any:
    """Declare a setting: `paper` is the paper's value where it has one; an operational setting
    may change when a run is resumed, because it does not change the result."""
    extra: dict[str, Any] = {"paper": paper, "operational": operational}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)

"""Overrides of settings as a user gives them."""

from collections.abc import Mapping, Sequence
from typing import Any


def assignments(overrides: Sequence[str] | Mapping[str, Any]) -> Sequence[str]:
    """Overrides as `key=value` strings."""
    if isinstance(overrides, Mapping):
        return [f"{key}={_as_yaml(value)}" for key, value in overrides.items()]
    return overrides


def _as_yaml(value: Any) -> str:
    """A Python value as YAML for an override."""
    if value is None:
        return "null"
    return str(list(value) if isinstance(value, tuple) else value)

"""Logs of earlier versions, whose keys had slashes, under the keys and units of today."""

from typing import Any

_GROUPS = {"object": "objects", "quality": "label_free"}
_KEYS = {"speed/waiting_share": "speed.waiting"}
_SHARES = ("health/hidden", "speed/waiting_share")  # from 0 to 1; per cent today
_NO_SHARES = ("object/lift", "object/images")


def in_todays_keys(record: dict[str, Any]) -> dict[str, Any]:
    """A record of any version with today's keys; shares become per cent."""
    return {_key(name): _value(name, value) for name, value in record.items()}


def _key(name: str) -> str:
    group, slash, measure = name.partition("/")
    return _KEYS.get(name, f"{_GROUPS.get(group, group)}.{measure}") if slash else name


def _value(name: str, value: Any) -> Any:
    was_share = name in _SHARES or (name.startswith("object/") and name not in _NO_SHARES)
    return 100 * value if was_share and value is not None else value

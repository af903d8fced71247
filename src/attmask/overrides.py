"""Parse YAML and `key=value` overrides into validated configs, with one-line errors."""

import difflib
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from attmask.errors import UserError
from attmask.settings import Config
from attmask.wording import counted


def fields_of(model: type[Config], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The dotted names of all settings of a config class."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Config):
            yield from fields_of(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """The paper's value of a setting, and whether it is operational."""
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra


def assigned(assignment: str, example: str) -> tuple[str, Any]:
    """The key and the value of `key=value`; values are YAML: 3, 1e-4, null, [0.1, 0.3]."""
    key, equals, text = assignment.partition("=")
    if not equals:
        raise UserError(f"{assignment!r} is not key=value, such as {example}")
    return key, parse_yaml(text, shortened(assignment))


@dataclass(frozen=True)
class SettingLine:
    """One setting as shown to a user; `key=value` is a valid override."""

    key: str
    value: str
    meaning: str
    paper: str


def describe(config: Config) -> list[SettingLine]:
    """Every setting with its value, its meaning and the paper's value."""
    return [
        SettingLine(
            key, text_of(attrgetter(key)(config)), field.description or "", extra_of(field)["paper"]
        )
        for key, field in fields_of(type(config))
    ]


_Checked = TypeVar("_Checked", bound=Config)


def checked(model: type[_Checked], values: object, origin: str) -> _Checked:
    """Build a config; validation errors become one line."""
    try:
        return model.model_validate(values)
    except ValidationError as fault:
        problems: dict[tuple[str, str], list[str]] = {}
        for error in fault.errors(include_url=False):
            key = shortened(_key(model, error["loc"]))
            shown = "=".join(filter(None, [key, shortened(text_of(error["input"]))]))
            if error["type"] == "value_error":
                reason = shortened(str(error["ctx"]["error"]), _LONGEST_REASON)
                # The reason of a group names its settings itself.
                shown = "" if reason.startswith(f"{key}.") else key
            elif error["type"] == "extra_forbidden":
                shown, reason = "", unknown("setting", key, [name for name, _ in fields_of(model)])
            elif error["type"] in _WRONG_LENGTH and (wanted := _wanted_values(model, key)):
                reason = wanted
            else:
                reason = error["msg"].replace("Input should", "should").replace("tuple", "list")
                reason = re.sub(r"a valid dictionary.*", "a group of settings", reason)
                if str(error["input"]) == "none":
                    reason += " (nothing is written null)"
            # A value that no type of a union takes has several reasons.
            problems.setdefault((shown, "" if shown else reason), []).append(reason)
        lines = [
            ": ".join(filter(None, [key, " or ".join(reasons)]))
            for (key, _), reasons in problems.items()
        ]
        if len(lines) > _MOST_PROBLEMS:
            more = len(lines) - _MOST_PROBLEMS
            lines = [*lines[:_MOST_PROBLEMS], f"and {counted(more, 'more problem')}"]
        raise UserError(origin + "; ".join(lines)) from None


_WRONG_LENGTH = ("missing", "too_long", "tuple_type")
_LONGEST_VALUE = 80
_LONGEST_REASON = 300
_MOST_PROBLEMS = 8


def shortened(text: str, longest: int = _LONGEST_VALUE) -> str:
    """The text, cut where it would make an error too long to read."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _wanted_values(model: type[Config], key: str) -> str | None:
    """A hint how many values a setting such as [a, b] takes; None if any number is allowed."""
    field = dict(fields_of(model)).get(key)
    if field is None or get_origin(field.annotation) is not tuple:
        return None
    inner = get_args(field.annotation)
    if ... in inner:
        return None
    return f"wanted {len(inner)} values, e.g. {text_of(list(field.default))}"


def with_values(config: _Checked, pairs: Iterable[tuple[str, Any]], origin: str = "") -> _Checked:
    """A copy of the config with other values, validated again."""
    known = [name for name, _ in fields_of(type(config))]
    values = config.model_dump()
    for key, value in pairs:
        if key not in known:
            raise UserError(unknown("setting", key, known))
        *groups, name = key.split(".")
        target = values
        for group in groups:
            target = target[group]
        target[name] = value
    return checked(type(config), values, origin)


def _key(model: type[Config], location: tuple[int | str, ...]) -> str:
    """The dotted name of a setting, without indices into its value."""
    key: list[str] = []
    for part in map(str, location):
        key.append(part)
        field = model.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type):
            break
        if not issubclass(field.annotation, Config):
            break
        model = field.annotation
    return ".".join(key)


_LISTED_BY = {
    "recipe": "attmask recipes",
    "task": "attmask tasks",
    "setting": "attmask config NAME",
    "device": "attmask plan --help",
}


def unknown(kind: str, name: str, names: Sequence[str]) -> str:
    """The message for an unknown name, with the closest known names."""
    inside = [known for known in names if known.startswith(f"{name}.")]
    same_end = [known for known in names if known.endswith("." + name.rpartition(".")[2])]
    name = shortened(name)
    near = inside or same_end or difflib.get_close_matches(name, names)
    listed = f"`{_LISTED_BY.get(kind, 'attmask --help')}` lists them"
    advice = f"did you mean {' or '.join(near[:3])}?" if near else listed
    return f"there is no {kind} {name!r}; {advice}"


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-4 is a number; repeated keys, aliases and deep nesting are errors.

    A few lines of aliases can stand for gigabytes, or for a list that contains itself.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(problem="aliases are not read, repeat the value")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.composer.ComposerError(problem=f"it is nested more than {_DEEPEST} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key in seen:
                problem = f"the key {shortened(key)} appears twice"
                raise yaml.constructor.ConstructorError(problem=problem)
            seen.add(key)
        return super().construct_mapping(node, deep)


_DEEPEST = 20


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


class _Dumper(yaml.SafeDumper):
    """YAML with one line for each setting: [0.1, 0.5]."""


_Dumper.add_representer(
    list,
    lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True),
)


def dump_yaml(values: object) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


def parse_yaml(text: str | bytes, origin: str) -> Any:
    """Parse YAML to plain values; errors name `origin`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except Exception as fault:  # a date such as 2026-13-01 or a tag such as !!bool can raise any
        reason = " ".join(str(fault).split())
        if isinstance(fault, yaml.MarkedYAMLError):
            line = f" in line {fault.problem_mark.line + 1}" if fault.problem_mark else ""
            reason = f"{fault.problem}{line}"
        reason = shortened(reason, _LONGEST_REASON)
        raise UserError(f"{origin!r} is not YAML: {reason}") from None


def text_of(value: object) -> str:
    """Format a value as in an override."""
    with suppress(UserError):
        if isinstance(value, str) and value.isprintable() and parse_yaml(value, value) == value:
            return value
    try:
        return json.dumps(value, default=str)
    except TypeError:  # a key of a mapping that JSON does not have, such as a date
        return repr(value)

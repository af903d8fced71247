"""Hypothesis strategies for settings, built from the config classes: a new setting is drawn too."""

import functools
import json
import math
import operator
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import annotated_types
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from attmask.config import PretrainConfig
from attmask.overrides import fields_of

Limits: TypeAlias = dict[str, float]

FIELDS = dict(fields_of(PretrainConfig))

SMALL: Mapping[str, int] = {
    "data.channels": 5,
    "views.global_size": 48,
    "views.local_size": 48,
    "views.local_crops": 3,
    "backbone.patch_size": 24,
    "backbone.width": 64,
    "backbone.depth": 2,
    "backbone.heads": 8,
    "backbone.registers": 4,
    "head.prototypes": 64,
    "head.hidden": 64,
    "head.bottleneck": 64,
    "head.layers": 4,
    "train.batch_size": 8,
    "train.accumulate": 8,
}
"""The largest values that keep an example quick."""

FIXED: Mapping[str, str] = {
    "train.workers": "0",
    "train.threads": "1",
    "train.device": "cpu",
    "train.compile": "false",  # calls a C++ compiler
    "backbone.pretrained": "false",  # asks the hub
    "init": "null",  # needs a file of weights
}
"""What is not drawn, because an example would take seconds or need a network."""

NAMES = (
    "vit_tiny_patch16_224",
    "vit_small_patch14_dinov2",
    "vit_base_patch32_clip_224",
    "vit_little_patch16_reg1_gap_256",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "eva02_tiny_patch14_224",
    "swin_tiny_patch4_window7_224",
    "resnet18",
)
"""Networks of timm, some of which cannot be trained."""

numbers = st.one_of(
    st.integers(),
    st.integers(-3, 100),
    st.floats(),
    st.sampled_from([0, -1, 10**9, 2**63, -(2**63), 10**400, 1e-320, 1e308, -1e308]),
)
words = st.one_of(
    st.text(max_size=20),
    st.text("\0\n\r\t\x1b\x85\u2028\u202e\ud800'\"\\{}[]&*!|>%@`:#=,- ä漢🙈", max_size=12),
    st.sampled_from(["", "none", "auto", "~", "yes", ".nan", "-.inf", "1e999", "!!bool x", "*a"]),
    st.sampled_from(
        ["!!timestamp x", "&a [*a]", "[" * 2000, "{2020-01-01: 1}", "a: b: c", "x" * 1000]
    ),
    st.sampled_from(["!!python/object/apply:os.abort []", "9" * 5000, "2020-13-01", "1:2:3.5"]),
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=2),
    max_leaves=6,
)


def as_text(value: object) -> str:
    """A value as the YAML of an override; a string stands as it is, quoted or not as it comes."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, int):
        return hex(value) if value > 10**300 else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inside, value))}]"
    return json.dumps(value)


def _inside(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else as_text(value)


def valid_values(key: str) -> st.SearchStrategy[Any]:
    """Values that the type and the limits of a setting allow, none that makes it slow."""
    if key == "backbone.name":
        return st.sampled_from(NAMES) | words
    values = _of(FIELDS[key].annotation, _limits(FIELDS[key]), SMALL.get(key))
    if key in ("backbone.width", "backbone.depth"):
        return values.filter(lambda value: value is not None)  # the network's own is large
    if key == "backbone.patch_size":
        return values.filter(lambda value: value is None or value > 3)  # thousands of patches
    if key in ("views.global_size", "views.local_size"):
        return values | st.integers(1, 6).map(lambda patches: 8 * patches)
    return values


def _of(kind: Any, limits: Limits, largest: int | None) -> st.SearchStrategy[Any]:
    """Values of a type; what is not known here is an error, so that a new type is not left out."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _of(inner[0], limits | _limits(*inner[1:]), largest)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_of(one, limits, largest) for one in inner))
    if origin is tuple and ... in inner:
        return st.lists(_of(inner[0], limits, largest), min_size=1, max_size=3)
    if origin is tuple:
        return st.tuples(*(_of(one, limits, largest) for one in inner))
    if kind is int:
        return _integers(limits, largest)
    if kind is float:
        return _floats(limits)
    return {bool: st.booleans(), str: words, types.NoneType: st.none()}[kind]


def _integers(limits: Limits, largest: int | None) -> st.SearchStrategy[int]:
    low = int(limits["ge"] if "ge" in limits else limits.get("gt", -1) + 1)
    high = int(limits["le"] if "le" in limits else limits.get("lt", 2**63) - 1)
    high = high if largest is None else min(high, largest)
    return st.integers(low, min(high, 20)) | st.integers(low, high)


def _floats(limits: Limits) -> st.SearchStrategy[float]:
    def fits(number: float) -> bool:
        return all(limit(number) for limit in held)

    held = [
        functools.partial(getattr(operator, _MIRRORED[name]), limit)
        for name, limit in limits.items()
    ]
    sizes = st.floats(-30, 30).map(lambda exponent: 10.0**exponent)
    ends = st.sampled_from([0.0, 1.0, *limits.values()])
    return st.one_of(st.floats(0.01, 0.9), sizes, sizes.map(operator.neg), ends).filter(fits)


_MIRRORED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}


def _limits(*owners: Any) -> Limits:
    """The limits ge, gt, le and lt of a field or of the metadata of a type."""
    found: Limits = {}
    for owner in owners:
        if isinstance(owner, FieldInfo):
            found |= _limits(*owner.metadata)
        for name in ("ge", "gt", "le", "lt"):
            kind = getattr(annotated_types, name.capitalize())
            if isinstance(owner, kind):
                found[name] = getattr(owner, name)
    return found


def assignments(keys: list[str], values: Any) -> st.SearchStrategy[list[str]]:
    """`key=value` for one to eight different settings."""
    chosen = st.lists(st.sampled_from(keys), min_size=1, max_size=8, unique=True)
    return chosen.flatmap(
        lambda some: st.tuples(
            *(values(key).map(lambda v, key=key: f"{key}={as_text(v)}") for key in some)
        ).map(list)
    )


def hostile_values(key: str) -> st.SearchStrategy[Any]:
    """Any value for a setting, often one of its own kind."""
    return st.one_of(valid_values(key), anything)

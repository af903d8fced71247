"""The watch over a training: rules on its metrics that name a collapse, its reason and its cure."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from attmask.config import PretrainConfig

WINDOW_STEPS = 100
"""A rule must hold for so many steps before it is told, and be broken as long to be over."""
WINDOW_RECORDS = 5
"""The fewest records in a window, whatever monitor.log_every_steps."""
MOST = 0.9
"""The share of the records of a window in which a rule must hold: one odd batch does not count."""
GRACE_STEPS = 100
"""No rule is applied before, because an untrained network has neither targets nor attention."""
ATTENTION_GRACE_STEPS = 300
"""The attention of small initial weights is uniform for longer, also in healthy trainings."""

UNIFORM_TARGETS = 0.99
"""Entropy of a target as a share of ln K."""
SHARP_TARGETS = 0.02
"""The same."""
FEW_PROTOTYPES = 0.1
"""Prototypes used as a share of what a batch could use."""
SAME_TARGETS = 0.001
"""KL from teacher to student as a share of ln K."""
WORSE_THAN_GUESSING = 1.1
"""Loss of [CLS] as a share of ln K."""
FLAT_SPREAD = 0.03
FLAT_RANK = 2.0
UNIFORM_ATTENTION = 0.999
ATTENTION_OUTLIERS = 50.0
"""Per cent of the attention."""
BLANK_VIEWS = 0.01
"""Of data.std."""

Kind: TypeAlias = Literal[
    "blank_images",
    "flat_features",
    "one_prototype",
    "uniform_targets",
    "sharp_targets",
    "same_targets",
    "diverging",
    "uniform_attention",
    "attention_outliers",
]
Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a training, at which step it was told, and what to change."""

    kind: Kind
    step: int
    text: str


@dataclass(frozen=True)
class Rule:
    """A condition on the metrics of one record, with the line that is told when it lasts."""

    kind: Kind
    reads: tuple[str, ...]
    """The metrics without which it is not applied."""
    holds: Callable[[Values], bool]
    tell: Callable[[Values], str]
    grace_steps: int = GRACE_STEPS
    after_warmup: bool = True
    """Whether the first epochs, in which the learning rate rises, do not count."""
    hidden_by: tuple[Kind, ...] = ()
    """The kinds that explain this one, so that the reason is told and not what follows from it."""


@dataclass
class _Window:
    """Whether a rule held in each of the last records."""

    records: deque[tuple[int, bool]] = field(default_factory=deque)
    lasts: bool = False

    def add(self, step: int, holds: bool) -> None:
        """Add a record, and decide whether the rule lasts once the window is full."""
        records = self.records
        records.append((step, holds))
        while len(records) > WINDOW_RECORDS and records[1][0] <= step - WINDOW_STEPS:
            records.popleft()
        if len(records) < WINDOW_RECORDS or records[0][0] > step - WINDOW_STEPS:
            return
        share = sum(held for _, held in records) / len(records)
        if share >= MOST or share <= 1 - MOST:
            self.lasts = share >= MOST


class Watch:
    """Follows the metrics of a training record by record, and tells each kind once."""

    def __init__(self, config: PretrainConfig) -> None:
        self._rules = rules(config)
        self._warmup_epochs = config.schedule.lr_warmup_epochs
        self._windows = {rule.kind: _Window() for rule in self._rules}
        self._told: dict[Kind, Finding] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong now, causes first."""
        last = self._last()
        shown = (rule.kind for rule in self._rules if last.isdisjoint(rule.hidden_by))
        return tuple(self._told[kind] for kind in shown if kind in self._told)

    def see(self, step: int, epoch: int, values: Values) -> tuple[Finding, ...]:
        """Take the metrics of a record by their keys; return what was not wrong before."""
        for rule in self._rules:
            in_warmup = rule.after_warmup and epoch < self._warmup_epochs
            early = in_warmup or step < rule.grace_steps
            if not early and all(_is_number(values.get(key)) for key in rule.reads):
                self._windows[rule.kind].add(step, rule.holds(values))
        last = self._last()
        self._told = {kind: found for kind, found in self._told.items() if kind in last}
        new = tuple(
            Finding(rule.kind, step, rule.tell(values))
            for rule in self._rules
            if rule.kind in last - self._told.keys() and last.isdisjoint(rule.hidden_by)
        )
        self._told |= {found.kind: found for found in new}
        return new

    def _last(self) -> set[Kind]:
        """The kinds whose rules hold lastingly."""
        return {kind for kind, window in self._windows.items() if window.lasts}


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def rules(config: PretrainConfig) -> tuple[Rule, ...]:
    """The rules for a run, causes first."""
    follows_attention = config.masking.strategy in ("high", "low", "hint")
    return (
        _blank_images(config),
        *_features(config),
        *_targets(config),
        *(_attention(config) if follows_attention else ()),
    )


def _blank_images(config: PretrainConfig) -> Rule:
    data = config.data
    key = "health.view_contrast"
    return Rule(
        "blank_images",
        (key,),
        lambda values: values[key] <= BLANK_VIEWS,
        lambda values: (
            f"the views are blank: inside them pixels deviate by {values[key]:.3f} of data.std, "
            f"at least {BLANK_VIEWS} is wanted; look at the images with attmask inspect, and at "
            f"data.bits (now {_said(data.bits)}) and data.std (now {_said(data.std)})"
        ),
        after_warmup=False,
    )


def _features(config: PretrainConfig) -> tuple[Rule, ...]:
    spread, rank = "health.feature_spread", "health.feature_rank"
    images = config.train.batch_size
    return (
        Rule(
            "flat_features",
            (spread, rank),
            lambda values: (
                values[spread] <= FLAT_SPREAD or (values[rank] <= FLAT_RANK and images >= 8)
            ),
            lambda values: (
                "the teacher's features are nearly the same for all images: their spread is "
                f"{values[spread]:.4f} (more than {FLAT_SPREAD} is wanted), their effective rank "
                f"{values[rank]:.1f} (more than {FLAT_RANK:g}); the learning rate is likely too "
                f"high: lower schedule.lr (now {config.schedule.lr:g}) or lengthen "
                f"schedule.lr_warmup_epochs (now {config.schedule.lr_warmup_epochs:g})"
            ),
            hidden_by=("blank_images",),
        ),
    )


def _targets(config: PretrainConfig) -> tuple[Rule, ...]:
    entropy, used, kl, loss = (
        "health.teacher_entropy",
        "health.prototypes_used",
        "health.kl",
        "loss.cls",
    )
    prototypes, lr = config.head.prototypes, config.schedule.lr
    most = math.log(prototypes)
    # Two views of an image have one target at best; diagnostics are those of a micro-batch.
    images = config.train.batch_size // config.train.accumulate
    few = max(1.5, FEW_PROTOTYPES * min(prototypes, images))
    temperature = f"schedule.cls_temperature (now {_said(config.schedule.cls_temperature)})"
    if config.loss.centring == "mean":
        balance = (
            "set loss.centring=sinkhorn (now mean), lower loss.centre_momentum "
            f"(now {config.loss.centre_momentum:g})"
        )
    else:
        balance = f"use a larger train.batch_size (now {config.train.batch_size})"
    return (
        Rule(
            "one_prototype",
            (used,),
            lambda values: images >= 4 and values[used] <= few,
            lambda values: (
                f"the targets have collapsed to {values[used]:.1f} of {prototypes} prototypes, "
                f"more than {few:.1f} are wanted; {balance} or raise {temperature}"
            ),
            after_warmup=False,
            hidden_by=("blank_images",),
        ),
        Rule(
            "uniform_targets",
            (entropy,),
            lambda values: values[entropy] >= UNIFORM_TARGETS * most,
            lambda values: (
                "the teacher's targets are uniform, so they say nothing about an image: their "
                f"entropy is {values[entropy]:.3f} of at most {most:.3f} nats; lower {temperature}"
                + (
                    " or set loss.centring=sinkhorn (now mean)"
                    if config.loss.centring == "mean"
                    else ""
                )
            ),
            hidden_by=("blank_images", "flat_features"),
        ),
        Rule(
            "sharp_targets",
            (entropy,),
            lambda values: values[entropy] <= SHARP_TARGETS * most,
            lambda values: (
                "the teacher's targets are one-hot, so chance decides many of them: their entropy "
                f"is {values[entropy]:.4f} nats, more than {SHARP_TARGETS * most:.3f} is wanted; "
                f"raise {temperature}"
            ),
            hidden_by=("blank_images", "one_prototype"),
        ),
        Rule(
            "same_targets",
            (kl,),
            lambda values: values[kl] <= SAME_TARGETS * most,
            lambda values: (
                "the student predicts every target without an error, so there is nothing left to "
                f"learn: the KL from teacher to student is {values[kl]:.5f} nats, more than "
                f"{SAME_TARGETS * most:.4f} is wanted; {balance} or lower {temperature}"
            ),
            hidden_by=("blank_images", "flat_features", "one_prototype", "uniform_targets"),
        ),
        Rule(
            "diverging",
            (loss,),
            lambda values: values[loss] >= WORSE_THAN_GUESSING * most,
            lambda values: (
                f"the student is worse than guessing: its loss of [CLS] is {values[loss]:.2f} "
                f"nats, that of a uniform guess {most:.2f}; schedule.lr (now {lr:g}) is too high "
                "if this loss has risen, too low if it never fell; else raise "
                f"{temperature} or loss.student_temperature (now "
                f"{config.loss.student_temperature:g})"
            ),
            hidden_by=("blank_images",),
        ),
    )


def _attention(config: PretrainConfig) -> tuple[Rule, ...]:
    entropy, outliers = "health.attention_entropy", "health.attention_outliers"
    strategy = f"masking.strategy={config.masking.strategy}"
    layer = f"masking.layer (now {_said(config.masking.layer, 'the last')})"
    backbone = config.backbone
    return (
        Rule(
            "uniform_attention",
            (entropy,),
            lambda values: values[entropy] >= UNIFORM_ATTENTION,
            lambda values: (
                f"the [CLS] attention is uniform, so {strategy} hides patches at random: its "
                f"entropy is {values[entropy]:.5f} of 1, less than {UNIFORM_ATTENTION} is wanted; "
                f"raise backbone.init_std (now {backbone.init_std:g}) towards 1/sqrt(width) or "
                f"schedule.lr (now {config.schedule.lr:g}), or choose another {layer}"
            ),
            grace_steps=ATTENTION_GRACE_STEPS,
            hidden_by=("blank_images",),
        ),
        Rule(
            "attention_outliers",
            (outliers,),
            lambda values: values[outliers] >= ATTENTION_OUTLIERS,
            lambda values: (
                f"a few patches of very large norm hold {values[outliers]:.0f} % of the [CLS] "
                f"attention, so {strategy} follows them and not the image; less than "
                f"{ATTENTION_OUTLIERS:.0f} % is wanted; set backbone.registers=4 (now "
                f"{_said(backbone.registers, 'none')}) or an earlier {layer}"
            ),
            hidden_by=("blank_images",),
        ),
    )


def _said(value: object, otherwise: str = "null") -> str:
    """A setting as it is written on the command line."""
    if value is None:
        return otherwise
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{each:g}" for each in value) + "]"
    return f"{value}"

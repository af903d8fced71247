"""What can go wrong with a pre-training: collapse of targets, features or attention."""

import math
from typing import Literal, TypeAlias

from attmask.config import PretrainConfig
from attmask.watch import Rule, Watch

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


def watch_over(config: PretrainConfig) -> Watch:
    """The watch over a pre-training."""
    return Watch(rules(config), warmup_epochs=config.schedule.lr_warmup_epochs)


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

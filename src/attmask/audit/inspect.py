"""The whole inspection: survey, numbers, duplicates, advice, timing and warnings make an audit."""

import dataclasses
from pathlib import Path

import numpy as np

from attmask.audit.advice import Findings, Machine, Plan, plan
from attmask.audit.audit import Audit, Counts, Timing, Unreadable
from attmask.audit.duplicates import Alike, duplicates, leakage
from attmask.audit.memory import total_bytes
from attmask.audit.summary import (
    channels_to_train_on,
    classes,
    decode_speed,
    kinds,
    pixels,
    sizes,
)
from attmask.audit.survey import Survey, survey
from attmask.audit.timing import time_steps
from attmask.audit.warn import warnings_of
from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.hardware import choose_device, cores, default_workers
from attmask.recipe import load_recipe

MAX_IMAGES = 20_000
_COMPARED = (("val", "train"), ("test", "train"), ("test", "val"))


def inspect_images(
    data: Path,
    *,
    recipe: str | None = None,
    max_images: int = MAX_IMAGES,
    workers: int | None = None,
    measure: bool = True,
) -> Audit:
    """Examine the images and recommend settings; `measure` also times some steps with these."""
    config = load_recipe(recipe).data if recipe is not None else DataConfig()
    images = open_images(data, channels=None if recipe is None else config.channels)
    found = survey(images, config, max_images=max_images, workers=workers)
    seen = found.all
    looks = [picture.looks for picture in seen if picture.looks is not None]
    unreadable = tuple(
        Unreadable(picture.place, picture.fault) for picture in seen if picture.fault is not None
    )
    if not looks:
        first = unreadable[0]
        raise UserError(
            f"no readable image in {data}: tried {len(seen)}, the first: {first.place}: "
            f"{first.reason}; check that these files are pictures"
        )
    values = pixels(looks, channels_to_train_on(looks))
    machine = Machine(choose_device("auto").type, cores(), default_workers())
    findings = Findings(
        images=len(images.train),
        short_side=int(sizes(looks).short_side.median),
        pixels=values,
        class_sizes=_class_sizes(images.train),
    )
    advised = plan(findings, machine, recipe)
    timing, problem = _timed(advised, images) if measure else (None, None)
    alike = Alike(seen)
    audit = Audit(
        data=str(data),
        images=_counts(images, found),
        skipped=dict(images.skipped),
        classes=classes(images.train),
        sizes=sizes(looks),
        kinds=kinds(looks),
        unreadable=unreadable,
        duplicates=duplicates(seen, alike),
        leakage={
            f"{held_out} in {other}": leakage(found.splits[other], found.splits[held_out], alike)
            for held_out, other in _COMPARED
            if {held_out, other} <= found.splits.keys()
        },
        pixels=values,
        decode=decode_speed(looks),
        machine=machine,
        recipe=advised.recipe,
        recipe_reason=advised.reason,
        settings=advised.settings,
        command=advised.command(str(data)),
        timing=timing,
        warnings=(),
    )
    limit = advised.config.data.unreadable_limit
    warned = warnings_of(audit, unreadable_limit=limit, memory=total_bytes())
    if problem is not None:
        warned = (*warned, f"no step could be timed: {problem}")
    return dataclasses.replace(audit, warnings=warned)


def _timed(advised: Plan, images: Images) -> tuple[Timing | None, str | None]:
    """The timing, or the error message if it failed."""
    try:
        return time_steps(advised.config, images), None
    except (UserError, RuntimeError) as problem:  # PyTorch's own, or a process that died
        return None, str(problem).partition("\n")[0]


def _counts(images: Images, found: Survey) -> Counts:
    sizes = {name: len(source) for name, source in images.splits.items()}
    examined = len(found.all)
    return Counts(
        train=sizes["train"],
        val=sizes.get("val"),
        test=sizes.get("test"),
        examined=examined,
        all_examined=examined == sum(sizes.values()),
    )


def _class_sizes(source: Source) -> tuple[int, ...]:
    return () if source.labels is None else tuple(np.bincount(source.labels).tolist())

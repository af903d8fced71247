"""Run tasks on checkpoints; every result is a card."""

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from attmask import distributed
from attmask.errors import UserError
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card, write_cards
from attmask.evaluation.task import Checking, Data, Task, shown_size
from attmask.settings import Config
from attmask.software import software

log = logging.getLogger(__name__)

_USUAL_SIZE = 224  # pixels; a message says that larger images are slow


class UnfinishedError(UserError):
    """Some tasks failed; `cards` are the results of the others."""

    def __init__(self, failures: Sequence[str], cards: Sequence[Card]) -> None:
        self.failures, self.cards = list(failures), list(cards)
        super().__init__("; ".join(failures))


def measure(
    task: Task[Any], model: FrozenModel, data: Data, path: Path, extractor: FeatureExtractor
) -> Card:
    """Run one task on one network."""
    began, clock = datetime.now(timezone.utc), time.monotonic()
    measures = task.protocol.measure(model, data, extractor)
    unread = {name: extractor.unreadable(source) for name, source in data.sources.items()}
    hashes = {name: extractor.contents(source) for name, source in data.sources.items()}
    trained = {
        "classifier": model.classifier,
        "segmenter": model.segmenter,
        "detector": model.detector,
    }
    heads = {name: head.digest for name, head in trained.items() if head is not None}
    return Card(
        checkpoint=model.name,
        task=task.name,
        version=task.version,
        metrics=list(measures.metrics),
        notes=list(measures.notes),
        details=dict(measures.details),
        files=[str(file) for file in measures.files],
        protocol=_settings(task.protocol),
        dataset=_settings(task.dataset),
        data=str(path),
        images={name: len(source) - unread[name] for name, source in data.sources.items()},
        unreadable={name: count for name, count in unread.items() if count},
        hashes={"network": model.digest, **heads, **hashes},
        seed=extractor.seed,
        format=extractor.precision.format,
        device=str(extractor.device),
        processes=distributed.world_size(),
        software=software(),
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 2),
        network=model.describe(shown_size(task.protocol, model)),
    )


def _settings(config: object) -> dict[str, Any]:
    assert isinstance(config, Config)
    return {"kind": type(config).__name__, **config.model_dump(mode="json")}


def measure_all(
    tasks: Sequence[Task[Any]],
    models: Iterable[tuple[FrozenModel, FeatureExtractor]],
    paths: Mapping[str, Path],
) -> list[Card]:
    """Run every task on every network; `paths` has the path of the images of each task.

    `models` is iterated twice: all data sets are opened, all networks loaded and all requirements
    checked before the first task runs. Each card of a run is saved in the run at once. A task that
    fails later does not stop the others; `UnfinishedError` at the end has the finished cards.
    """
    data = _opened(tasks, paths)
    for model, _ in models:
        for task in tasks:
            if isinstance(task.protocol, Checking):
                task.protocol.check(model, data[task.name])
    cards: list[Card] = []
    failures: list[str] = []
    for model, extractor in models:
        for task in tasks:
            _announce(task, model, paths[task.name])
            try:
                card = measure(task, model, data[task.name], paths[task.name], extractor)
            except Exception as fault:
                failures.append(_failure(task, model, fault))
                if distributed.world_size() > 1:  # the other processes would wait for this one
                    raise UnfinishedError(failures, cards) from fault
                continue
            cards.append(card)
            if model.folder is not None and distributed.is_main():
                _keep(card, model.folder)
    if failures:
        raise UnfinishedError(failures, cards)
    return cards


def _opened(tasks: Sequence[Task[Any]], paths: Mapping[str, Path]) -> dict[str, Data]:
    """The data of each task; data that several tasks share is opened once."""
    opened: dict[str, Data] = {}
    data = {}
    for task in tasks:
        which = json.dumps([_settings(task.dataset), str(paths[task.name])])
        if which not in opened:
            opened[which] = task.dataset.open(paths[task.name])
        data[task.name] = opened[which]
    return data


def _announce(task: Task[Any], model: FrozenModel, path: Path) -> None:
    """Log the task and its image size before the first image is read."""
    if not distributed.is_main():
        return
    size = shown_size(task.protocol, model)
    told = "" if size is None else f", images of {size} pixels"
    if size is not None and size > _USUAL_SIZE and hasattr(task.protocol, "image_size"):
        patch = model.backbone.patch_size
        told += f" (slow; {task.name}.image_size={_USUAL_SIZE // patch * patch or patch} is faster)"
    log.info("%s: %s on %s%s", model.name, task.name, path, told)


def _failure(task: Task[Any], model: FrozenModel, fault: Exception) -> str:
    """One line for the user; unexpected errors are logged with their traceback."""
    if isinstance(fault, UserError):
        return f"{task.name} on {model.name} failed: {fault}"
    log.error("%s on %s failed", task.name, model.name, exc_info=fault)
    first = next(iter(str(fault).splitlines()), "")
    return f"{task.name} on {model.name} failed: {type(fault).__name__}: {first}"


def _keep(card: Card, run: Path) -> None:
    """Save a card in its run; only the same measurement replaces it.

    If the run cannot be written to, this is only a warning.
    """
    same = [card.protocol, card.dataset, dict(card.hashes), card.seed, card.format]
    which = hashlib.sha256(json.dumps(same).encode()).hexdigest()
    file = run / "evaluations" / f"{card.task}-v{card.version}-{which[:12]}.json"
    try:
        write_cards([card], file)
    except UserError as fault:
        log.warning("%s", fault)

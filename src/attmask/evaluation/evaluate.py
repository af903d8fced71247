"""Checkpoints through tasks: every measurement ends as a card."""

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
from attmask.evaluation.bench import Bench
from attmask.evaluation.card import Card, software, write_cards
from attmask.evaluation.subject import Subject
from attmask.evaluation.task import Data, Task
from attmask.settings import Config

log = logging.getLogger(__name__)


def measure(task: Task[Any], subject: Subject, data: Data, place: Path, bench: Bench) -> Card:
    """One task on one network."""
    began, clock = datetime.now(timezone.utc), time.monotonic()
    measures = task.protocol.measure(subject, data, bench)
    unread = {name: bench.unreadable(source) for name, source in data.sources.items()}
    hashes = {name: bench.contents(source) for name, source in data.sources.items()}
    return Card(
        checkpoint=subject.name,
        task=task.name,
        version=task.version,
        numbers={name: float(value) for name, value in measures.numbers.items()},
        notes=list(measures.notes),
        details=dict(measures.details),
        files=[str(file) for file in measures.files],
        protocol=_settings(task.protocol),
        dataset=_settings(task.dataset),
        data=str(place),
        images={name: len(source) - unread[name] for name, source in data.sources.items()},
        unreadable={name: count for name, count in unread.items() if count},
        hashes={"network": subject.digest, **hashes},
        seed=bench.seed,
        format=bench.precision.format,
        device=str(bench.device),
        processes=distributed.world_size(),
        software=software(),
        began=began.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 2),
    )


def _settings(config: object) -> dict[str, Any]:
    assert isinstance(config, Config)
    return {"kind": type(config).__name__, **config.model_dump(mode="json")}


def measure_all(
    tasks: Sequence[Task[Any]],
    subjects: Iterable[tuple[Subject, Bench]],
    places: Mapping[str, Path],
) -> list[Card]:
    """Every task on every network; `places` says where the images of each task are.

    All data sets are opened before anything is measured. The card of a run's network is kept in
    the run at once, so that a later fault loses nothing.
    """
    opened: dict[str, Data] = {}
    data = {}
    for task in tasks:
        which = json.dumps([_settings(task.dataset), str(places[task.name])])
        if which not in opened:
            opened[which] = task.dataset.open(places[task.name])
        data[task.name] = opened[which]
    cards = []
    for subject, bench in subjects:
        for task in tasks:
            if distributed.is_main():
                log.info("%s: %s on %s", subject.name, task.name, places[task.name])
            card = measure(task, subject, data[task.name], places[task.name], bench)
            cards.append(card)
            if subject.folder is not None and distributed.is_main():
                _keep(card, subject.folder)
    return cards


def _keep(card: Card, run: Path) -> None:
    """A card is replaced by the same measurement alone; a run that cannot be written to is none
    of its faults."""
    same = [card.protocol, card.dataset, dict(card.hashes), card.seed, card.format]
    which = hashlib.sha256(json.dumps(same).encode()).hexdigest()
    file = run / "evaluations" / f"{card.task}-v{card.version}-{which[:12]}.json"
    try:
        write_cards([card], file)
    except UserError as fault:
        log.warning("%s", fault)

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
from attmask.evaluation.bench import Bench
from attmask.evaluation.card import Card, files_of, hashes_of, images_of, software, write_cards
from attmask.evaluation.subject import Subject
from attmask.evaluation.task import Task
from attmask.settings import Config

log = logging.getLogger(__name__)


def measure(task: Task[Any], subject: Subject, path: Path, bench: Bench) -> Card:
    """One task on one network."""
    began, clock = datetime.now(timezone.utc), time.monotonic()
    data = task.dataset.open(path)
    measures = task.protocol.measure(subject, data, bench)
    return Card(
        checkpoint=subject.name,
        task=task.name,
        version=task.version,
        numbers={name: float(value) for name, value in measures.numbers.items()},
        notes=list(measures.notes),
        details=dict(measures.details),
        files=files_of(measures),
        protocol=_settings(task.protocol),
        dataset=_settings(task.dataset),
        data=str(path),
        images=images_of(data),
        hashes=hashes_of(subject.digest, data),
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
    data: Mapping[str, Path],
) -> list[Card]:
    """Every task on every network; `data` says where the images of each task are.

    The card of a run's network is kept in the run at once, so that a later fault loses nothing.
    """
    cards = []
    for subject, bench in subjects:
        for task in tasks:
            if distributed.is_main():
                log.info("%s: %s on %s", subject.name, task.name, data[task.name])
            card = measure(task, subject, data[task.name], bench)
            cards.append(card)
            if subject.folder is not None and distributed.is_main():
                write_cards([card], subject.folder / "evaluations" / _file_name(card))
    return cards


def _file_name(card: Card) -> str:
    """A card is replaced by the same measurement alone: same task, network and images."""
    which = hashlib.sha256(json.dumps([card.protocol, dict(card.hashes)]).encode()).hexdigest()
    return f"{card.task}-v{card.version}-{which[:12]}.json"

"""One pass over the pictures with worker processes, which reads each file once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.data import DataLoader, Dataset

from attmask.audit.facts import PictureFacts, examine
from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.subset import evenly_spaced
from attmask.data.workers import start_worker
from attmask.errors import UserError
from attmask.hardware import cores

_CHUNK = 16
_TIMED = 64  # pictures of a split that are decoded again, to time it


@dataclass(frozen=True)
class Survey:
    """The facts of each split's pictures, in file order."""

    splits: Mapping[str, list[PictureFacts]]

    @property
    def train(self) -> list[PictureFacts]:
        """Of the images to train on."""
        return self.splits["train"]

    @property
    def all(self) -> list[PictureFacts]:
        """Of all splits, one after the other."""
        return [facts for found in self.splits.values() for facts in found]


@dataclass(frozen=True)
class _Chunks(Dataset[list[PictureFacts]]):
    """Some pictures of a source, a few at a time."""

    source: Source
    chosen: Int64[np.ndarray, " n"]
    timed: frozenset[int]
    config: DataConfig

    def __len__(self) -> int:
        return -(-len(self.chosen) // _CHUNK)

    def __getitem__(self, chunk: int) -> list[PictureFacts]:
        indices = self.chosen[chunk * _CHUNK : (chunk + 1) * _CHUNK].tolist()
        return [
            examine(self.source, index, self.config, timed=index in self.timed) for index in indices
        ]


def survey(
    images: Images, config: DataConfig, *, max_images: int, workers: int | None = None
) -> Survey:
    """Examine at most `max_images` pictures, evenly spread over the splits by their sizes."""
    if max_images < 1:
        raise UserError(f"max_images is {max_images}; it must be at least 1")
    splits = images.splits
    total = sum(map(len, splits.values()))
    chosen = {
        name: evenly_spaced(len(part), max(1, round(len(part) * min(1.0, max_images / total))))
        for name, part in splits.items()
    }
    found: dict[str, list[PictureFacts]] = {name: [] for name in splits}
    with _progress() as progress:
        task = progress.add_task("reading pictures", total=sum(map(len, chosen.values())))
        for name, indices in chosen.items():
            timed = indices[evenly_spaced(len(indices), min(_TIMED, len(indices)))]
            chunks = _Chunks(splits[name], indices, frozenset(timed.tolist()), config)
            for chunk in _read(chunks, _workers(workers, len(chunks))):
                found[name] += chunk
                progress.advance(task, len(chunk))
    return Survey(found)


def _read(chunks: _Chunks, workers: int) -> Iterator[list[PictureFacts]]:
    loader: DataLoader[list[PictureFacts]] = DataLoader(
        chunks,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=start_worker,
        generator=torch.Generator(),
    )
    done = 0
    try:
        for chunk in loader:
            yield chunk
            done += len(chunk)
    except RuntimeError as fault:
        if "DataLoader worker" not in str(fault):
            raise
        place = chunks.source.place(int(chunks.chosen[done]))
        raise UserError(
            f"a process that reads pictures died at {place} or one of the next ones, because of"
            " a broken "
            f"file or too little memory; try a smaller --max-images, or check these files"
        ) from fault


def _as_it_is(chunk: list[PictureFacts]) -> list[PictureFacts]:
    return chunk


def _workers(asked: int | None, chunks: int) -> int:
    """The given number of workers, else one per core; none for few pictures."""
    if asked is not None:
        return asked
    return min(16, cores(), chunks // 4)


def _progress() -> Progress:
    """A progress bar on stderr, if it is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

"""What the network of one epoch made of the images of a report, kept in RUN/report.

Checkpoints are removed while a run goes on; what is needed of them to show how features change is
small, so it is kept.
"""

import io
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from attmask import atomic
from attmask.data.subset import evenly_spaced
from attmask.evaluation.metrics.neighbours import nearest
from attmask.html_report.encoding import encoded
from attmask.html_report.gallery import Gallery
from attmask.visualization.colours import score_colours
from attmask.visualization.projection import Projection, aligned, project

FOLDER = "report"
NEIGHBOURS = 5
MOST_EPOCHS = 24
"""So many are shown; of more, evenly spread ones."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Principal components of the patches of the probes, and the nearest images of the probes."""

    epoch: float
    scores: Float32[np.ndarray, "M 3"]
    neighbours: Int32[np.ndarray, "P k"]
    cosines: Float32[np.ndarray, "P k"]


def snapshot(
    epoch: float,
    patches: Float[Tensor, "P N D"],
    embeddings: Float[Tensor, "M D"],
    gallery: Gallery,
) -> Snapshot:
    """Take the snapshot of a network."""
    k = min(NEIGHBOURS, len(embeddings) - 1)
    probes = torch.tensor(gallery.probes)
    indices, cosines = [], []
    if k > 0:
        found = list(nearest(embeddings, embeddings[probes], k + 1))
        for place, near, cosine in zip(
            gallery.probes,
            torch.cat([index for _, index in found]).tolist(),
            torch.cat([cosine for cosine, _ in found]).tolist(),
            strict=True,
        ):
            kept = [(n, c) for n, c in zip(near, cosine, strict=True) if n != place][:k]
            indices.append([n for n, _ in kept])
            cosines.append([c for _, c in kept])
    return Snapshot(
        epoch=epoch,
        scores=project(patches.flatten(0, 1)).scores.float().numpy(),
        neighbours=np.array(indices, np.int32).reshape(len(probes), max(k, 0)),
        cosines=np.array(cosines, np.float32).reshape(len(probes), max(k, 0)),
    )


def keep(run: Path, taken: Snapshot, gallery: Gallery) -> None:
    """Write a snapshot; an error of the disk is a warning, because a report can do without."""
    memory = io.BytesIO()
    np.savez_compressed(
        memory, scores=taken.scores, neighbours=taken.neighbours, cosines=taken.cosines
    )
    file = run / FOLDER / f"{gallery.key}-{taken.epoch:.4f}.npz"
    try:
        atomic.make_folder(file.parent)
        atomic.write(file, memory.getvalue(), flushes=False)
    except OSError as fault:
        log.warning("cannot write %s: %s", file, fault.strerror or fault)


def kept(run: Path, gallery: Gallery) -> dict[float, Snapshot]:
    """The snapshots of these images, by epoch; files that cannot be read are passed over."""
    found: dict[float, Snapshot] = {}
    for file in sorted((run / FOLDER).glob(f"{gallery.key}-*.npz")):
        match = re.fullmatch(r"[0-9a-f]+-([0-9.]+)\.npz", file.name)
        if match is None:
            continue
        try:
            with np.load(file) as stored:
                found[float(match[1])] = Snapshot(
                    float(match[1]), stored["scores"], stored["neighbours"], stored["cosines"]
                )
        except Exception as fault:  # a damaged archive can raise anything
            log.warning("cannot read %s (%s); it is passed over", file, fault)
    return found


def pca_of(snapshots: Sequence[Snapshot], gallery: Gallery, shown: int) -> dict[str, Any]:
    """The patches as colours over the epochs; each is rotated towards the one after it.

    The colours of the first probes, as many as are `shown`.
    """
    ordered = sorted(snapshots, key=lambda each: each.epoch)
    some = [ordered[-1 - i] for i in evenly_spaced(len(ordered), min(MOST_EPOCHS, len(ordered)))]
    projections: list[Projection] = []  # the last epoch first
    for each in some:
        own = Projection(torch.from_numpy(each.scores).double())
        projections.append(aligned(own, projections[-1]) if projections else own)
    rows, cols = gallery.grid
    colours = [score_colours(one.range).numpy() for one in reversed(projections)]
    shape = (len(some), len(gallery.probes), rows * cols, 3)
    return {
        "epochs": [each.epoch for each in reversed(some)],
        "colours": encoded(np.stack(colours).reshape(shape)[:, :shown], "u1"),
    }


def neighbours_of(snapshots: Sequence[Snapshot], gallery: Gallery) -> dict[str, Any]:
    """The nearest images of the probes before training and now."""
    ordered = sorted(snapshots, key=lambda each: each.epoch)
    columns = {"untrained": ordered[0], "now": ordered[-1]}
    if ordered[0].epoch > 0 or len(ordered) == 1:
        del columns["untrained"]
    return {
        "probes": gallery.probes,
        "columns": [
            {
                "title": title,
                "indices": each.neighbours.tolist(),
                "similarity": each.cosines.round(4).astype(float).tolist(),
            }
            for title, each in columns.items()
        ],
    }

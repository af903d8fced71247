"""What ONNX and torch.export trace: the network as one function, with its dynamic axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
import torch
from torch import Tensor

from attmask.exporting.probes import probe_images
from attmask.exporting.subject import Outputs, Subject

_LARGEST_GRID = 1024
INPUT = "images"


@contextmanager
def without_shape_checks() -> Iterator[None]:
    """Trace without jaxtyping's checks, which know no symbolic sizes where they are switched on."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def traced(subject: Subject) -> tuple[Outputs, Tensor]:
    """The network and example images; two, because a batch of one would be taken for fixed."""
    size = subject.image_size
    return Outputs(subject).eval().requires_grad_(False), probe_images(subject, 2, size, size)


def dynamic_axes(subject: Subject, *, dynamic_size: bool) -> dict[str, dict[int, Any]]:
    """The axes that may have any length: the batch and, if asked, the sides in whole patches."""
    axes: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
    if dynamic_size:
        patch = subject.backbone.patch_size
        axes[2] = patch * torch.export.Dim("rows", min=1, max=_LARGEST_GRID)
        axes[3] = patch * torch.export.Dim("columns", min=1, max=_LARGEST_GRID)
    return {INPUT: axes}


def output_names(subject: Subject) -> list[str]:
    """The names of the outputs, in order."""
    return ["cls", "patches", "attention", *(["logits"] if subject.classes else [])]

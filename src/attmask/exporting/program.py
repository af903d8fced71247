"""What ONNX and torch.export hold: the network as one traced function, with its dynamic axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jaxtyping
import torch
from torch import fx
from torch.export import ExportedProgram

from attmask.errors import UserError
from attmask.exporting.probes import probe_images
from attmask.exporting.subject import Outputs, Subject

SMALLEST_GRID = 2
"""Patches on a side: torch.export takes an axis of one for fixed."""
_LARGEST_GRID = 1024
INPUT = "images"


def trace(subject: Subject, *, dynamic_size: bool) -> ExportedProgram:
    """Trace the network for any batch and, if asked, any size in whole patches."""
    traced = subject if dynamic_size else subject.for_one_size()
    network = Outputs(traced).eval().requires_grad_(False)
    # Two images, because a batch of one would be taken for fixed.
    images = probe_images(subject, 2, subject.image_size, subject.image_size)
    axes = dynamic_axes(subject, dynamic_size=dynamic_size)
    with without_shape_checks():
        program = torch.export.export(network, (images,), dynamic_shapes=axes)
    _forget_sources(program)
    return program


def dynamic_axes(subject: Subject, *, dynamic_size: bool) -> dict[str, dict[int, Any]]:
    """The axes that may have any length: the batch and, if asked, the sides in whole patches."""
    axes: dict[int, Any] = {0: torch.export.Dim("batch", min=1)}
    if dynamic_size:
        patch = subject.backbone.patch_size
        if subject.image_size < SMALLEST_GRID * patch:
            raise UserError(
                f"--dynamic-size takes images from {SMALLEST_GRID} patches on, but those of "
                f"{subject.model.name} have one of {patch} pixels; use --size {2 * patch} or more"
            )
        axes[2] = patch * torch.export.Dim("rows", min=SMALLEST_GRID, max=_LARGEST_GRID)
        axes[3] = patch * torch.export.Dim("columns", min=SMALLEST_GRID, max=_LARGEST_GRID)
    return {INPUT: axes}


@contextmanager
def without_shape_checks() -> Iterator[None]:
    """Trace without jaxtyping's checks, which know no symbolic sizes where they are switched on."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def output_names(subject: Subject) -> list[str]:
    """The names of the outputs, in order."""
    return ["cls", "patches", "attention", *(["logits"] if subject.classes else [])]


def _forget_sources(program: ExportedProgram) -> None:
    """Remove the lines of source of each operation, which name folders of this machine."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)

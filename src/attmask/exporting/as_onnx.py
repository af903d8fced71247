"""The format of ONNX: model.onnx, for onnxruntime and whatever else reads ONNX."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attmask.errors import UserError
from attmask.exporting.format import Forward
from attmask.exporting.program import INPUT, dynamic_axes, output_names, trace
from attmask.exporting.subject import Subject

_FILE = "model.onnx"
_LARGEST_BYTES = 1_800_000_000  # a protobuf has at most 2 GB; above, weights are a second file
_MISSING = "--format onnx needs onnx, onnxscript and onnxruntime; run: pip install 'attmask[onnx]'"


@dataclass(frozen=True)
class AsOnnx:
    """A graph of ONNX for any batch and maybe any size."""

    dynamic_size: bool = False
    library: str = "onnx"
    packages: tuple[str, ...] = ("torch", "onnx", "onnxscript", "onnxruntime")

    def takes_other_sizes(self, subject: Subject) -> bool:
        """Only if it was traced so."""
        return self.dynamic_size

    def write(self, subject: Subject, folder: Path) -> None:
        """Trace the network and translate it."""
        try:
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as fault:
            raise UserError(_MISSING) from fault
        traced = trace(subject, dynamic_size=self.dynamic_size)
        stored = sum(tensor.nbytes for tensor in traced.state_dict.values())
        with _quiet():
            program = torch.onnx.export(
                traced,
                dynamo=True,
                dynamic_shapes=dynamic_axes(subject, dynamic_size=self.dynamic_size),  # their names
                input_names=[INPUT],
                output_names=output_names(subject),
                verbose=False,
            )
            assert program is not None
            program.save(folder / _FILE, external_data=stored > _LARGEST_BYTES)

    def open(self, subject: Subject, folder: Path) -> Forward:
        """The graph in onnxruntime, on the CPU."""
        try:
            import onnxruntime
        except ImportError as fault:
            raise UserError(_MISSING) from fault
        session = onnxruntime.InferenceSession(folder / _FILE, providers=["CPUExecutionProvider"])
        names = output_names(subject)

        def forward(images: Tensor) -> dict[str, Tensor]:
            values = session.run(names, {INPUT: images.numpy()})
            return {n: torch.from_numpy(v) for n, v in zip(names, values, strict=True)}

        return forward

    def usage(self, subject: Subject, named: str) -> str:
        """Open the graph in onnxruntime."""
        lines = ["import numpy as np", "import onnxruntime", ""]
        file = f'"{named}/{_FILE}"'
        if named.startswith("hf-hub:"):
            lines.insert(0, "from huggingface_hub import hf_hub_download")
            file = f'hf_hub_download("{named.removeprefix("hf-hub:")}", "{_FILE}")'
        side, channels = subject.image_size, subject.backbone.channels
        what = "logits" if subject.classes else "cls"
        shape = f"(1, {channels}, {side}, {side})"
        return "\n".join(
            [
                *lines,
                f"session = onnxruntime.InferenceSession({file})",
                f'images = np.zeros({shape}, dtype="float32")  # normalised',
                f'({what},) = session.run(["{what}"], {{"{INPUT}": images}})',
                "",
            ]
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which prints its progress and warns of its own calls."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

"""The format of torch.export: model.pt2, which runs without attmask or timm."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attmask.exporting.format import Forward
from attmask.exporting.program import trace
from attmask.exporting.subject import Subject

_FILE = "model.pt2"


@dataclass(frozen=True)
class AsTorch:
    """A program of torch.export, for any batch and maybe any size."""

    dynamic_size: bool = False
    library: str = "pytorch"
    packages: tuple[str, ...] = ("torch",)

    def takes_other_sizes(self, subject: Subject) -> bool:
        """Only if it was traced so."""
        return self.dynamic_size

    def write(self, subject: Subject, folder: Path) -> None:
        """Trace the network and save the program."""
        program = trace(subject, dynamic_size=self.dynamic_size)
        torch.export.save(program, folder / _FILE)

    def open(self, subject: Subject, folder: Path) -> Forward:
        """The program, read again from its file."""
        module = torch.export.load(folder / _FILE).module()

        def forward(images: Tensor) -> dict[str, Tensor]:
            return dict(module(images))

        return forward

    def usage(self, subject: Subject, named: str) -> str:
        """Load the program."""
        lines = ["import torch", ""]
        file = f'"{named}/{_FILE}"'
        if named.startswith("hf-hub:"):
            lines.insert(0, "from huggingface_hub import hf_hub_download")
            file = f'hf_hub_download("{named.removeprefix("hf-hub:")}", "{_FILE}")'
        what = "logits" if subject.classes else "cls"
        side, channels = subject.image_size, subject.backbone.channels
        return "\n".join(
            [
                *lines,
                f"model = torch.export.load({file}).module()",
                f"images = torch.zeros(1, {channels}, {side}, {side})  # normalised",
                f'{what} = model(images)["{what}"]',
                "",
            ]
        )

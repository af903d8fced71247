"""The layout of the authors' own checkpoints: checkpoint.pth."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.exporting.format import Forward
from attmask.exporting.reference import write_reference
from attmask.exporting.subject import Outputs, Subject

_FILE = "checkpoint.pth"


@dataclass(frozen=True)
class AsReference:
    """A file that the authors' code loads, of the checkpoint `named`."""

    named: str | Path
    library: str = "pytorch"
    packages: tuple[str, ...] = ("torch",)

    def takes_other_sizes(self, subject: Subject) -> bool:
        """The authors' code resizes positions in its own way."""
        return subject.backbone.positions == "reference"

    def write(self, subject: Subject, folder: Path) -> None:
        """Write the checkpoint."""
        if subject.classifier is not None:
            raise UserError(
                f"{subject.model.name} has a classifier, which the authors' layout does not hold; "
                "use --backbone-only, or --format timm, hf, onnx or torch"
            )
        is_best = subject.model.origin.get("weights") == "best"
        backbone = subject.backbone
        stated = {"heads": backbone.heads[0], "positions": backbone.positions}
        write_reference(self.named, folder / _FILE, is_best=is_best, stated=stated)

    def open(self, subject: Subject, folder: Path) -> Forward:
        """The file through the importer of foreign weights."""
        model = load_model(folder / _FILE)
        network = Outputs(Subject(model, subject.image_size)).eval()

        def forward(images: Tensor) -> dict[str, Tensor]:
            outputs: dict[str, Tensor] = network(images)
            return {name: outputs[name] for name in ("cls", "patches")}

        return forward

    def usage(self, subject: Subject, named: str) -> str:
        """Load the file with attmask; the authors' code takes it as its own."""
        if not named.startswith("hf-hub:"):
            return f'import attmask\n\nbackbone = attmask.load_backbone("{named}/{_FILE}")\n'
        repo = named.removeprefix("hf-hub:")
        return "\n".join(
            [
                "import attmask",
                "from huggingface_hub import hf_hub_download",
                "",
                f'file = hf_hub_download("{repo}", "{_FILE}")',
                "backbone = attmask.load_backbone(file)",
                "",
            ]
        )

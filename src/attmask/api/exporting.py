"""Networks for other libraries: exported, and published."""

from pathlib import Path

from attmask.exporting.export import Exported, FormatName, export_checkpoint
from attmask.exporting.publish import Published, publish_export


def export(
    checkpoint: str | Path,
    *,
    format: FormatName,
    out: str | Path,
    image_size: int | None = None,
    dynamic_size: bool = False,
    backbone_only: bool = False,
    license: str | None = None,
) -> Exported:
    """Export a checkpoint for another library to the folder `out`, with a model card.

    `checkpoint` may be anything that `evaluate` accepts; the classifier of a fine-tuned run goes
    with it unless `backbone_only` is set. `format` is timm, hf (Hugging Face transformers), onnx,
    torch (torch.export) or reference (the authors' layout). `image_size` is by default the
    network's own; with `dynamic_size`, programs of onnx and torch take any. The export is loaded
    with its own library and compared with the network on probe images: `.difference` of the result
    is below 1e-4, or an error is raised and nothing is left at `out`.
    """
    return export_checkpoint(
        checkpoint,
        Path(out),
        format,
        image_size=image_size,
        dynamic_size=dynamic_size,
        backbone_only=backbone_only,
        license_id=license,
    )


def publish(folder: str | Path, repository: str, *, private: bool = False) -> Published:
    """Push an export to the repository OWNER/NAME of the Hugging Face hub, in one commit.

    The repository is made if it is not there. The token is the one of `hf auth login` or HF_TOKEN.
    """
    return publish_export(Path(folder), repository, private=private)

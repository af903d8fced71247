"""How far exports of a network differ from it on photographs, and both from double precision.

Each format is written and opened by its own library, as `attmask export` does it. Differences are
the largest of all outputs: `[CLS]`, patches and attention. Those from the same network in double
precision say how much of a difference is rounding.

    python benchmarks/exports.py WEIGHTS IMAGES [--images 16] [--size 224]
"""

import argparse
import copy
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from attmask.data.sources import open_images
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.loading import load_model
from attmask.exporting.as_huggingface import AsHuggingFace
from attmask.exporting.as_onnx import AsOnnx
from attmask.exporting.as_timm import AsTimm
from attmask.exporting.as_torch import AsTorch
from attmask.exporting.format import Format
from attmask.exporting.subject import Outputs, Subject

FORMATS: dict[str, Format] = {
    "timm": AsTimm(),
    "hf": AsHuggingFace(),
    "onnx": AsOnnx(),
    "onnx, any size": AsOnnx(dynamic_size=True),
    "torch": AsTorch(),
    "torch, any size": AsTorch(dynamic_size=True),
}


def main() -> None:
    """Print a row for each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights")
    parser.add_argument("images", type=Path)
    parser.add_argument("--images", dest="count", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parsed = parser.parse_args()
    subject = Subject.of(load_model(parsed.weights, "network"), parsed.size)
    photographs = _photographs(
        parsed.images, parsed.count, Transform(parsed.size, subject.model.data)
    )
    network = Outputs(subject).eval()
    with torch.inference_mode():
        ours: Mapping[str, Tensor] = network(photographs)
        exact: Mapping[str, Tensor] = copy.deepcopy(network).double()(photographs.double())
    values = {name: float(output.abs().max()) for name, output in exact.items()}
    print(
        f"{date.today()}, torch {torch.__version__}, {parsed.count} images of {parsed.size} pixels;"
    )
    print("largest values:", ", ".join(f"{name} {value:.3g}" for name, value in values.items()))
    print("| format | difference | share of the largest value | from double precision |")
    print("|---|---|---|---|")
    _row("attmask itself", ours, ours, exact)
    for name, form in FORMATS.items():
        with TemporaryDirectory() as folder, torch.inference_mode():
            form.write(subject, Path(folder))
            found = form.open(subject, Path(folder))(photographs.clone())
        _row(name, found, ours, exact)


def _photographs(root: Path, count: int, transform: Transform) -> Tensor:
    source = open_images(root).train
    chosen = torch.linspace(0, len(source) - 1, count).long().tolist()
    return torch.stack([transform(source.place(index)) for index in chosen])


def _row(
    name: str,
    found: Mapping[str, Tensor],
    ours: Mapping[str, Tensor],
    exact: Mapping[str, Tensor],
) -> None:
    differences = {key: float((found[key] - ours[key]).abs().max()) for key in found}
    shares = [d / max(1.0, float(ours[key].abs().max())) for key, d in differences.items()]
    rounding = max(float((found[key] - exact[key]).abs().max()) for key in found)
    print(f"| {name} | {max(differences.values()):.1e} | {max(shares):.1e} | {rounding:.1e} |")


if __name__ == "__main__":
    main()

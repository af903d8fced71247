"""A training step of DINOv3's ViT-S/16, with rotary positions, against that of the plain ViT-S/16.

The steps of benchmarks/step.py (2 × 224² + 6 × 96², K = 8192, the same views and drop path), CPU
time of one thread, best of alternating rounds. The plain ViT is also timed with the registers and
the layer scale of DINOv3: what is left of the difference is what the rotation costs.

    python benchmarks/rotary.py [--batch 4] [--rounds 4] [--format fp32]
"""

import argparse
import sys
from datetime import date
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attmask.hardware import Precision
from benchmarks.step import Inputs, Ours, Step, best_seconds

NETWORKS = {
    "vit_small_patch16_224": (),
    "vit_small_patch16_224 with 4 registers and layer scale": (
        "backbone.registers=4",
        "backbone.layer_scale=1e-5",
    ),
    "vit_small_patch16_dinov3": ("backbone.name=vit_small_patch16_dinov3",),
}


def main() -> None:
    """Print the time of a step of each network, and its ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--format", choices=("fp32", "bf16"), default="fp32")
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    inputs = Inputs.draw(parsed.batch)
    precision = Precision.choose(parsed.format, torch.device("cpu"))
    steps: dict[str, Step] = {name: Ours(inputs, *settings) for name, settings in NETWORKS.items()}
    best = best_seconds(steps, precision, parsed.rounds)
    print(f"{date.today()}, torch {torch.__version__}, one thread, {parsed.format}, batch", end=" ")
    print(f"{parsed.batch}, best of {parsed.rounds} rounds: CPU seconds of a step")
    plain = next(iter(best.values()))
    for name, seconds in best.items():
        print(f"{name}: {seconds:.3f}, {seconds / plain:.3f} times")


if __name__ == "__main__":
    main()

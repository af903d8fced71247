"""Prove that torch, torchvision and timm of this environment work together."""

import sys

ADVICE = (
    "torch and torchvision must come from builds made for each other: remove .venv and run "
    "`make setup` again; if you install by hand, install both in one pip command from one index"
)


def prove() -> str:
    """Import the libraries together, run one compiled operator, and say what was found."""
    import torch
    import torchvision

    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [4.0, 4.0, 5.0, 5.0]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
    if kept != [0, 2]:
        raise RuntimeError(f"torchvision.ops.nms kept boxes {kept}, not [0, 2]")
    import timm

    device = "CUDA" if torch.cuda.is_available() else "CPU"
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    return f"{versions}, timm {timm.__version__} work together ({device})"


def main() -> int:
    """Print one line; the status is 1 when the libraries do not work together."""
    try:
        print(f"setup: {prove()}")
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(f"setup: {reason}\nsetup: {ADVICE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

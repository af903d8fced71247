"""attmask export: write a network for another library, verified."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, at_least
from attmask.commands.outcome import say
from attmask.wording import counted


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "export",
        help="write a network for timm, Hugging Face, ONNX, torch.export or the authors' code",
        description="Write a network for another library, with a model card. It is loaded with "
        "that library and compared with attmask on probe images before it is called done. "
        "CHECKPOINT is a run, one of its step-... folders, a weights file, a Hugging Face "
        "directory, hf-hub:OWNER/NAME or timm:NAME; the classifier of a fine-tuned run goes with "
        "it.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="network, as for evaluate")
    parser.add_argument(
        "--format",
        choices=["timm", "hf", "onnx", "torch", "reference"],
        required=True,
        help="timm, hf (transformers), onnx, torch (torch.export), reference (the authors' layout)",
    )
    parser.add_argument(
        "--out", metavar="PATH", type=Path, required=True, help="folder, which must not exist"
    )
    parser.add_argument(
        "--size",
        metavar="PIXELS",
        type=at_least(1),
        help="side of the images (default: the network's own)",
    )
    parser.add_argument(
        "--dynamic-size",
        action="store_true",
        help="take images of any size in whole patches, for onnx and torch (default: one size)",
    )
    parser.add_argument(
        "--backbone-only",
        action="store_true",
        help="leave the classifier of a fine-tuned run out",
    )
    parser.add_argument(
        "--license",
        metavar="ID",
        help="licence for the model card, as the hub names it, such as apache-2.0 (default: other)",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Export, and print how far it differs and how it is loaded."""
    from attmask.api import export

    exported = export(
        parsed.checkpoint,
        format=parsed.format,
        out=parsed.out,
        image_size=parsed.size,
        dynamic_size=parsed.dynamic_size,
        backbone_only=parsed.backbone_only,
        license=parsed.license,
    )
    for check in exported.checks:
        each = ", ".join(f"{name} {value:.1e}" for name, value in check.differences.items())
        say(f"{counted(check.images, 'probe image')} of {check.height} x {check.width}: {each}")
    say(
        f"verified: the largest difference is {exported.difference:.1e}, or {exported.error:.1e} "
        "of the largest value where that is above 1; below 1e-4"
    )
    say(f"wrote {exported.path}, with a model card; load it with")
    print(exported.usage, end="")
    return 0

"""attmask plan: memory, time and data rate of a run before anything runs."""

import argparse
import json
import shutil

from attmask.commands.arguments import Commands, add_overrides, at_least


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "plan",
        help="compute memory, time and data rate of a run before it starts",
        description="Compute what a run needs before anything runs: peak memory of a device, "
        "operations of a step, hours, the data rate and the cores for it, and the size of a "
        "checkpoint. No GPU is needed.",
    )
    parser.add_argument("--recipe", required=True, help="name or YAML file of a recipe")
    parser.add_argument(
        "--device",
        required=True,
        metavar="NAME",
        help="what each process trains on: H200 141GB, H100 80GB, H100 PCIe 80GB, A100 80GB, "
        "A100 40GB, A10 24GB, L40S 48GB, L4 24GB, RTX 4090 24GB, RTX 3090 24GB, MI300X 192GB, "
        "V100 32GB, V100 16GB, T4 16GB, cpu (this machine), or another with --memory and --tflops",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=at_least(1),
        default=1,
        help="processes that share a batch, one on each device (default: 1)",
    )
    parser.add_argument(
        "--images",
        metavar="N",
        type=at_least(1),
        help="images of the data set, before data.percent (default: ImageNet-1k, 1281167)",
    )
    parser.add_argument(
        "--utilisation",
        metavar="SHARE",
        type=_positive,
        default=0.2,
        help="share of the device's peak speed that training reaches (default: 0.2)",
    )
    parser.add_argument(
        "--core-rate",
        metavar="N",
        type=_positive,
        help="images a second of which one core makes views (default: measured on this machine)",
    )
    parser.add_argument(
        "--memory", metavar="GB", type=_positive, help="memory of the device (default: by its name)"
    )
    parser.add_argument(
        "--tflops",
        metavar="N",
        type=_positive,
        help="peak speed of the device in TFLOP/s (default: by its name)",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    add_overrides(parser, "train.accumulate=2; see attmask config NAME")
    parser.set_defaults(run=run)


def _positive(text: str) -> float:
    """An argument type for numbers above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.api import plan
    from attmask.planning.table import render

    planned = plan(
        parsed.recipe,
        device=parsed.device,
        processes=parsed.processes,
        images=parsed.images,
        utilisation=parsed.utilisation,
        core_images_per_second=parsed.core_rate,
        memory_gb=parsed.memory,
        tflops=parsed.tflops,
        overrides=parsed.overrides,
    )
    if parsed.json:
        print(json.dumps(planned.to_dict(), indent=2))
    else:
        print(render(planned, width=min(100, shutil.get_terminal_size().columns)), end="")
    return 0

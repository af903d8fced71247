"""attmask demo: a whole run on generated images, and what came of it."""

import argparse
import sys
import time
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides
from attmask.commands.outcome import INTERRUPTED


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "demo", help="make images, pre-train, evaluate and draw, in minutes on a CPU"
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder (default: demo)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (default: 0)")
    add_overrides(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
    from attmask.demo import Demo

    began = time.monotonic()
    print(f"attmask: making images and pre-training in {parsed.out}", file=sys.stderr)
    demo = Demo(parsed.out, seed=parsed.seed, overrides=parsed.overrides)
    outcome = demo.train()
    if not outcome.finished:
        print(f"attmask: stopped and saved at step {outcome.steps}; the same command goes on")
        return INTERRUPTED
    report = demo.report()
    print("\nk-NN accuracy on images never trained on, per cent")
    rows = {**report.rivals, "untrained network": report.untrained, "trained": report.trained}
    for name, accuracy in rows.items():
        print(f"  {name:<20}{accuracy:6.1f}  {'█' * round(accuracy / 2)}")
    print(f"  {'gain':<20}{report.trained - report.untrained:+6.1f}")
    before, after = report.objects_before, report.objects_after
    print(f"\nThe object covers {after['area']:.0%} of an image")
    shares = f"{before['attention']:.0%} untrained, {after['attention']:.0%} trained"
    print(f"  attention on it: {shares}")
    print("  hidden by a mask of 30 % of the patches, after training:")
    for name in ("high", "hint", "block", "random", "low"):
        print(f"    {name:<10}{after[f'hidden_{name}']:6.1%} of the object")
    print(f"\nImages      {report.images}")
    print(f"Run         {report.run} (config, metrics, checkpoints, tensorboard)")
    print(f"Pictures    {', '.join(str(picture) for picture in report.pictures)}")
    print(f"Took        {time.monotonic() - began:.0f} s, seed {parsed.seed}")
    return 0

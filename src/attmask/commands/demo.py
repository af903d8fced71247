"""attmask demo: pre-train on generated images and report the results."""

import argparse
import sys
import time
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides
from attmask.commands.outcome import stopped_status


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "demo",
        help="pre-train and evaluate on generated images (minutes on a CPU)",
        description="Generate images, pre-train on them, measure k-NN accuracy before and after, "
        "and draw the attention. Takes a few minutes on a CPU; the same command resumes.",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("demo"),
        help="output folder (default: demo)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    add_overrides(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.demo import Demo

    began = time.monotonic()
    print(f"attmask: generating images and pre-training in {parsed.out}", file=sys.stderr)
    demo = Demo(parsed.out, seed=parsed.seed, overrides=parsed.overrides)
    outcome = demo.train()
    if not outcome.finished:
        print(f"attmask: stopped and saved at step {outcome.steps}; run the same command to resume")
        return stopped_status(outcome)
    report = demo.report()
    print("\nk-NN accuracy on held-out images, per cent")
    before, after = report.before, report.after
    untrained, trained = before["knn.top1"], after["knn.top1"]
    rows = {**report.baselines, "untrained network": untrained, "trained": trained}
    for name, accuracy in rows.items():
        print(f"  {name:<20}{accuracy:6.1f}  {'█' * round(accuracy / 2)}")
    print(f"  {'gain':<20}{trained - untrained:+6.1f}")
    print(f"\nThe object covers {after['objects.area']:.0f} % of an image")
    on_it = [f"{record['objects.attention']:.0f} %" for record in (before, after)]
    print(f"  attention on it: {on_it[0]} untrained, {on_it[1]} trained")
    print("  hidden by a mask of 30 % of the patches, after training:")
    for name in ("high", "hint", "block", "random", "low"):
        print(f"    {name:<10}{after[f'objects.hidden_{name}']:5.1f} % of the object")
    print(f"\nImages      {report.images}")
    print(f"Run         {report.run} (config, metrics, checkpoints, tensorboard)")
    print(f"Pictures    {', '.join(str(picture) for picture in report.pictures)}")
    print(f"Report      {report.page} (open it in a browser)")
    print(f"Took        {time.monotonic() - began:.0f} s, seed {parsed.seed}")
    return 0

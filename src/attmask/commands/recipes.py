"""attmask recipes: list the recipes."""

import argparse

from attmask.commands.arguments import Commands

_SHOWN = {
    "knn": "knn",
    "linear": "linear",
    "accuracy": "accuracy",
    "miou": "mIoU",
    "box_ap": "box AP",
    "mask_ap": "mask AP",
}


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "recipes",
        help="list the recipes",
        description="List the recipes for attmask pretrain and attmask finetune: name, training "
        "cost γ as the paper defines it, summary, and the figures that the paper reports.",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.kinds import KINDS
    from attmask.recipe import recipe_for, recipes

    for kind in KINDS:
        print(f"attmask {kind.COMMAND}, {kind.ABOUT}:")
        for name in recipes(kind):
            about = recipe_for(kind, name).about
            figures = about.paper.figures if about.paper else {}
            shown = ", ".join(f"{_SHOWN[m]} {figures[m]}" for m in _SHOWN if m in figures)
            cost = f"γ {about.time_factor:.2f}" if about.time_factor else ""
            print(f"  {name:<24}{cost:<8}{about.summary}{f' ({shown})' if shown else ''}")
    return 0

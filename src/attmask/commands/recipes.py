"""attmask recipes: list the recipes."""

import argparse

from attmask.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "recipes",
        help="list the recipes",
        description="List the recipes: name, training cost γ as the paper defines it, summary, "
        "and the accuracy that the paper reports.",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.recipe import read_recipe, recipes

    for name in recipes():
        about = read_recipe(name).about
        figures = about.paper.figures if about.paper else {}
        shown = ", ".join(f"{m} {figures[m]}" for m in ("knn", "linear") if m in figures)
        cost = f"γ {about.time_factor:.2f}" if about.time_factor else ""
        print(f"{name:<24}{cost:<8}{about.summary}{f' ({shown})' if shown else ''}")
    return 0

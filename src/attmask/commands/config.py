"""attmask config: print every setting of a recipe."""

import argparse

from attmask.commands.arguments import Commands, add_overrides


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "config",
        help="print every setting of a recipe",
        description="Print every setting of a recipe with its meaning and the paper's value.",
    )
    parser.add_argument("name", metavar="NAME", help="recipe (see attmask recipes) or YAML file")
    add_overrides(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.kinds import KINDS
    from attmask.overrides import describe
    from attmask.recipe import recipe_among
    from attmask.run_config import override

    recipe = recipe_among(KINDS, parsed.name)
    about, config = recipe.about, override(recipe.config, parsed.overrides)
    for line in describe(config):
        paper = f" (paper: {line.paper})" if line.paper else ""
        print(f"{f'{line.key}={line.value}':<48} {line.meaning}{paper}")
    if about.ablations:
        print("\nthe paper's ablations, as overrides:")
    for ablation in about.ablations:
        result = ", ".join(f"{measure} {value}" for measure, value in ablation.result.items())
        print(f"  {' '.join(ablation.overrides):<60} {ablation.note}: {result}")
    return 0

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
    from attmask.finetuning.config import FinetuneConfig
    from attmask.overrides import describe
    from attmask.recipe import read_recipe, recipe_for, recipes
    from attmask.run_config import RunConfig, override

    config: RunConfig
    if parsed.name in recipes(FinetuneConfig):
        recipe = recipe_for(FinetuneConfig, parsed.name)
        about, config = recipe.about, override(recipe.config, parsed.overrides)
    else:
        about = read_recipe(parsed.name).about
        config = override(read_recipe(parsed.name).config, parsed.overrides)
    for line in describe(config):
        paper = f" (paper: {line.paper})" if line.paper else ""
        print(f"{f'{line.key}={line.value}':<48} {line.meaning}{paper}")
    if about.ablations:
        print("\nthe paper's ablations, as overrides:")
    for ablation in about.ablations:
        result = ", ".join(f"{measure} {value}" for measure, value in ablation.result.items())
        print(f"  {' '.join(ablation.overrides):<60} {ablation.note}: {result}")
    return 0

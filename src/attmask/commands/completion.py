"""attmask completion: print a completion script for a shell."""

import argparse
from functools import partial

from attmask.commands.arguments import Commands
from attmask.shell_completion import SHELLS, Command, Option


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        description="Print a script that completes commands, options, recipes and tasks when the "
        "tab key is pressed. Write it to where your shell looks for such scripts.",
        epilog="bash: attmask completion bash > ~/.local/share/bash-completion/completions/attmask "
        '| zsh: attmask completion zsh > "${fpath[1]}/_attmask" '
        "| fish: attmask completion fish > ~/.config/fish/completions/attmask.fish",
    )
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SHELLS), help=", ".join(SHELLS))
    parser.set_defaults(run=partial(run, commands=commands))


def run(parsed: argparse.Namespace, *, commands: Commands) -> int:
    """Run the command and print its results."""
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    described = [_describe(name, helps[name], parser) for name, parser in commands.choices.items()]
    print(SHELLS[parsed.shell](described), end="")
    return 0


def _describe(name: str, about: str, parser: argparse.ArgumentParser) -> Command:
    """A command as data: its options, and the names that its words may be."""
    options: list[Option] = []
    words: list[str] = []
    for action in parser._actions:
        known = [str(choice) for choice in action.choices or _known(name, action.dest)]
        if not action.option_strings:
            words += known
            continue
        long = next(option for option in action.option_strings if option.startswith("--"))
        takes_value = action.nargs != 0
        options.append(Option(long, action.help or "", takes_value, known if takes_value else ()))
    return Command(name, about, options, words)


def _known(command: str, argument: str) -> list[str]:
    """The recipes or tasks that an argument may name."""
    if argument == "recipe" or (command, argument) == ("config", "name"):
        from attmask.config import PretrainConfig
        from attmask.kinds import KINDS
        from attmask.recipe import recipes

        kinds = [kind for kind in KINDS if command == kind.COMMAND]
        if not kinds:  # plan and inspect are about pre-training
            kinds = list(KINDS) if command == "config" else [PretrainConfig]
        return [name for kind in kinds for name in recipes(kind)]
    if (command, argument) in (("evaluate", "words"), ("tasks", "name")):
        from attmask.evaluation.catalog import TASKS

        return [task.name for task in TASKS]
    return []

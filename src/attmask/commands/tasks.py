"""attmask tasks: list the evaluation tasks, or the settings of one."""

import argparse

from attmask.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "tasks",
        help="list the evaluation tasks, or the settings of one",
        description="List the evaluation tasks, or the settings and data layout of one.",
    )
    parser.add_argument("name", metavar="TASK", nargs="?", help="task whose settings to print")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.evaluation.catalog import TASKS, find_tasks, settings_of

    if parsed.name is None:
        for task in TASKS:
            print(f"{task.name:<24}v{task.version}  {task.about}")
        return 0
    (task,) = find_tasks([parsed.name])
    print(f"{task.name}, version {task.version}: {task.about}\nimages: {task.dataset.layout}")
    for line in settings_of(task):
        paper = f" (paper: {line.paper})" if line.paper else ""
        print(f"{f'{line.key}={line.value}':<40} {line.meaning}{paper}")
    return 0

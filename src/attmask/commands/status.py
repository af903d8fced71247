"""attmask status: where a run stands and whether it is well."""

import argparse
import json
import shutil
from pathlib import Path

from attmask.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "status",
        help="show where a run stands and whether it is well",
        description="Show the progress, speed, remaining time, health and last checkpoint of a "
        "run, from any terminal or machine that sees its folder. Ends with status 0 if the run is "
        "well or finished, and with 3 if somebody should look at it.",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    parser.set_defaults(run=run)


NOT_WELL = 3


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.columns import two_columns
    from attmask.run_status import read_status

    found = read_status(parsed.folder)
    if parsed.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(found.headline())
        print(two_columns(found.rows(), width=min(100, shutil.get_terminal_size().columns)))
    return 0 if found.is_well else NOT_WELL

"""attmask publish: push an export to the Hugging Face hub."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands
from attmask.commands.outcome import say
from attmask.wording import counted


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "publish",
        help="push an export to the Hugging Face hub",
        description="Push the folder of an export to the Hugging Face hub in one commit. The "
        "repository is made if it is not there. The token is the one of `hf auth login` or "
        "HF_TOKEN.",
    )
    parser.add_argument("folder", metavar="EXPORT", type=Path, help="folder of attmask export")
    parser.add_argument("repository", metavar="REPO", help="OWNER/NAME on the hub")
    parser.add_argument(
        "--private", action="store_true", help="make a new repository private (default: public)"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Push, and print where it is."""
    from attmask.api import publish

    published = publish(parsed.folder, parsed.repository, private=parsed.private)
    say(f"pushed {counted(len(published.files), 'file')} to {published.url}")
    return 0

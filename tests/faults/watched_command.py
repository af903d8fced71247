"""The command in one of several processes, whose disk fails in one of them; run as a script."""

import os
import sys
from pathlib import Path

from attmask.cli import main
from tests.faults.disk_errors import KINDS
from tests.faults.shim import Shim


def watched(library: str, folder: str, rank: str, number: str, error: str, *words: str) -> int:
    """Fail a call, and all later ones, in the process with a rank."""
    if os.environ["RANK"] == rank:
        shim = Shim(Path(library), Path(folder))
        shim.fail(int(number), int(error), on=True, kinds=KINDS)
    return main(words)


if __name__ == "__main__":
    sys.exit(watched(*sys.argv[1:]))

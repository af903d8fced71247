"""Where real images are, if they are: beside the checkout, or where ATTMASK_TEST_DATA says."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("ATTMASK_TEST_DATA", _BESIDE))


def needs(name: str) -> pytest.MarkDecorator:
    """Runs a test only where the data set is there."""
    why = f"needs {name} in the folder ATTMASK_TEST_DATA"
    return pytest.mark.skipif(not (FOLDER / name).is_dir(), reason=why)

"""Threads that wait sleep soon, unless the user says how they wait."""

import os
import subprocess
import sys

import pytest

from attmask.threads import SPIN_COUNT
from tests.runs import environment

SAY = (
    "import attmask, os; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, f"{SPIN_COUNT} None"),
        ({"OMP_WAIT_POLICY": "active"}, "None active"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None"),
    ],
)
def test_importing_attmask_sets_the_policy_that_the_user_has_not(
    variables: dict[str, str], wanted: str
) -> None:
    plain = {
        k: v for k, v in environment().items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    said = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**plain, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == wanted


def test_the_policy_is_known_to_openmp() -> None:
    show = "import attmask, torch; torch.ones(2**20).exp()"
    said = subprocess.run(
        [sys.executable, "-c", show],
        env={**environment(), "OMP_DISPLAY_ENV": "verbose", "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    spin = os.environ.get("GOMP_SPINCOUNT", str(SPIN_COUNT))
    assert f"GOMP_SPINCOUNT = '{spin}'" in said.stderr

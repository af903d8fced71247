import pytest

import attmask
from attmask.planning.record import RunPlan


@pytest.fixture(scope="session")
def plan() -> RunPlan:
    """A small run that fits."""
    return attmask.plan(
        "tiny",
        device="H100 80GB",
        processes=2,
        images=1_000,
        utilisation=0.5,
        core_images_per_second=100.0,
        overrides={"train.precision": "auto"},
    )

"""A run among several processes of which one has gradients that are not finite; run as a script."""

import logging
import sys
from pathlib import Path

from attmask import api, distributed
from attmask.schedules import StepSchedule
from tests.poison import poisoned
from tests.runs import SHORT


def main(images: Path, run: Path, sharding: str) -> None:
    """Step 3 is bad in process 1, and all steps from 7 on until the learning rate is lower."""

    def is_bad(now: StepSchedule) -> bool:
        late = now.step >= 7 and now.lr > 2e-4
        return distributed.rank() == 1 and (now.step == 3 or late)

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    overrides = [
        *SHORT,
        f"train.sharding={sharding}",
        "monitor.knn_every_epochs=0",
        "checkpoint.every_minutes=0",
        "schedule.lr_final=2.5e-4",  # constant
    ]
    with poisoned(is_bad):
        outcome = api.pretrain(images, recipe="tiny", out=run, overrides=overrides)
    assert outcome.finished


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) / "run", sys.argv[3])

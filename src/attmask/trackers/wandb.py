"""Weights & Biases: a run on its server, or in RUN/wandb with WANDB_MODE=offline."""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress

from attmask.errors import UserError
from attmask.trackers.tracker import TrackedRun

_OPENING_SECONDS = 60.0
_FINISHING_SECONDS = 20.0
_CONNECTED = ("online", "shared", "run")


def check_wandb() -> None:
    """Raise an error if the package or, unless offline, a login is missing."""
    # Its messages would tear our bars apart, and errors are reported to its maker by default.
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError as fault:
        raise UserError(
            "monitor.wandb=true needs the package wandb; pip install 'attmask[wandb]'"
        ) from fault
    if wandb.run is not None:  # the caller's, which is logged in
        return
    try:
        mode = wandb.setup().settings.mode
        logged_in = mode not in _CONNECTED or wandb.login(prompt=False)
    except wandb.Error as fault:
        raise UserError(f"monitor.wandb=true: {' '.join(str(fault).split())}") from fault
    if not logged_in:
        raise UserError(
            "monitor.wandb=true needs a login; run `wandb login`, or set WANDB_MODE=offline"
        )


class WeightsAndBiases:
    """Logs to a run of Weights & Biases, which a resumed run goes on with.

    Its own counter of steps refuses to go back, which a repeated evaluation needs; so our step is
    a metric beside the others, and the x-axis of all.
    """

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        known = run.id_at("wandb")
        variables = os.environ
        self._run = wandb.init(
            project=variables.get("WANDB_PROJECT", "attmask"),
            name=variables.get("WANDB_NAME", run.folder.absolute().name),
            dir=variables.get("WANDB_DIR", str(run.folder.absolute())),
            id=known or variables.get("WANDB_RUN_ID"),
            resume="allow",
            reinit="create_new",  # beside one that the caller may have
            config=dict(run.settings),
            allow_val_change=True,  # operational settings may change
            settings=wandb.Settings(
                console="off",
                silent=True,
                init_timeout=_OPENING_SECONDS,
                finish_timeout=_FINISHING_SECONDS,
            ),
        )
        self._sent = frozenset() if known is None else run.sent
        if not self._run.disabled:
            run.keep_id("wandb", self._run.id)
        self._run.define_metric("*", step_metric="step")

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Add the metrics under their keys."""
        if (step, epoch) not in self._sent:
            self._run.log({"step": step, "epoch": epoch, **metrics})

    def close(self, failed: bool) -> None:
        """Upload what is left, for some seconds; `wandb sync` uploads the rest."""
        try:
            self._run.finish(exit_code=int(failed))
        except Exception:
            abandon_wandb()
            raise


def abandon_wandb() -> None:
    """Keep Weights & Biases from waiting for its service when Python ends."""

    def give_up() -> None:
        import wandb

        with suppress(Exception):
            wandb.teardown()

    thread = threading.Thread(target=give_up, name="teardown of wandb", daemon=True)
    thread.start()
    thread.join(1.0)

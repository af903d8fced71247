"""Fine-tuning in the loop: the best network is kept, and training ends where none is to gain."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Tensor, nn

from attmask import atomic, checkpoint, distributed
from attmask.agreement import together
from attmask.checkpoint import WEIGHTS, Checkpoint
from attmask.data.feeding import AnyBatch
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.engine import mesh_of_all, replicated, shard_, sharded
from attmask.evaluation.loading import BEST
from attmask.heartbeat import Heartbeat
from attmask.loop import Loop
from attmask.metric import Metric
from attmask.monitor import Monitor, read_metrics
from attmask.schedules import Now
from attmask.tuning.config import AnyTuned
from attmask.tuning.selection import (
    Evaluation,
    best_of,
    evaluations,
    is_exhausted,
    still_kept,
)
from attmask.tuning.start import StartingPoint
from attmask.tuning.tuner import AnyNetwork, Tuner
from attmask.wording import counted

AnyBatchType = TypeVar("AnyBatchType", bound=AnyBatch)
AnyNow = TypeVar("AnyNow", bound=Now)


class TuningLoop(
    Loop[AnyTuned, AnyBatchType, AnyNow], Generic[AnyTuned, AnyBatchType, AnyNow, AnyNetwork]
):
    """The training of a backbone with a head."""

    tuner: Tuner[AnyNetwork]

    def __init__(
        self,
        config: AnyTuned,
        source: Source,
        start: StartingPoint,
        *,
        selects: str,
        heartbeat: Heartbeat,
        extend: bool = False,
    ) -> None:
        """`selects` is the key of the metric by which the best network is chosen."""
        self.start, self.selects = start, selects
        self.evaluations: list[Evaluation] = []
        super().__init__(config, source, start.run, heartbeat=heartbeat, extend=extend)

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""

    def _trained_on(self, source: Source) -> Source:
        self.source = trained_on(source, self.config.data)
        return self.source

    def _attach_engine_(self, reach: Callable[[nn.Module], Tensor]) -> None:
        """Move the network to the device, and share gradients between several processes.

        `reach` calls it for a number that depends on all of its trained parameters.
        """
        several, sharding = distributed.world_size() > 1, self.config.train.sharding
        network = self.tuner.network
        if several and sharding == "fsdp":
            shard_(network, mesh_of_all(self.device))
        self.tuner.to(self.device)
        if several and sharding == "fsdp":
            self.tuner.wrap(sharded(network))
        elif several:
            self.tuner.wrap(replicated(network, reach))

    def _about(self) -> dict[str, object]:
        return {
            "classes": list(self.class_names),
            "steps_per_epoch": self.loader.steps_per_epoch,
            "blueprint": self.start.blueprint.model_dump(mode="json"),
        }

    @property
    def _backbone(self) -> nn.Module:
        return self.tuner.backbone

    @property
    def _evaluated(self) -> AnyNetwork:
        return self.tuner.evaluated

    @property
    def _evaluated_every_epochs(self) -> int:
        return self.config.selection.every_epochs

    @property
    def _patient_from_epoch(self) -> int:
        """The epoch from which on evaluations without a gain are counted."""
        return 0

    def _look_back(self) -> None:
        """Take the evaluations so far from the log and from the best network that is kept."""
        with together():
            found: list[Evaluation] = []
            if distributed.is_main() and self.step:
                kept = self._kept()
                logged = evaluations(read_metrics(self.run), self.selects)
                found = still_kept([each for each in logged if each.epoch <= self.epoch], kept)
        self.evaluations = distributed.from_main(found)
        self._decide()

    def _kept(self) -> Evaluation | None:
        """The evaluation of the best network; one of steps that are trained again is removed."""
        folder = checkpoint.newest(self.run / BEST)
        if folder is None:
            return None
        if checkpoint.step_of(folder) > self.step:
            atomic.remove_folder(folder)
            return None
        known = checkpoint.load(folder, only=())
        value = float(known.info["metrics"][self.selects])
        return Evaluation(-(-known.step // self.schedules.steps_per_epoch), value)

    def _see_evaluation(self, metrics: tuple[Metric, ...], monitor: Monitor) -> None:
        """Keep the network if it is the best so far, and end where no gain is to be expected."""
        self.skipped.settle()
        if self.skipped.in_a_row:
            return  # the run may go back to before this step
        epoch = self.epoch
        value = next(metric.value for metric in metrics if metric.key == self.selects)
        before = next((each for each in self.evaluations if each.epoch == epoch), None)
        if before is None or value > before.value:  # a run that was longer began inside an epoch
            self.evaluations = [each for each in self.evaluations if each.epoch != epoch]
            self.evaluations.append(Evaluation(epoch, value))
            if best_of(self.evaluations).epoch == epoch:
                self._keep_best(metrics)
        self._decide()
        if self.ended_early:
            best = best_of(self.evaluations)
            patience = self.config.selection.patience or 0
            monitor.message(
                f"no gain in {counted(patience, 'evaluation')}: training ends at epoch {epoch}; "
                f"the best was {best.value:.2f} at epoch {best.epoch}"
            )

    def _decide(self) -> None:
        """End where no gain is to be expected; a run that was made longer gets another chance."""
        extended = [each.step for each in self.folder.history.extensions]
        since = max(extended, default=0) // self.schedules.steps_per_epoch
        since = max(since, self._patient_from_epoch)
        patience = self.config.selection.patience
        self.ended_early = is_exhausted(self.evaluations, patience, since=since)

    def _keep_best(self, metrics: tuple[Metric, ...]) -> None:
        """Write the network that is evaluated, whole."""
        weights = self.state.whole_weights()
        prefix = "network." if self.tuner.ema is None else "ema.module."
        with together():
            if distributed.is_main():
                found: dict[str, Tensor] = {
                    f"network.{name.removeprefix(prefix)}": tensor
                    for name, tensor in weights.items()
                    if name.startswith(prefix)
                }
                info = {
                    **self._about(),
                    "images": self.folder.images,
                    "metrics": {metric.key: metric.value for metric in metrics},
                    "config": self.config.model_dump(mode="json"),
                }
                checkpoint.save(
                    self.run / BEST, Checkpoint(self.step, {WEIGHTS: found}, info), keep=1
                )

"""A network that the processes of a group call at the same time, each for its own images."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from attmask import distributed
from attmask.agreement import together
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.features.forward import Autocast, Count, ReadBatch, forward
from attmask.evaluation.features.images import Crops
from attmask.evaluation.features.readout import Readout
from attmask.interrupt import StopRequestedError
from attmask.models.backbone import Backbone

Item = TypeVar("Item")


@dataclass(frozen=True)
class Lockstep:
    """Reads a network on all processes together, as each call of a sharded network requires.

    Before each batch, the processes agree on what happens, as `agreed` says.
    """

    backbone: Backbone
    data: DataConfig
    autocast: Autocast
    count: Count
    stopped: Callable[[], bool]

    def forward(
        self, crops: Iterable[Crops], readout: Readout, blank: Crops
    ) -> Iterator[ReadBatch]:
        """Yield the values of a readout for each batch of this process, then for `blank`, whose
        images are not readable, until all processes are done."""
        batches = self._batches(crops, blank)
        return forward(self.backbone, batches, readout, self.data, autocast=self.autocast)

    def _batches(self, crops: Iterable[Crops], blank: Crops) -> Iterator[Crops]:
        def images(shown: Crops) -> int:
            return len(shown.pixels)

        for shown in agreed(crops, images, self.count, self.stopped):
            yield blank if shown is None else shown


def agreed(
    items: Iterable[Item],
    images: Callable[[Item], int],
    count: Count,
    stopped: Callable[[], bool],
) -> Iterator[Item | None]:
    """Yield the items of this process, then None until all processes are done.

    Before each, the processes agree on what happens: if one was asked to stop, all raise
    StopRequestedError; if one raises a `UserError`, all raise it. `count` is called with the number
    of `images` in the items of all processes.
    """
    own = iter(items)
    while True:
        item: Item | None = None
        fault: UserError | None = None
        try:
            item = next(own, None)
        except UserError as error:
            fault = error
        number = 0 if item is None else images(item)
        total, faults, stops = distributed.sums(number, fault is not None, stopped())
        if stops:
            raise StopRequestedError
        if faults:
            with together():
                if fault is not None:
                    raise fault
        if total == 0:
            return
        yield item
        count(total)

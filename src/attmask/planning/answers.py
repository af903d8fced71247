"""Settings that make a run fit on its device, each with the memory it then needs."""

import math
from collections.abc import Callable, Iterator

from attmask.config import PretrainConfig
from attmask.planning.memory import Memory
from attmask.planning.record import Answer
from attmask.run_config import override

_SHARDED = "train.sharding=fsdp"

Measure = Callable[[PretrainConfig, int], Memory]
"""The memory of a config on so many processes."""


def find_answers(
    config: PretrainConfig, processes: int, memory: Memory, usable: int, measure: Measure
) -> tuple[Answer, ...]:
    """Try the settings that trade time or devices for memory; the ones that fit come first.

    A setting that needs no less memory is no answer.

    Where none is enough by itself, all that stay on these devices are tried together.
    """

    def answer(setting: str, changed: PretrainConfig, on: int) -> Answer:
        peak = measure(changed, on).total
        return Answer(setting, peak, peak <= usable)

    tried = [answer(*each) for each in _candidates(config, processes, memory, usable)]
    if not any(each.fits for each in tried):
        tried += [answer(*each) for each in _together(config, processes)]
    found = (each for each in tried if each.peak_bytes < memory.total)
    return tuple(sorted(found, key=lambda each: not each.fits))


def _candidates(
    config: PretrainConfig, processes: int, memory: Memory, usable: int
) -> Iterator[tuple[str, PretrainConfig, int]]:
    batch, parts = config.train.batch_size, config.train.accumulate
    room = max(usable - memory.fixed, 1)
    # Activations are nearly in proportion to the images that are computed at once.
    times = math.ceil(memory.activations / room * 1.05)
    if not config.train.recompute:
        yield _changed(config, "train.recompute=true", on=processes)
    if _can_be_sharded(config, processes):
        yield _changed(config, _SHARDED, on=processes)
    divisors = _possible_parts(config, processes)
    for number in ([n for n in divisors if n >= parts * times] or divisors[-1:])[:1]:
        yield _changed(config, f"train.accumulate={number}", on=processes)
    shares = [n for n in range(processes + 1, batch // parts + 1) if batch % (n * parts) == 0]
    for number in ([n for n in shares if n >= processes * times] or shares[-1:])[:1]:
        yield f"--processes {number}", config, number


def _together(config: PretrainConfig, processes: int) -> Iterator[tuple[str, PretrainConfig, int]]:
    """Recompute, shard, and one image at a time."""
    settings = [] if config.train.recompute else ["train.recompute=true"]
    settings += [_SHARDED] if _can_be_sharded(config, processes) else []
    settings += [f"train.accumulate={n}" for n in _possible_parts(config, processes)[-1:]]
    if len(settings) > 1:
        yield _changed(config, *settings, on=processes)


def _can_be_sharded(config: PretrainConfig, processes: int) -> bool:
    return processes > 1 and config.train.sharding == "none"


def _possible_parts(config: PretrainConfig, processes: int) -> list[int]:
    """More micro-batches than there are; none with Sinkhorn, which needs the batch at once."""
    if config.loss.centring == "sinkhorn":
        return []
    images = config.train.batch_size // processes
    return [n for n in range(config.train.accumulate + 1, images + 1) if images % n == 0]


def _changed(config: PretrainConfig, *settings: str, on: int) -> tuple[str, PretrainConfig, int]:
    return " ".join(settings), override(config, settings), on

"""Settings that make a run fit on its device, each with the memory it then needs."""

import math
from collections.abc import Callable, Iterator

from attmask.config import PretrainConfig, override
from attmask.planning.memory import Memory
from attmask.planning.record import Answer

Measure = Callable[[PretrainConfig, int], Memory]
"""The memory of a config on so many processes."""


def find_answers(
    config: PretrainConfig, processes: int, memory: Memory, usable: int, measure: Measure
) -> tuple[Answer, ...]:
    """Try the settings that trade time for memory; the ones that fit come first."""
    found = [
        Answer(said, peak, peak <= usable)
        for said, changed, on in _candidates(config, processes, memory, usable)
        for peak in [measure(changed, on).total]
    ]
    return tuple(sorted(found, key=lambda answer: not answer.fits))


def _candidates(
    config: PretrainConfig, processes: int, memory: Memory, usable: int
) -> Iterator[tuple[str, PretrainConfig, int]]:
    images, parts = config.train.batch_size // processes, config.train.accumulate
    room = max(usable - memory.fixed, 1)
    # Activations are nearly in proportion to the images that are computed at once.
    times = math.ceil(memory.activations / room * 1.05)
    if not config.train.recompute:
        setting = "train.recompute=true"
        yield setting, override(config, [setting]), processes
    if config.loss.centring != "sinkhorn":  # which needs the whole batch at once
        divisors = [n for n in range(parts + 1, images + 1) if images % n == 0]
        enough = [n for n in divisors if n >= parts * times] or divisors[-1:]
        for number in enough[:1]:
            setting = f"train.accumulate={number}"
            yield setting, override(config, [setting]), processes
    batch = config.train.batch_size
    more = [
        n
        for n in range(processes * max(times, 2), batch // parts + 1)
        if batch % n == 0 and batch // n % parts == 0
    ]
    for number in more[:1]:
        yield f"--processes {number}", config, number

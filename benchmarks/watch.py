"""What the watch costs a healthy training: CPU time of one thread, with it and without it.

Two trainings with the same seed, one observed at every record and one not, take turns of ten steps
in one process; a turn has one record, as with monitor.log_every_steps=10. The best turn of each
counts. Views are made before, so their time does not hide that of the watch. One observed step is
also measured alone, because in a turn the difference is smaller than the noise of the machine.

    python benchmarks/watch.py [--rounds 5] [--recipe demo]
"""

import argparse
import platform
import time
from datetime import date

import torch

from attmask.agreement import mean_metrics
from attmask.collapse import watch_over
from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.hardware import Precision
from attmask.health import Health, health_metrics
from attmask.metric import values_by_key
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import StepReport, train_step

CPU = torch.device("cpu")
CASES = {"demo": [], "ibot-high": ["train.batch_size=4"]}


class Training:
    """A training on fixed noise, observed or not."""

    def __init__(self, config: PretrainConfig, views: Views, *, observed: bool) -> None:
        self.config, self.views, self.observed = config, views, observed
        self.distiller = build_distiller(config)
        self.optimizer = build_optimizer(self.distiller.student, config.optim)
        self.schedules = Schedules(
            config.schedule, steps_per_epoch=100, batch_size=len(views.images)
        )
        self.precision = Precision.choose("fp32", CPU)
        self.watch = watch_over(config)
        self.number = 0

    def step(self, *, is_logged: bool) -> StepReport:
        """One step, as the loop takes it."""
        now = self.schedules.at(self.number)
        self.number += 1
        report = train_step(
            self.distiller,
            self.optimizer,
            self.views,
            now,
            self.precision,
            clip=self.config.optim.clip,
            observe=is_logged and self.observed,
        )
        if is_logged:
            metrics = mean_metrics(report.metrics())
            if self.observed:
                self.watch.see(now.step, now.epoch, values_by_key(metrics))
        return report

    def turn(self, steps: int) -> float:
        """CPU seconds of some steps, the first of which is logged."""
        began = time.thread_time()
        for number in range(steps):
            self.step(is_logged=number == 0)
        return time.thread_time() - began

    def observation(self) -> float:
        """CPU seconds of what the watch adds to a step that is logged."""
        now = self.schedules.at(self.number)
        summary = self.distiller.targets(self.views, now).summary
        values = values_by_key(self.step(is_logged=True).metrics())
        best = float("inf")
        for _ in range(20):
            began = time.thread_time()
            health_metrics([Health.of(summary, self.views)])
            self.watch.see(self.number, 1000, values)
            best = min(best, time.thread_time() - began)
        return best


def views_for(config: PretrainConfig) -> Views:
    """Noise in the shape of a batch."""
    images, views = config.train.batch_size, config.views
    chance = torch.Generator().manual_seed(0)

    def noise(count: int, size: int) -> torch.Tensor:
        return torch.randn(count, images, config.data.channels, size, size, generator=chance)

    return Views(noise(2, views.global_size), noise(views.local_crops, views.local_size))


def main() -> None:
    """Measure one recipe after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn, one is logged")
    parser.add_argument("--recipe", choices=list(CASES), action="append")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{date.today()}, {platform.processor() or platform.machine()}, torch {torch.__version__}"
    )
    for name in asked.recipe or CASES:
        config = override(load_recipe(name), CASES[name])
        views = views_for(config)
        both = [Training(config, views, observed=observed) for observed in (False, True)]
        for training in both:
            training.step(is_logged=True)
        turns: list[list[float]] = [[], []]
        for number in range(asked.rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                turns[which].append(both[which].turn(asked.steps))
        plain, watched = (min(of) for of in turns)
        alone = both[1].observation()
        print(
            f"{name}, batch {config.train.batch_size}: {asked.steps} steps {plain:.3f} s without, "
            f"{watched:.3f} s with the watch ({100 * (watched / plain - 1):+.2f} %); "
            f"the observation alone {1000 * alone:.2f} ms, {100 * alone / plain:.3f} %"
        )


if __name__ == "__main__":
    main()

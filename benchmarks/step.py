"""One training step against the same step with everything computed, in the same run.

The peer runs the head on all tokens of student and teacher and all tokens through the last block,
as the reference implementation does, on the same weights, views and masks. CPU time of one thread,
best of alternating runs.

    python benchmarks/step.py [--batch 4] [--rounds 3] [--recipe ibot-high]
"""

import argparse
import platform
import time
from collections.abc import Callable
from datetime import date

import torch
from torch import Tensor

from attmask.config import override
from attmask.distill import Distiller, patch_weights
from attmask.hardware import Precision
from attmask.losses import cls_loss, patch_loss, sharpen
from attmask.recipe import load_recipe
from attmask.schedules import Now, Schedules
from attmask.train import build_distiller


def full_loss(distiller: Distiller, whole: Tensor, local: Tensor, now: Now) -> Tensor:
    """The loss of `Distiller.forward` with every token computed (no drop path)."""
    student, teacher, crops = distiller.student, distiller.teacher, whole.flatten(0, 1)
    with torch.no_grad():
        seen = teacher.backbone(crops)
        grid = teacher.backbone.grid(*whole.shape[-2:])
        views = enumerate(seen.attention.chunk(2))
        mask = torch.cat([distiller.masker(a, grid, step=now.step, view=v) for v, a in views])
        cls_scores, patch_scores = teacher.head(seen.cls), teacher.patch_head(seen.patches)
        cls = sharpen(cls_scores, distiller.cls_centre.value, now.cls_temperature)
        patches = sharpen(patch_scores, distiller.patch_centre.value, now.patch_temperature)
    guess = student.backbone(crops, mask)
    near = student.backbone(local.flatten(0, 1))
    scores = student.head(torch.cat([guess.cls, near.cls])).unflatten(0, (-1, whole.shape[1]))
    temperature = distiller.loss.student_temperature
    cls_part = cls_loss(scores, cls.unflatten(0, (2, -1)), temperature)
    guesses = student.patch_head(guess.patches)
    patch_part = patch_loss(
        guesses[mask], patches[mask], patch_weights(mask, torch.float32), temperature
    )
    return cls_part + distiller.loss.patch_weight * patch_part


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="ibot-high")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    config = override(load_recipe(asked.recipe), ["backbone.drop_path=0"])
    distiller = build_distiller(config)
    views = config.views
    whole = torch.randn(2, asked.batch, 3, views.global_size, views.global_size)
    local = torch.randn(views.local_crops, asked.batch, 3, views.local_size, views.local_size)
    schedules = Schedules(config.schedule, steps_per_epoch=100, batch_size=asked.batch)

    def ours(now: Now) -> Tensor:
        total: Tensor = distiller(whole, local, now).total
        return total

    def full(now: Now) -> Tensor:
        return full_loss(distiller, whole, local, now)

    print(f"{asked.recipe}, batch {asked.batch}, one thread, {platform.machine()}, {date.today()}")
    for number_format in ("fp32", "bf16"):
        precision = Precision.choose(number_format, torch.device("cpu"))
        best = {"ours": float("inf"), "full": float("inf")}
        for step in range(asked.rounds + 1):  # the first round warms up
            now = schedules.at(step)
            for name, loss in (("ours", ours), ("full", full)):
                seconds = _measure(loss, now, precision)
                best[name] = min(best[name], seconds) if step else best[name]
        ratio = best["full"] / best["ours"]
        speed = {name: asked.batch / seconds for name, seconds in best.items()}
        print(
            f"{number_format}: {speed['ours']:.3f} images/s, everything computed "
            f"{speed['full']:.3f}, ratio {ratio:.2f}"
        )


def _measure(loss: Callable[[Now], Tensor], now: Now, precision: Precision) -> float:
    """CPU seconds of one forward and backward pass."""
    began = time.process_time()
    with precision.autocast():
        total = loss(now)
    total.backward()
    return time.process_time() - began


if __name__ == "__main__":
    main()

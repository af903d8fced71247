"""Probe images, on which an export must agree with the network it was made of."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attmask.data.synthetic import scene
from attmask.errors import UserError
from attmask.evaluation.features.forward import normalise
from attmask.exporting.format import Forward
from attmask.exporting.subject import Outputs, Subject

LARGEST_ERROR = 1e-4
_SEED = 0
_IMAGES = 3


@dataclass(frozen=True)
class Check:
    """The largest difference of each output on probe images of one size, and its largest value."""

    images: int
    height: int
    width: int
    differences: Mapping[str, float]
    values: Mapping[str, float]

    @property
    def largest(self) -> float:
        """The largest difference of all outputs."""
        return max(self.differences.values())

    @property
    def errors(self) -> dict[str, float]:
        """Each difference as a share of the output's largest value, where that is above one.

        Numbers have about seven digits, so what two libraries round differently grows with them.
        """
        return {name: d / max(1.0, self.values[name]) for name, d in self.differences.items()}

    @property
    def error(self) -> float:
        """The largest of these shares."""
        return max(self.errors.values())


def verify(subject: Subject, forward: Forward, *, other_sizes: bool) -> list[Check]:
    """Compare an export with the network on generated scenes; raise an error if they differ."""
    patch, own = subject.backbone.patch_size, subject.image_size
    sizes = [(_IMAGES, own, own), (1, own, own)]
    if other_sizes:
        smaller = max(min(own, 2 * patch), own // (2 * patch) * patch)
        sizes += [(2, own + patch, own + 3 * patch), (2, smaller, own)]
    return [_compare(subject, forward, *size) for size in sizes]


def probe_images(
    subject: Subject, images: int, height: int, width: int
) -> Float[Tensor, "images C height width"]:
    """Generated scenes, normalised as the network wants it; channels repeat red, green, blue."""
    side = max(height, width, 16)
    drawn = [scene(index, seed=_SEED, size=side).image[:height, :width] for index in range(images)]
    pixels = torch.stack([torch.from_numpy(image.copy()).permute(2, 0, 1) for image in drawn])
    channels = torch.arange(subject.backbone.channels) % pixels.shape[1]
    shown = normalise(pixels[:, channels], subject.model.data.mean, subject.model.data.std)
    return shown.to(next(subject.backbone.parameters()).dtype)


def _compare(subject: Subject, forward: Forward, images: int, height: int, width: int) -> Check:
    shown = probe_images(subject, images, height, width)
    with torch.inference_mode():
        wanted = Outputs(subject).eval()(shown)
        try:
            found = forward(shown.clone())
        except UserError:
            raise
        except Exception as fault:  # each library has its own
            why = next(iter(str(fault).splitlines()), type(fault).__name__)
            raise UserError(
                f"the export fails on images of {height} x {width} ({why}); nothing was written, "
                "use another --format"
            ) from fault
    differences = {name: _difference(name, values, wanted[name]) for name, values in found.items()}
    largest = {name: float(wanted[name].abs().max()) for name in found}
    check = Check(images, height, width, differences, largest)
    wrong = [name for name, e in check.errors.items() if not e < LARGEST_ERROR]  # also NaN
    if wrong:
        worst = wrong[0]
        raise UserError(
            f"the export differs from {subject.model.name} by {differences[worst]:.2g} in {worst}, "
            f"whose largest value is {largest[worst]:.2g}, on images of {height} x {width}; wanted "
            f"less than {LARGEST_ERROR:g} of it; nothing was written, use another --format"
        )
    return check


def _difference(name: str, found: Tensor, wanted: Tensor) -> float:
    if found.shape != wanted.shape:
        raise UserError(
            f"the export gives {name} of shape {tuple(found.shape)} instead of "
            f"{tuple(wanted.shape)}; nothing was written, use another --format"
        )
    return float((found - wanted).abs().max())

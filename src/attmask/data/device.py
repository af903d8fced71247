"""Colour augmentation of a batch on its device: the steps of `colours`, with values per image.

Workers then only decode and crop. Values are truncated or rounded where the
8-bit steps of `colours` do it, so that both ways agree within rounding.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from attmask.data.colours import COLOURLESS, SOLARISE_THRESHOLD, Look, blur_taps

Levels = Float[Tensor, "B C H W"]  # whole numbers from 0 to 255
Strength = Float[Tensor, "B 1 1 1"]  # one number an image


def recolour_batch(
    pixels: UInt8[Tensor, "B C H W"], looks: Sequence[Look]
) -> UInt8[Tensor, "B C H W"]:
    """The same as `recolour` of every image with its own look."""
    levels = pixels.float()
    coloured = pixels.shape[1] == 3
    jitters = {image: look.jitter for image, look in enumerate(looks) if look.jitter}
    for turn in range(len(_STEPS)):
        for number, step in enumerate(_STEPS):
            if coloured or number in COLOURLESS:
                takers = {
                    i: j.factors[number] for i, j in jitters.items() if j.order[turn] == number
                }
                _change_(levels, takers, step)
    if coloured:
        _change_(levels, {i: 1.0 for i, look in enumerate(looks) if look.grey}, _to_grey)
    _blur_(levels, {i: look.blur_sigma for i, look in enumerate(looks) if look.blur_sigma})
    _change_(levels, {i: 1.0 for i, look in enumerate(looks) if look.solarise}, _solarise)
    return levels.to(torch.uint8)


def _change_(
    levels: Levels, strengths: Mapping[int, float], step: Callable[[Levels, Strength], Levels]
) -> None:
    """Apply one step to the images that take it, which the host knows, so nothing waits."""
    if strengths:
        images = _on(levels, torch.tensor(list(strengths)))
        strength = _on(levels, torch.tensor(list(strengths.values()), dtype=torch.float32))
        levels[images] = step(levels[images], strength.view(-1, 1, 1, 1))


def _blur_(levels: Levels, sigmas: Mapping[int, float]) -> None:
    """Blur each image with its own std, along rows and then columns."""
    if not sigmas:
        return
    kernels = [blur_taps(sigma) for sigma in sigmas.values()]
    reach = max(len(kernel) for kernel in kernels) // 2
    padded = [np.pad(kernel, reach - len(kernel) // 2) for kernel in kernels]
    images = _on(levels, torch.tensor(list(sigmas)))
    channels, height, width = levels.shape[1:]
    taps = _on(levels, torch.from_numpy(np.stack(padded))).repeat_interleave(channels, dim=0)
    planes = levels[images].view(1, -1, height, width)
    planes = F.pad(planes, (reach,) * 4, mode="replicate")
    for kernel in (taps[:, None, None, :], taps[:, None, :, None]):
        planes = F.conv2d(planes, kernel, groups=len(taps))
    levels[images] = _rounded(planes.view(-1, channels, height, width))


def _brighten(levels: Levels, factor: Strength) -> Levels:
    return _cut_off(levels * factor)


def _change_contrast(levels: Levels, factor: Strength) -> Levels:
    brightness = _luma(levels) if levels.shape[1] == 3 else levels
    middle = _rounded(brightness.mean(dim=(1, 2, 3), keepdim=True))
    return _cut_off(middle + factor * (levels - middle))


def _saturate(levels: Levels, factor: Strength) -> Levels:
    return _cut_off(levels * factor + _luma(levels) * (1 - factor))


def _turn_hue(levels: Levels, turn: Strength) -> Levels:
    """Through hue, saturation and value of 8 bits each, and back."""
    red, green, blue = levels.unbind(dim=1)
    value, least = levels.amax(dim=1), levels.amin(dim=1)
    spread = value - least
    unit = spread.clamp(min=1)
    sector = torch.where(
        value == red,
        (green - blue) / unit,
        torch.where(value == green, 2 + (blue - red) / unit, 4 + (red - green) / unit),
    )
    hue = _rounded(sector * (256 / 6)) % 256
    saturation = _rounded(255 * spread / value.clamp(min=1)) / 255
    hue = torch.round((hue / 256 + (turn[..., 0] * 255).trunc() / 255) % 1 * 255)
    peaks = torch.tensor([5.0, 3.0, 1.0], device=levels.device).view(1, 3, 1, 1)
    away = (peaks + hue[:, None] * (6 / 255)) % 6
    lack = torch.minimum(away, 4 - away).clamp(0, 1)
    return _rounded(value[:, None] * (1 - saturation[:, None] * lack))


def _to_grey(levels: Levels, _: Strength) -> Levels:
    return _luma(levels).expand_as(levels)


def _solarise(levels: Levels, _: Strength) -> Levels:
    return torch.where(levels < SOLARISE_THRESHOLD, levels, 255 - levels)


_STEPS = (_brighten, _change_contrast, _saturate, _turn_hue)


def _luma(levels: Levels) -> Float[Tensor, "B 1 H W"]:
    """Brightness, with the whole-number weights of the 8-bit conversion."""
    weights = torch.tensor([4899.0, 9617.0, 1868.0], device=levels.device).view(1, 3, 1, 1)
    return _rounded((levels * weights).sum(dim=1, keepdim=True) / 16384)


def _cut_off(values: Levels) -> Levels:
    return values.clamp(0, 255).floor()


def _rounded(values: Tensor) -> Tensor:
    return (values + 0.5).floor()


def _on(levels: Levels, numbers: Tensor) -> Tensor:
    return numbers.to(levels.device, non_blocking=True)

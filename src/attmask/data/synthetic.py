"""Synthetic scenes: one textured object of a class on a muted, cluttered background.

A class is a shape, a texture and a range of hues that overlaps with its neighbours', so that
neither mean colour nor raw pixels tell the classes apart. A scene depends on (seed, index) alone,
it is the same scene at every size, and its object mask is known exactly.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image

from attmask import atomic
from attmask.data.scenes import shapes, textures
from attmask.data.scenes.backdrop import backdrop
from attmask.errors import UserError

VERSION = 3  # raise it whenever a scene changes: folders of another version are refused
MANIFEST = "synthetic.json"
_VAL_START = 10**9  # validation scenes stay the same however many training scenes there are
_SMALLEST = 16


@dataclass(frozen=True)
class Kind:
    """What the objects of one class have in common."""

    name: str
    outline: shapes.Outline
    texture: textures.Texture


# In alphabetical order, so that the label of a scene equals that of its sorted folder.
_KINDS = (
    Kind("bricked square", shapes.square, textures.bricks),
    Kind("checked disc", shapes.disc, textures.checks),
    Kind("dotted heart", shapes.heart, textures.dots),
    Kind("hatched cross", shapes.cross, textures.hatching),
    Kind("marbled drop", shapes.drop, textures.marble),
    Kind("ringed flower", shapes.flower, textures.rings),
    Kind("scaled crescent", shapes.crescent, textures.scales),
    Kind("spoked ring", shapes.ring, textures.spokes),
    Kind("striped star", shapes.star, textures.stripes),
    Kind("zigzag triangle", shapes.triangle, textures.zigzags),
)
CLASSES: tuple[str, ...] = tuple(kind.name for kind in _KINDS)


@dataclass(frozen=True)
class Scene:
    """A picture, where its object is, and the object's class."""

    image: UInt8[np.ndarray, "size size 3"]
    mask: Bool[np.ndarray, "size size"]
    label: int


@dataclass(frozen=True)
class Pose:
    """Where the object is and how it is turned, in units of the image's side."""

    x: float
    y: float
    radius: float
    turn: Float32[np.ndarray, "2 2"]
    tilt: tuple[float, float]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Pose":
        """A random size, place, rotation, stretch, shear and perspective.

        Size and place vary so much that pixels of two objects of a class seldom lie on each
        other; the frame may cut an object off, as in nature.
        """
        radius = rng.uniform(0.22, 0.38)
        x, y = rng.uniform(0.7 * radius, 1 - 0.7 * radius, size=2)
        angle = rng.uniform(-0.6, 0.6)
        stretch, shear = math.exp(rng.uniform(-0.13, 0.13)), rng.uniform(-0.2, 0.2)
        rotation = np.array(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
        lean = np.array([[stretch, shear], [0, 1 / stretch]])
        tilt_x, tilt_y = rng.uniform(-0.2, 0.2, size=2)
        return cls(x, y, radius, (lean @ rotation).astype(np.float32), (tilt_x, tilt_y))

    def local(
        self, x: Float32[np.ndarray, "columns"], y: Float32[np.ndarray, "rows"]
    ) -> tuple[shapes.Plane, shapes.Plane]:
        """The object's own coordinates of the pixels in rows y and columns x."""
        right = ((x - np.float32(self.x)) / np.float32(self.radius))[None, :]
        up = ((np.float32(self.y) - y) / np.float32(self.radius))[:, None]
        depth = 1 + np.float32(self.tilt[0]) * right + np.float32(self.tilt[1]) * up
        u = (self.turn[0, 0] * right + self.turn[0, 1] * up) / depth
        v = (self.turn[1, 0] * right + self.turn[1, 1] * up) / depth
        return u, v


@dataclass(frozen=True)
class Light:
    """Where the light comes from and how strong it is."""

    right: float
    up: float
    shading: float
    shadow: float
    brightness: float
    contrast: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Light":
        """A random direction, strength, brightness and contrast."""
        angle = rng.uniform(0, 2 * math.pi)
        return cls(
            right=math.cos(angle),
            up=math.sin(angle),
            shading=rng.uniform(0.05, 0.3),
            shadow=rng.uniform(0.15, 0.5),
            brightness=rng.uniform(-0.08, 0.08),
            contrast=rng.uniform(0.8, 1.15),
        )


def _tones(rng: np.random.Generator, label: int) -> Float32[np.ndarray, "2 3"]:
    """A dark and a light colour of about one hue, in random order; hues overlap across classes."""
    hue = 2 * math.pi * label / len(CLASSES) + rng.normal(0, 0.52)
    hues = hue + np.array([0.0, rng.normal(0, 0.15)])
    lights = np.array([rng.uniform(0.15, 0.25), rng.uniform(0.78, 0.88)])
    chromas = rng.uniform((0.12, 0.10), (0.17, 0.15))
    primaries = np.array([0.0, 2 * math.pi / 3, 4 * math.pi / 3])
    tones = lights[:, None] + chromas[:, None] * np.cos(hues[:, None] - primaries)
    order = (0, 1) if rng.random() < 0.5 else (1, 0)
    return np.asarray(tones[list(order)].astype(np.float32))


def _weave(rng: np.random.Generator) -> textures.Weave:
    """A random fineness and offset of the texture."""
    x, y = rng.random(2)
    angles = (rng.random((7, 2)) * 2 * np.pi).astype(np.float32)
    return textures.Weave(rng.uniform(2.1, 2.8), (float(x), float(y)), angles)


def _centres(first: int, last: int, steps: int) -> Float32[np.ndarray, "pixels"]:
    """Centres of the pixels first..last-1 when the side of the image has `steps` of them."""
    return (np.arange(first, last, dtype=np.float32) + np.float32(0.5)) / np.float32(steps)


def _fold(fine: Float32[np.ndarray, "fine_rows fine_columns"], by: int) -> shapes.Plane:
    """The mean over squares of `by` times `by` pixels."""
    rows = sum(fine[start::by] for start in range(by))
    total = sum(np.asarray(rows)[:, start::by] for start in range(by))
    return np.asarray(total / np.float32(by * by))


def scene(index: int, *, seed: int, size: int) -> Scene:
    """Scene number `index` of the world `seed`, drawn at `size` pixels a side."""
    if size < _SMALLEST:
        raise UserError(
            f"scene size {size} is too small to show an object; use {_SMALLEST} or more"
        )
    if index < 0 or seed < 0:
        raise UserError(f"scene index {index} and seed {seed} must not be negative; use 0 or more")
    label = index % len(_KINDS)
    kind = _KINDS[label]
    rng = np.random.default_rng((seed, index))
    pose, light, tones, weave = Pose.draw(rng), Light.draw(rng), _tones(rng, label), _weave(rng)
    image = backdrop(rng, size)

    # The shadow is the outline again, moved away from the light, with a soft edge.
    pixels = _centres(0, size, size)
    reach = np.float32(0.2 * pose.radius)
    far = kind.outline(
        *pose.local(pixels + reach * np.float32(light.right), pixels - reach * np.float32(light.up))
    )
    image *= 1 - np.float32(light.shadow) * np.clip(0.5 - far / 0.5, 0, 1)[..., None]

    # Only the part of the image that can hold the object is drawn, on a finer grid.
    fine = max(2, math.ceil(128 / size))
    reach_pixels = math.ceil(1.6 * pose.radius * size)
    left, right = _window(pose.x, reach_pixels, size)
    top, bottom = _window(pose.y, reach_pixels, size)
    x = _centres(left * fine, right * fine, size * fine)
    y = _centres(top * fine, bottom * fine, size * fine)
    u, v = pose.local(x, y)
    step = np.float32(1 / (size * fine * pose.radius))
    inside = np.clip(np.float32(0.5) - kind.outline(u, v) / step, 0, 1)
    blend = np.clip(np.float32(0.5) + np.float32(1.4) * kind.texture(u, v, weave), 0, 1)
    shade = _shade(pose, light, x, y) * inside
    paint_first, cover = _fold(shade * blend, fine), _fold(inside, fine)
    paint_second = _fold(shade, fine) - paint_first
    paint = paint_first[..., None] * tones[0] + paint_second[..., None] * tones[1]
    patch = image[top:bottom, left:right]
    patch *= 1 - cover[..., None]
    patch += paint

    image = (image - np.float32(0.5)) * np.float32(light.contrast)
    image += np.float32(0.5 + light.brightness)
    mask = np.zeros((size, size), dtype=np.bool_)
    mask[top:bottom, left:right] = cover >= 0.5
    return Scene(np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8), mask, label)


def _window(centre: float, reach: int, size: int) -> tuple[int, int]:
    """The pixels within `reach` of the centre that are in the image."""
    middle = round(centre * size)
    return max(0, middle - reach), min(size, middle + reach)


def _shade(
    pose: Pose,
    light: Light,
    x: Float32[np.ndarray, "columns"],
    y: Float32[np.ndarray, "rows"],
) -> shapes.Plane:
    """How bright the object is: more on the side that faces the light."""
    right = (x - np.float32(pose.x)) * np.float32(light.right * light.shading / pose.radius)
    up = (np.float32(pose.y) - y) * np.float32(light.up * light.shading / pose.radius)
    return np.asarray(1 + right[None, :] + up[:, None], dtype=np.float32)


def object_mask_path(image_path: Path, root: Path) -> Path:
    """Where the object mask of an image of the data set `root` is (nonzero = object)."""
    if not image_path.is_relative_to(root):
        raise UserError(f"image {image_path} is not in {root}; give the folder it was written to")
    return (root / "masks" / image_path.relative_to(root)).with_suffix(".png")


def _plan(root: Path, train: int, val: int) -> Iterator[tuple[Path, int]]:
    """The path and the index of every image of the data set."""
    for split, first, count in (("train", 0, train), ("val", _VAL_START, val)):
        for index in range(first, first + count):
            yield root / split / CLASSES[index % len(CLASSES)] / f"{index:010d}.png", index


def write_folder(root: Path, *, train: int, val: int, size: int, seed: int) -> None:
    """Write a labelled data set with object masks; a finished one of the same settings is kept."""
    if train < 1 or val < 0:
        raise UserError(f"{train} train and {val} val scenes were asked for; use at least 1 and 0")
    settings = {"version": VERSION, "seed": seed, "size": size, "train": train, "val": val}
    manifest = root / MANIFEST
    if manifest.exists():
        _check_same(manifest, settings)
        return
    plan = list(_plan(root, train, val))
    masks = {path: object_mask_path(path, root) for path, _ in plan}
    _check_nothing_else(root, {*masks, *masks.values()})
    try:
        for folder in {path.parent for path in (*masks, *masks.values())}:
            folder.mkdir(parents=True, exist_ok=True)
        for path, index in plan:
            drawn = scene(index, seed=seed, size=size)
            Image.fromarray(drawn.image).save(path, compress_level=1)
            mask = Image.fromarray(drawn.mask.astype(np.uint8) * 255)
            mask.save(masks[path], compress_level=1)
        # Last and atomically: a folder with a manifest is a complete folder.
        atomic.write(manifest, json.dumps(settings, indent=2) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot write scenes to {root}: {error.strerror}; free space or choose another folder"
        ) from error


def _check_same(manifest: Path, settings: dict[str, int]) -> None:
    """Raise an error if the folder was written with other settings."""
    try:
        found = json.loads(manifest.read_text())
    except ValueError as error:
        raise UserError(f"{manifest} is not valid JSON; remove {manifest.parent}") from error
    if found != settings:
        raise UserError(
            f"{manifest.parent} holds scenes of {found}, wanted {settings}; "
            "remove it or choose another folder"
        )


def _check_nothing_else(root: Path, expected: set[Path]) -> None:
    """Raise an error if the folder holds files of anything else."""
    for split in ("train", "val", "masks"):
        for path in sorted((root / split).rglob("*")):
            if path.is_file() and path not in expected:
                raise UserError(f"{path} is not one of the scenes; choose an empty folder")

"""A fingerprint keeps what a picture is: the bytes to the last, the looks through small changes."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.audit.fingerprint import digest, perceptual_hashes, thumbnail
from attmask.data.synthetic import scene


def grey_scene(sample: int, size: int = 128) -> np.ndarray:
    image = np.asarray(scene(sample, size=size, seed=0).image)
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)


def hashed(grey: np.ndarray) -> tuple[int, int] | None:
    return perceptual_hashes(thumbnail(grey))


def distance(one: np.ndarray, other: np.ndarray) -> int:
    hashes = hashed(one), hashed(other)
    assert hashes[0] is not None
    assert hashes[1] is not None
    return bin(hashes[0][0] ^ hashes[1][0]).count("1")


@given(st.binary(), st.binary())
def test_digests_are_the_same_only_for_the_same_bytes(one: bytes, other: bytes) -> None:
    assert (digest(one) == digest(other)) == (one == other)


def test_an_arrays_digest_knows_its_shape_and_kind() -> None:
    pixels = np.zeros((2, 3), dtype=np.uint8)
    assert digest(pixels) == digest(np.asfortranarray(pixels))
    assert digest(pixels) != digest(pixels.T)
    assert digest(pixels) != digest(pixels.view(np.int8))


@pytest.mark.parametrize("sample", range(6))
def test_scaling_saving_again_and_light_leave_a_picture_within_four_bits(sample: int) -> None:
    picture = grey_scene(sample)
    small = cv2.resize(picture, (80, 80), interpolation=cv2.INTER_AREA)
    _, saved = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 60])
    brighter = np.clip(picture * 0.9 + 20, 0, 255).astype(np.uint8)
    again = np.asarray(cv2.imdecode(saved, cv2.IMREAD_GRAYSCALE))
    for changed in (small, again, brighter):
        assert distance(picture, changed) <= 4


@pytest.mark.parametrize("sample", range(6))
def test_the_hash_of_the_flipped_picture_is_known_without_it(sample: int) -> None:
    picture = grey_scene(sample)
    flipped = picture[:, ::-1].copy()
    found, there = hashed(picture), hashed(flipped)
    assert found is not None
    assert there is not None
    assert bin(found[1] ^ there[0]).count("1") <= 1
    assert bin(found[0] ^ there[1]).count("1") <= 1
    assert distance(picture, flipped) > 4


def test_different_pictures_are_far_apart() -> None:
    scenes = [grey_scene(sample) for sample in range(12)]
    far = [distance(scenes[i], scenes[j]) for i in range(12) for j in range(i)]
    assert min(far) > 8


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_flat_picture_has_no_hash_even_with_a_little_noise(level: int) -> None:
    noise = np.random.default_rng(0).integers(-1, 2, (64, 64))
    noisy = np.clip(np.full((64, 64), level) + noise, 0, 255).astype(np.uint8)
    assert hashed(np.full((64, 64), level, dtype=np.uint8)) is None
    assert hashed(noisy) is None


@pytest.mark.parametrize("shape", [(1, 1), (1, 2000), (2000, 1), (3, 5)])
def test_any_shape_is_hashed_or_left_out_without_a_fault(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = hashed(pixels)
    assert found is None or all(0 <= value < 2**64 for value in found)

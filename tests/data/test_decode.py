"""A picture that cannot be read is named in one line, whatever is wrong with it."""

import pickle
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.config import DataConfig
from attmask.data.decode import (
    UnreadableImageError,
    check_readable,
    decode,
    open_picture,
    replacement,
)
from attmask.data.source import Source
from attmask.errors import UserError
from tests.data.strange import cut, detailed, saved, scene, strange_files

DATA = DataConfig()
STRANGE = strange_files()
UNREADABLE = [name for name, file in STRANGE.items() if file.pixels is None]
PICTURE = saved(scene(), "PNG")


@dataclass(frozen=True)
class Memory:
    """Pictures that are kept in memory; one that is an error is raised."""

    pictures: tuple[tuple[str, bytes | np.ndarray | Exception], ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def name(self, row: int) -> str:
        return self.pictures[row][0]

    def read(self, row: int) -> bytes | np.ndarray:
        stored = self.pictures[row][1]
        if isinstance(stored, Exception):
            raise stored
        return stored

    @property
    def shards(self) -> Sequence[int]:
        return ()


def source_of(*pictures: tuple[str, bytes | np.ndarray | Exception]) -> Source:
    return Source(Path("/images"), Memory(pictures), np.arange(len(pictures)))


def letters(readable: str) -> Source:
    """One picture a letter: `y` can be read, `n` not."""
    return source_of(
        *((f"{i:02}.png", PICTURE if letter == "y" else b"n") for i, letter in enumerate(readable))
    )


def test_a_file_and_an_array_become_pixels() -> None:
    source = source_of(("a.png", PICTURE), ("b.npz[3]", scene()))
    for index in range(2):
        assert np.array_equal(decode(source, index, DATA), scene())
        assert open_picture(source, index, DATA).size_wh == (48, 40)


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_picture_is_named_once_in_one_line_with_the_reason(name: str) -> None:
    file = STRANGE[name]
    with pytest.raises(UnreadableImageError, match=re.escape(file.reason) or None) as fault:
        decode(source_of((name, file.data)), 0, DATA)
    line = str(fault.value)
    assert line.isprintable()
    assert line.startswith(f"cannot read {fault.value.place}: ")
    assert fault.value.line == f"{fault.value.place}\t{fault.value.reason}"
    assert len(fault.value.reason) < 100
    assert not re.search(r"BytesIO|object at|Error\b|OpenCV", line)


def test_no_kind_of_file_prints_or_warns(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for name, file in STRANGE.items():
            source = source_of((name, file.data))
            if file.pixels is not None:
                decode(source, 0, DATA)
            else:
                with pytest.raises(UnreadableImageError):
                    decode(source, 0, DATA)
            assert (name, *capfd.readouterr()) == (name, "", "")
    assert [str(warning.message) for warning in warned] == []


@given(data=st.data(), name=st.sampled_from(sorted(STRANGE)))
def test_any_damage_gives_pixels_or_the_one_kind_of_error(data: st.DataObject, name: str) -> None:
    damaged = bytearray(STRANGE[name].data)
    for _ in range(data.draw(st.integers(0, 6)) if damaged else 0):
        # Headers are short, and there most can go wrong.
        most = data.draw(st.sampled_from([64, 512, len(damaged)]))
        place = data.draw(st.integers(0, min(most, len(damaged)) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    kept = data.draw(st.sampled_from([1.0, 1.0, 0.99, 0.6]))
    source = source_of((name, cut(bytes(damaged), kept)))
    with suppress(UnreadableImageError):
        assert decode(source, 0, DataConfig(max_megapixels=1)).shape[2] == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/secret/x"), "No such file"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OSError("the archive ends early"), "the archive ends early"),
        (MemoryError(), "not enough memory"),
        (RecursionError("maximum depth"), "the file is damaged"),
    ],
)
def test_a_fault_in_reading_is_told_in_a_few_words(fault: Exception, reason: str) -> None:
    with pytest.raises(UnreadableImageError, match=rf"^cannot read /images/a\.png: {reason}"):
        open_picture(source_of(("a.png", fault)), 0, DATA)


def test_a_fault_that_only_decoding_finds_is_named_too() -> None:
    source = source_of(("half.jpg", cut(saved(detailed(), "JPEG"), 0.4)))
    picture = open_picture(source, 0, DATA)
    with pytest.raises(UnreadableImageError, match=r"/images/half\.jpg: .* per cent"):
        picture.pixels(4)


def test_the_settings_reach_the_decoder() -> None:
    deep = np.array([[0, 1023]], np.uint16)
    source = source_of(("a", PICTURE), ("b", deep))
    assert decode(source, 0, DataConfig(channels=1)).shape == (40, 48, 1)
    assert decode(source, 1, DataConfig(channels=1, bits=12)).flatten().tolist() == [0, 64]
    with pytest.raises(UnreadableImageError, match="has 3 channels, 5 are wanted"):
        decode(source, 0, DataConfig(channels=5))
    with pytest.raises(UnreadableImageError, match=r"max_megapixels=0\.001"):
        decode(source, 0, DataConfig(max_megapixels=0.001))


def test_the_error_survives_the_way_out_of_a_worker() -> None:
    fault = UnreadableImageError("a b\nc.png", "it is\tdamaged")
    again = pickle.loads(pickle.dumps(fault))
    assert (str(again), again.line) == (str(fault), fault.line)
    assert fault.line == "a b\\nc.png\tit is\\tdamaged"


def test_a_source_without_any_readable_image_is_refused() -> None:
    with pytest.raises(UserError, match=r"no readable image in .*: tried 3 of 3.*00\.png"):
        check_readable(letters("nnn"), DATA)


def test_one_readable_image_among_those_tried_is_enough() -> None:
    check_readable(letters("n" * 15 + "y"), DATA)


def test_the_images_tried_are_spread_over_the_source() -> None:
    check_readable(letters("n" * 20 + "y" * 12), DATA)


@given(
    images=st.integers(2, 10**9),
    attempt=st.integers(0, 20),
    seed=st.integers(0, 2**31),
    data=st.data(),
)
def test_a_replacement_is_another_image_and_always_the_same_one(
    images: int, attempt: int, seed: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, images - 1))
    chosen = replacement(index, attempt, images, seed)
    assert 0 <= chosen < images
    assert chosen != index
    assert chosen == replacement(index, attempt, images, seed)


def test_replacements_are_spread_over_all_images_and_attempts() -> None:
    by_attempt = [replacement(3, attempt, 50, 0) for attempt in range(2000)]
    by_index = [replacement(index, 0, 2000, 0) for index in range(2000)]
    assert set(by_attempt) == set(range(50)) - {3}
    assert len(set(by_index)) > 1100  # of 2000 draws with repetition: about 1264 are different
    assert replacement(3, 0, 50, 1) != by_attempt[0]


def test_an_image_that_is_alone_has_no_other() -> None:
    assert replacement(0, 5, 1, 0) == 0

import io
import json
import logging
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attmask.data.stores.tars import Sample, read_samples
from attmask.errors import UserError
from tests.sources import png, write_tar


def read(file: Path) -> list[tuple[str, str | None]]:
    return [(sample.name, sample.label) for sample in read_samples(file)]


def bytes_of(file: Path, sample: Sample) -> bytes:
    return file.read_bytes()[sample.offset : sample.offset + sample.size]


def test_members_of_one_stem_are_one_sample_with_its_label(tmp_path: Path) -> None:
    members = {
        "0001.cls": b"3\n",
        "0001.jpg": b"one",
        "0002.JPG": b"two",
        "0002.json": json.dumps({"label": "dog", "url": "x"}).encode(),
        "0002.txt": b"a caption",
        "./c/0003.img": b"three",
        "0004.txt": b"no picture",
    }
    file = write_tar(tmp_path / "a.tar", members)
    assert read(file) == [("0001.jpg", "3"), ("0002.JPG", "dog"), ("c/0003.img", None)]
    assert [bytes_of(file, s) for s in read_samples(file)] == [b"one", b"two", b"three"]


def test_the_same_stem_in_two_folders_is_two_samples(tmp_path: Path) -> None:
    members = {"a/1.jpg": b"", "a/1.cls": b"0", "b/1.jpg": b"", "b/1.cls": b"1"}
    assert read(write_tar(tmp_path / "a.tar", members)) == [("a/1.jpg", "0"), ("b/1.jpg", "1")]


def test_a_mask_beside_a_picture_is_no_picture_but_dates_in_names_are_pictures(
    tmp_path: Path,
) -> None:
    members = {"1.depth.png": b"", "1.jpg": b"", "scan.2020.jpg": b"", "scan.2021.jpg": b""}
    found = [name for name, _ in read(write_tar(tmp_path / "a.tar", members))]
    assert found == ["1.jpg", "scan.2020.jpg", "scan.2021.jpg"]


def test_hidden_members_links_and_folders_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "1.png").write_bytes(png(1))
    (tmp_path / "d" / "2.png").symlink_to("1.png")
    (tmp_path / "d" / "._1.png").write_bytes(b"of a Mac")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "d", "d")
    assert read(tmp_path / "a.tar") == [("d/1.png", None)]
    assert "has 1 link, left out of the images" in caplog.text


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_in_every_tar_format_are_read(tmp_path: Path, form: int) -> None:
    name = "/".join(["a-long-name-of-a-folder"] * 5) + "/" + "é" * 20 + ".png"
    (tmp_path / "1.png").write_bytes(png(1))
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as archive:
        archive.add(tmp_path / "1.png", name)
    (sample,) = read_samples(tmp_path / "a.tar")
    assert sample.name == name
    assert bytes_of(tmp_path / "a.tar", sample) == png(1)


def test_of_a_damaged_tar_the_samples_before_the_damage_are_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = write_tar(tmp_path / "a.tar", {f"{i}.jpg": bytes(1000) for i in range(6)})
    third = [s.offset for s in read_samples(whole)][3]
    for cut in (third + 10, third - 100):  # in a picture, and in a header
        damaged = tmp_path / "b.tar"
        damaged.write_bytes(whole.read_bytes()[:cut])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert [name for name, _ in read(damaged)] == ["0.jpg", "1.jpg", "2.jpg"]
        assert "b.tar is damaged" in caplog.text
    spoilt = bytearray(whole.read_bytes())
    spoilt[third - 512 : third] = b"x" * 512
    damaged.write_bytes(spoilt)
    caplog.clear()
    assert [name for name, _ in read(damaged)] == ["0.jpg", "1.jpg", "2.jpg"]
    assert "b.tar is damaged" in caplog.text


def test_a_whole_tar_is_read_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = write_tar(tmp_path / "a.tar", {"1.jpg": bytes(512), "2.jpg": b""})
    assert len(read(whole)) == 2
    unended = tmp_path / "b.tar"  # some writers leave out the two empty blocks
    unended.write_bytes(whole.read_bytes()[: 3 * 512])
    assert len(read(unended)) == 2
    assert caplog.text == ""


@pytest.mark.parametrize("content", [b"", b"no tar file" * 100])
def test_what_is_no_tar_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tar is not a plain tar file"):
        read(tmp_path / "a.tar")


def test_a_label_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "a.tar", {"1.jpg": b"", "1.json": b"{"})
    with pytest.raises(UserError, match=r"a\.tar/1\.json cannot be read as a label"):
        read(file)


FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(
        st.text(st.sampled_from("ab/ü."), min_size=1, max_size=140).map(
            lambda text: "/".join(filter(None, f"x{text}".split("/")))
        ),
        max_size=6,
        unique=True,
    ),
    sizes=st.lists(st.integers(0, 1500), min_size=6, max_size=6),
)
def test_every_format_is_read_as_tarfile_reads_it(
    tmp_path_factory: pytest.TempPathFactory, kind: int, names: list[str], sizes: list[int]
) -> None:
    file = tmp_path_factory.mktemp("tar") / "a.tar"
    with tarfile.open(file, "w", format=kind) as archive:
        for number, (name, size) in enumerate(zip(names, sizes, strict=False)):
            header = tarfile.TarInfo(f"{name}/{number}.png")
            header.size = size
            try:
                archive.addfile(header, io.BytesIO(bytes(size)))
            except ValueError:  # too long for ustar
                continue
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("last.png"))
    with tarfile.open(file) as archive:
        expected = [(m.name, m.offset_data, m.size) for m in archive if m.isreg()]
    assert [(s.name, s.offset, s.size) for s in read_samples(file)] == expected

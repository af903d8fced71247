"""Unreadable pictures are listed once each, also over several runs, and too many stop the run."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.quarantine import Quarantine
from attmask.errors import UserError


def lines(*numbers: int) -> list[str]:
    return [f"/images/{number}.jpg\tthe file is damaged" for number in numbers]


def listed(folder: Path) -> list[str]:
    return (folder / "unreadable.tsv").read_text().splitlines()


def test_each_picture_is_noted_once(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path, images=100, limit=1.0)
    quarantine.add(lines(3, 5, 3))
    quarantine.add(lines(5, 7))
    quarantine.add([])
    assert quarantine.count == 3
    assert listed(tmp_path) == lines(3, 5, 7)


def test_without_faults_there_is_no_file(tmp_path: Path) -> None:
    assert Quarantine(tmp_path, images=10, limit=0.1).count == 0
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_goes_on_with_the_list(tmp_path: Path) -> None:
    Quarantine(tmp_path, images=100, limit=1.0).add(lines(1, 2))
    again = Quarantine(tmp_path, images=100, limit=1.0)
    assert again.count == 2
    again.add(lines(2, 4))
    assert listed(tmp_path) == lines(1, 2, 4)


@pytest.mark.parametrize("lost", [1, 10, 25])
def test_a_line_that_a_crash_cut_off_is_written_again(tmp_path: Path, lost: int) -> None:
    Quarantine(tmp_path, images=100, limit=1.0).add(lines(1, 2))
    file = tmp_path / "unreadable.tsv"
    file.write_bytes(file.read_bytes()[:-lost])
    again = Quarantine(tmp_path, images=100, limit=1.0)
    assert again.count == 1
    again.add(lines(2, 3))
    assert listed(tmp_path) == lines(1, 2, 3)


def test_names_of_any_language_survive(tmp_path: Path) -> None:
    line = "/images/日本語 ñ é.jpg\tNo such file or directory"
    Quarantine(tmp_path, images=100, limit=1.0).add([line])
    again = Quarantine(tmp_path, images=100, limit=1.0)
    again.add([line])
    assert again.count == 1
    assert (tmp_path / "unreadable.tsv").read_text(encoding="utf-8") == line + "\n"


@given(images=st.integers(1, 400), limit=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]))
def test_the_run_stops_as_soon_as_more_than_the_limit_are_unreadable(
    images: int, limit: float
) -> None:
    allowed = min(images, max(1, int(limit * images)))
    quarantine = Quarantine(None, images, limit)
    quarantine.add(lines(*range(allowed)))
    assert quarantine.count == allowed
    if allowed < images:
        with pytest.raises(UserError, match=f"{allowed + 1} of {images} images"):
            quarantine.add(lines(images))


def test_the_line_that_stops_a_run_says_how_many_which_where_and_what_to_do(
    tmp_path: Path,
) -> None:
    quarantine = Quarantine(tmp_path, images=200, limit=0.02)
    with pytest.raises(UserError) as fault:
        quarantine.add(lines(*range(5)))
    assert str(fault.value) == (
        "5 of 200 images (2.5%) cannot be read, more than data.unreadable_limit=0.02: "
        "/images/0.jpg, /images/1.jpg, /images/2.jpg, ...; "
        f"the list is {tmp_path / 'unreadable.tsv'}; "
        "repair them or raise data.unreadable_limit to resume, "
        "or remove them and choose another --out"
    )
    assert listed(tmp_path) == lines(*range(5)), "the list is there when the run stops"


def test_a_resumed_run_counts_what_was_unreadable_before(tmp_path: Path) -> None:
    Quarantine(tmp_path, images=100, limit=0.02).add(lines(1, 2))
    with pytest.raises(UserError, match="3 of 100 images"):
        Quarantine(tmp_path, images=100, limit=0.02).add(lines(3))


def stopped(folder: Path, limit: float = 0.02) -> None:
    with pytest.raises(UserError, match="3 of 100 images"):
        Quarantine(folder, images=100, limit=limit).add(lines(1, 2, 3))


def test_a_run_that_stopped_stops_again_where_nothing_was_repaired(tmp_path: Path) -> None:
    stopped(tmp_path)
    again = Quarantine(tmp_path, images=100, limit=0.02)
    again.add(lines(1, 2))
    with pytest.raises(UserError, match="3 of 100 images"):
        again.add(lines(2, 3))
    assert listed(tmp_path) == lines(1, 2, 3)


def test_a_run_that_stopped_resumes_with_repaired_files_and_counts_others(tmp_path: Path) -> None:
    stopped(tmp_path)
    again = Quarantine(tmp_path, images=100, limit=0.02)
    again.add(lines(2, 7))  # 1 and 3 were repaired
    assert again.count == 2
    with pytest.raises(UserError, match=r"3 of 100 images .*: /images/2.jpg, /images/7.jpg, /im"):
        again.add(lines(8))
    assert listed(tmp_path) == lines(1, 2, 3, 7, 8)


def test_a_run_that_stopped_goes_on_with_a_higher_limit(tmp_path: Path) -> None:
    stopped(tmp_path)
    again = Quarantine(tmp_path, images=100, limit=0.04)
    again.add(lines(1, 2, 3, 4))
    assert again.count == 4


def test_a_picture_counts_once_however_its_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Quarantine(tmp_path, images=100, limit=1.0).add(["images/1.jpg\tthe file is damaged"])
    again = Quarantine(tmp_path, images=100, limit=1.0)
    again.add([f"{tmp_path}/images/1.jpg\tthe file is damaged"])
    assert again.count == 1
    assert listed(tmp_path) == [f"{tmp_path}/images/1.jpg\tthe file is damaged"]


def test_the_first_ten_are_warned_of_singly_and_then_every_tenfold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quarantine = Quarantine(None, images=2000, limit=1.0)
    with caplog.at_level(logging.WARNING):
        for number in range(1500):
            quarantine.add(lines(number))
            quarantine.add(lines(number))
    assert len(caplog.messages) == 12
    first = "cannot read /images/0.jpg: the file is damaged; another image replaces it"
    assert caplog.messages[0] == first
    assert caplog.messages[10].startswith("100 images cannot be read so far")
    assert caplog.messages[11].startswith("1000 images cannot be read so far")


def test_a_list_that_cannot_be_kept_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "unreadable.tsv").mkdir()
    quarantine = Quarantine(tmp_path, images=10, limit=1.0)
    with pytest.raises(UserError, match=r"cannot write .*unreadable\.tsv: Is a directory"):
        quarantine.add(lines(1))

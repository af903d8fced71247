"""A checkpoint is whole or not there, whatever happens to the process, the disk or a byte."""

import hashlib
import itertools
import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attmask import checkpoint
from attmask.checkpoint import Checkpoint
from attmask.errors import UserError
from tests.runs import same_tensors


def made(step: int) -> Checkpoint:
    chance = torch.Generator().manual_seed(step)
    weights = {"a": torch.randn(3, 4, generator=chance), "b.c": torch.randn(5, generator=chance)}
    optimizer = {"a:step": torch.tensor(float(step)), "a:exp_avg": torch.ones(3, 4)}
    info = {"scaler": {"scale": 0.1 + step}, "note": "ü"}
    return Checkpoint(step, {"weights": weights, "optimizer": optimizer}, info)


def same(ours: Checkpoint | None, theirs: Checkpoint) -> bool:
    return (
        ours is not None
        and (ours.step, ours.info) == (theirs.step, theirs.info)
        and same_tensors(ours, theirs)
    )


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte % len(data)] ^= 1 << byte % 8
    path.write_bytes(data)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path) -> None:
    odd: dict[str, Tensor] = {
        "half": torch.randn(3).bfloat16(),
        "double": torch.tensor([0.1, torch.inf, -0.0], dtype=torch.float64),
        "number": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "turned": torch.arange(6.0).view(2, 3).T,
    }
    whole = Checkpoint(12, {"weights": odd, "none": {}}, {"scaler": {}, "list": [1, 2.5, None]})
    folder = checkpoint.save(tmp_path, whole, keep=1)
    assert folder == tmp_path / "step-00000012"
    assert same(checkpoint.load(folder), whole)


def test_a_folder_without_checkpoints_has_no_newest(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nowhere") is None
    assert checkpoint.load_newest(tmp_path) is None


@settings(max_examples=15)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=6, unique=True), st.integers(1, 4))
def test_the_newest_few_are_kept(numbers: list[int], keep: int) -> None:
    numbers.sort()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in numbers:
            checkpoint.save(folder, made(number), keep=keep)
        assert steps(folder) == [f"step-{number:08d}" for number in numbers[-keep:]]
        assert same(checkpoint.load_newest(folder), made(numbers[-1]))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    checkpoint.save(folder, made(1), keep=2)
    checkpoint.save(folder, made(2), keep=2)
    return folder


@given(
    st.sampled_from(["weights.safetensors", "optimizer.safetensors", "state.json", "state.sha256"]),
    st.integers(0, 2**16),
)
def test_any_byte_that_changed_is_noticed_and_the_one_before_is_used(
    two: Path, file: str, byte: int
) -> None:
    damaged = two / "step-00000002"
    flip(damaged / file, byte)
    try:
        with pytest.raises(UserError, match=r"damaged; delete .*step-00000002 and start again"):
            checkpoint.load(damaged)
        assert same(checkpoint.load_newest(two), made(1))
    finally:
        flip(damaged / file, byte)
    assert same(checkpoint.load_newest(two), made(2))


def test_a_damaged_checkpoint_is_named(two: Path, caplog: pytest.LogCaptureFixture) -> None:
    flip(two / "step-00000002" / "weights.safetensors", 100)
    try:
        with caplog.at_level(logging.WARNING):
            checkpoint.load_newest(two)
    finally:
        flip(two / "step-00000002" / "weights.safetensors", 100)
    why, used = caplog.messages
    assert "step-00000002 is damaged: weights.safetensors is not as it was written" in why
    assert used == f"{two / 'step-00000001'} is used in its place"


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, made(1), keep=1)
    (folder / "optimizer.safetensors").unlink()
    with pytest.raises(UserError, match=r"is not a whole checkpoint .*optimizer") as caught:
        checkpoint.load(folder)
    assert "\n" not in str(caught.value)


def test_a_run_whose_checkpoints_are_all_damaged_does_not_silently_begin_anew(
    tmp_path: Path,
) -> None:
    for step in (1, 2):
        flip(checkpoint.save(tmp_path, made(step), keep=2) / "weights.safetensors", 100)
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole"):
        checkpoint.load_newest(tmp_path)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_newer_checkpoint_does_not_push_out_the_whole_ones(
    tmp_path: Path, keep: int
) -> None:
    checkpoint.save(tmp_path, made(4), keep=2)
    flip(checkpoint.save(tmp_path, made(9), keep=2) / "weights.safetensors", 100)
    checkpoint.save(tmp_path, made(6), keep=keep)
    assert steps(tmp_path) == ["step-00000004", "step-00000006", "step-00000009"][-keep - 1 :]
    assert same(checkpoint.load_newest(tmp_path), made(6))


def test_damaged_checkpoints_of_later_steps_are_put_aside_under_names_of_their_own(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        checkpoint.save(tmp_path, made(4), keep=2)
        flip(checkpoint.save(tmp_path, made(9), keep=2) / "weights.safetensors", 100)
        checkpoint.put_damaged_aside(tmp_path, newer_than=4)
    checkpoint.save(tmp_path, made(10), keep=3)
    assert checkpoint.put_damaged_aside(tmp_path, newer_than=4) == []
    assert steps(tmp_path) == [
        "damaged-step-00000009",
        "damaged-step-00000009-2",
        "step-00000004",
        "step-00000010",
    ]
    assert same(checkpoint.load_newest(tmp_path), made(10))


@pytest.mark.parametrize("lost", ["everything", "state.json", "state.sha256"])
def test_a_newest_checkpoint_that_lost_its_files_is_not_passed_over_in_silence(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.save(tmp_path, made(1), keep=2)
    folder = checkpoint.save(tmp_path, made(2), keep=2)
    for file in list(folder.iterdir()) if lost == "everything" else [folder / lost]:
        file.unlink()
    assert same(checkpoint.load_newest(tmp_path), made(1))
    assert checkpoint.find_newest(tmp_path) == tmp_path / "step-00000001"
    assert len(caplog.messages) == 4
    assert caplog.messages[0].startswith(f"the checkpoint {folder} is damaged: state.")
    assert caplog.messages[0].endswith(" is missing")


@pytest.mark.parametrize(
    ("every", "kept"),
    [(None, [11, 12]), (4, [4, 8, 11, 12]), (6, [6, 11, 12]), (5, [5, 10, 11, 12])],
)
def test_checkpoints_of_some_steps_are_kept_for_ever(
    tmp_path: Path, every: int | None, kept: list[int]
) -> None:
    for step in range(1, 13):
        is_kept = every is not None and step % every == 0
        checkpoint.save(tmp_path, replace(made(step), is_kept=is_kept), keep=2)
    assert steps(tmp_path) == [f"step-{step:08d}" for step in kept]


def test_what_was_kept_under_an_earlier_rule_stays(tmp_path: Path) -> None:
    for step in range(1, 7):
        is_kept = step % (2 if step < 4 else 5) == 0
        checkpoint.save(tmp_path, replace(made(step), is_kept=is_kept), keep=1)
    assert steps(tmp_path) == ["step-00000002", "step-00000005", "step-00000006"]


def test_a_step_that_is_made_again_replaces_its_damaged_checkpoint(tmp_path: Path) -> None:
    flip(checkpoint.save(tmp_path, made(3), keep=2) / "state.json", 5)
    checkpoint.save(tmp_path, made(3), keep=2)
    assert same(checkpoint.load_newest(tmp_path), made(3))


def save_and_be_killed(folder: Path, flushes: int) -> None:
    """Save checkpoint 2, with a SIGKILL in place of one of the flushes to disk."""
    count = itertools.count()
    flush = os.fsync

    def flush_or_die(handle: int) -> None:
        if next(count) == flushes:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", flush_or_die)
        checkpoint.save(folder, made(2), keep=1)


@pytest.mark.parametrize("flushes", range(8))
def test_a_killed_process_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, flushes: int
) -> None:
    checkpoint.save(tmp_path, made(1), keep=1)
    child = multiprocessing.get_context("fork").Process(
        target=save_and_be_killed, args=(tmp_path, flushes)
    )
    child.start()
    child.join(timeout=60)
    # Four files, the folder with them, the rename and the folder above, the removal of the old one.
    assert child.exitcode == (-signal.SIGKILL if flushes < 7 else 0)
    assert same(checkpoint.load_newest(tmp_path), made(1 if flushes < 5 else 2))
    checkpoint.save(tmp_path, made(3), keep=1)
    assert steps(tmp_path) == ["step-00000003"], "nothing of the killed process stays"


def test_a_full_disk_is_one_line_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(1), keep=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may grow beyond
    try:
        with pytest.raises(UserError) as caught:
            checkpoint.save(tmp_path, made(2), keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    line = str(caught.value)
    assert line.startswith(f"cannot write the checkpoint {tmp_path / 'step-00000002'}: File too")
    assert line.endswith("step-00000001 is whole; make room, then start the same command again")
    assert "\n" not in line
    assert steps(tmp_path) == ["step-00000001"]
    assert same(checkpoint.load_newest(tmp_path), made(1))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="there is no earlier one; choose another"):
        checkpoint.save(tmp_path / "file" / "checkpoints", made(1), keep=1)


def save_many(folder: Path, numbers: range) -> None:
    for number in numbers:
        checkpoint.save(folder, made(number), keep=1)


@pytest.mark.parametrize("writers", [1, 2])
def test_a_reader_always_finds_a_whole_checkpoint_while_others_write_and_remove(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, writers: int
) -> None:
    checkpoint.save(tmp_path, made(0), keep=1)
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=save_many, args=(tmp_path, range(1, 150))) for _ in range(writers)
    ]
    for process in processes:
        process.start()
    reads = 0
    while any(process.is_alive() for process in processes) or reads < 300:
        found = checkpoint.load_newest(tmp_path)
        assert found is not None
        assert same(found, made(found.step))
        reads += 1
    assert [process.exitcode for process in processes] == [0] * writers
    assert caplog.messages == [], "none is called damaged"
    assert steps(tmp_path) == ["step-00000149"]


def test_a_checkpoint_that_was_removed_is_said_without_advice_to_delete(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"there is no checkpoint .*step-7; .*the folder of the run"
    ):
        checkpoint.load(tmp_path / "step-7")


def test_nobody_is_told_to_remove_what_may_be_good(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path, made(1), keep=1)
    (folder / "optimizer.safetensors").unlink()
    for read, place in ((checkpoint.load, folder), (checkpoint.load_newest, tmp_path)):
        with pytest.raises(UserError) as caught:
            read(place)
        assert "delete" not in str(caught.value)


def test_a_checkpoint_that_the_disk_does_not_give_is_not_passed_over(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(1), keep=2)
    folder = checkpoint.save(tmp_path, made(2), keep=2)
    (folder / "weights.safetensors").unlink()
    (folder / "weights.safetensors").mkdir()  # reading it is an error of the system
    with pytest.raises(UserError, match=r"cannot read the checkpoint .*step-00000002: Is a dir"):
        checkpoint.load_newest(tmp_path)


def write_until_killed(folder: Path, begun: Path) -> None:
    """Begin a checkpoint and never finish it."""

    def wait(_: int) -> None:
        begun.touch()
        time.sleep(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", wait)
        checkpoint.save(folder, made(5), keep=1)


def test_an_unfinished_checkpoint_stays_as_long_as_its_writer_lives(tmp_path: Path) -> None:
    folder, begun = tmp_path / "checkpoints", tmp_path / "begun"
    folder.mkdir()
    writer = multiprocessing.get_context("fork").Process(
        target=write_until_killed, args=(folder, begun)
    )
    writer.start()
    while not begun.exists():
        time.sleep(0.01)
    checkpoint.save(folder, made(1), keep=1)
    (part,) = folder.glob(".part-*")
    assert (part / "weights.safetensors").is_file()
    writer.kill()
    writer.join()
    checkpoint.save(folder, made(2), keep=1)
    assert steps(folder) == ["step-00000002"]


def test_an_unfinished_checkpoint_of_another_machine_stays_for_an_hour(tmp_path: Path) -> None:
    for name, age in (("fresh", 60), ("old", 4000)):
        part = tmp_path / f".part-17-0a1b2c3d@{name}@step-00000004"
        part.mkdir()
        (part / "weights.safetensors").touch()
        for path in (part / "weights.safetensors", part):
            os.utime(path, (time.time() - age,) * 2)
    checkpoint.save(tmp_path, made(5), keep=1)
    assert steps(tmp_path) == [".part-17-0a1b2c3d@fresh@step-00000004", "step-00000005"]


def test_a_whole_newer_checkpoint_of_another_process_stays(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, made(9), keep=1)
    checkpoint.save(tmp_path, made(6), keep=1)
    assert steps(tmp_path) == ["step-00000006", "step-00000009"]
    assert same(checkpoint.load_newest(tmp_path), made(9))


def test_a_checkpoint_may_be_copied_elsewhere(tmp_path: Path) -> None:
    folder = checkpoint.save(tmp_path / "a", made(5), keep=1)
    shutil.copytree(folder, tmp_path / "b" / "anything")
    assert same(checkpoint.load(tmp_path / "b" / "anything"), made(5))


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_only_the_files_that_are_asked_for_must_be_whole(tmp_path: Path, harm: str) -> None:
    folder = checkpoint.save(tmp_path, made(1), keep=1)
    moments = folder / "optimizer.safetensors"
    moments.unlink() if harm == "missing" else flip(moments, 100)
    for found in (
        checkpoint.load(folder, only=["weights"]),
        checkpoint.load_newest(tmp_path, only=["weights"]),
    ):
        assert found is not None
        assert list(found.tensors) == ["weights"]
        assert torch.equal(found.tensors["weights"]["a"], made(1).tensors["weights"]["a"])
        assert (found.step, found.info) == (1, made(1).info)
    with pytest.raises(UserError, match="whole"):
        checkpoint.load_newest(tmp_path)
    flip(folder / "weights.safetensors", 100)
    with pytest.raises(UserError, match=r"weights.safetensors is damaged"):
        checkpoint.load(folder, only=["weights"])


@pytest.mark.parametrize("name", ["../../x.safetensors", "/etc/passwd", "..", "a/b.safetensors"])
def test_a_state_may_not_name_files_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = checkpoint.save(tmp_path, made(1), keep=1)
    state = json.loads((folder / "state.json").read_text())
    state["files"][name] = "0" * 64
    data = json.dumps(state).encode()
    (folder / "state.json").write_bytes(data)
    (folder / "state.sha256").write_text(hashlib.sha256(data).hexdigest())
    for read in (checkpoint.load, checkpoint.verify):
        with pytest.raises(UserError, match="is not a file of tensors in this folder; use another"):
            read(folder)


def test_whoever_may_read_the_folder_may_read_the_weights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        folder = checkpoint.save(tmp_path, made(1), keep=1)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert set(modes.values()) == {0o640}, modes

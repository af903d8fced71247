import threading
from pathlib import Path

import pytest
import torch

from attmask.errors import UserError
from attmask.saving import BackgroundWriter, host_copies


def test_writing_goes_on_in_the_background_until_it_is_waited_for(tmp_path: Path) -> None:
    writer, may_write = BackgroundWriter(), threading.Event()

    def write() -> None:
        may_write.wait(10)
        (tmp_path / "file").touch()

    writer.start(write)
    writer.check()
    assert not (tmp_path / "file").exists()
    may_write.set()
    writer.wait()
    assert (tmp_path / "file").exists()
    writer.wait()
    writer.check()


def test_one_thing_is_written_after_the_other() -> None:
    writer, written = BackgroundWriter(), list[int]()
    for number in range(5):
        writer.start(lambda number=number: written.append(number))  # type: ignore[misc]
    writer.wait()
    assert written == [0, 1, 2, 3, 4]


def test_an_error_is_raised_at_the_next_look_and_only_once() -> None:
    def fail() -> None:
        raise UserError("the disk is full")

    for look in (BackgroundWriter.check, BackgroundWriter.wait):
        writer = BackgroundWriter()
        writer.start(fail)
        assert writer._pending is not None
        with pytest.raises(UserError):
            writer._pending.result(10)
        with pytest.raises(UserError, match="the disk is full"):
            look(writer)
        look(writer)


def test_copies_do_not_change_with_the_training() -> None:
    tensors = {"turned": torch.arange(6.0).view(2, 3).T, "number": torch.tensor(3)}
    copies = host_copies(tensors)
    for tensor in tensors.values():
        tensor += 1
    assert copies["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert copies["turned"].is_contiguous()
    assert copies["number"] == 3

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from attmask import distributed
from attmask.data.sources import open_images
from attmask.data.stores.mapped import save_npz
from attmask.embedding import parts as parts_module
from attmask.embedding.embedder import Embedder, ReadRows
from attmask.embedding.file import EmbeddingFile, parts_folder
from attmask.embedding.formats import find_format
from attmask.embedding.write import write_features
from attmask.errors import UserError
from tests.embedding.embedders import tiny_embedder
from tests.groups import in_group


def write(embedder: Embedder, out: Path) -> EmbeddingFile:
    return write_features(embedder, out, find_format(out, "float32"), "float32")


def stop_after(
    monkeypatch: pytest.MonkeyPatch, batches: int, *, by: int = signal.SIGINT
) -> list[range]:
    """A signal comes while a batch is read; gives the batches that are read."""
    read, seen = Embedder.read, list[range]()

    def interrupted(embedder: Embedder, rows: range) -> Iterator[ReadRows]:
        for batch in read(embedder, rows):
            seen.append(batch.rows)
            if len(seen) == batches:
                signal.raise_signal(by)
            yield batch

    monkeypatch.setattr(Embedder, "read", interrupted)
    return seen


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".safetensors"])
def test_a_stopped_call_goes_on_where_it_was_and_ends_with_the_same_files(
    scenes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ending: str,
) -> None:
    whole = write(tiny_embedder(scenes), tmp_path / "whole" / f"f{ending}")
    out = tmp_path / "stopped" / f"f{ending}"
    seen = stop_after(monkeypatch, 3)
    first = write(tiny_embedder(scenes), out)
    assert (first.finished, first.done, first.images, first.stopped_by) == (False, 24, 68, 2)
    assert not out.exists()
    with caplog.at_level("INFO"):
        second = write(tiny_embedder(scenes), out)
    assert "24 of 68 images were read before" in caplog.text
    assert second.finished
    assert second.shape == whole.shape == (68, 24)
    rows = [row for batch in seen for row in batch]
    assert rows == list(range(68)), "no image is read twice"
    assert files_in(out.parent) == files_in(tmp_path / "whole")
    assert not parts_folder(out).exists()


def test_a_finished_file_is_left_as_it_is(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "f.npy"
    assert not write(tiny_embedder(scenes), out).was_there
    stamp = out.stat().st_mtime_ns
    monkeypatch.setattr(Embedder, "read", None)  # reading would raise
    again = write(tiny_embedder(scenes), out)
    assert (again.was_there, again.shape) == (True, (68, 24))
    assert out.stat().st_mtime_ns == stamp


def test_files_of_other_settings_or_of_others_are_never_overwritten(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "f.npy"
    write(tiny_embedder(scenes), out)
    before = files_in(tmp_path)
    with pytest.raises(UserError, match=r"holds features of other settings \(.*crop\.size: 40, th"):
        write(tiny_embedder(scenes, size=40), out)
    with pytest.raises(UserError, match=r"other settings \(other network\); remove it or choose"):
        write(tiny_embedder(scenes, seed=1), out)
    assert files_in(tmp_path) == before
    (tmp_path / "f.npy.json").unlink()
    with pytest.raises(UserError, match=r"is there, but not the description that attmask embed"):
        write(tiny_embedder(scenes), out)
    out.unlink()
    stop_after(monkeypatch, 1)
    assert not write(tiny_embedder(scenes), out).finished
    with pytest.raises(UserError, match=r"f\.npy\.parts holds unfinished features of other sett"):
        write(tiny_embedder(scenes, size=40), out)


def test_a_kill_between_the_file_and_its_description_loses_nothing(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tiny_embedder(scenes), tmp_path / "whole/f.npy")
    out = tmp_path / "killed/f.npy"
    with monkeypatch.context() as killed:
        killed.setattr("attmask.embedding.write.EmbeddingFile", None)  # raises after all writes
        with pytest.raises(TypeError):
            write(tiny_embedder(scenes), out)
    (tmp_path / "killed/f.npy.json").unlink()
    assert out.exists()
    assert parts_folder(out).exists()
    assert write(tiny_embedder(scenes), out).finished
    assert files_in(out.parent) == files_in(tmp_path / "whole")


def test_unreadable_images_are_listed_with_their_reasons(scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    source = open_images(tmp_path / "images").train
    bad = tmp_path / "images/train" / source.name(2)
    bad.write_bytes(b"no picture")
    file = write(tiny_embedder(tmp_path / "images"), tmp_path / "f.npy")
    assert (file.shape, file.unreadable, file.images) == ((67, 24), 1, 68)
    lines = file.unreadable_list.read_text()
    assert lines == f"{bad}\tnot a picture in a known format\n"
    assert len((tmp_path / "f.npy.csv").read_text().splitlines()) == 68
    assert source.name(2) not in (tmp_path / "f.npy.csv").read_text()
    whole = np.concatenate([batch.features for batch in tiny_embedder(scenes).batches()])
    assert np.array_equal(np.load(tmp_path / "f.npy"), np.delete(whole, 2, axis=0))
    assert json.loads((tmp_path / "f.npy.json").read_text())["unreadable"] == 1


def test_an_image_that_could_not_be_read_before_the_stop_is_tried_again(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attmask.data.stores.files import Files

    good, out = Files.read, tmp_path / "f.npy"

    def with_a_bad_sector(files: Files, row: int) -> bytes:
        if row == 2 and "train" in str(files.root):
            raise OSError(5, "Input/output error")
        return good(files, row)

    with monkeypatch.context() as broken:
        broken.setattr(Files, "read", with_a_bad_sector)
        stop_after(broken, 3)
        assert not write(tiny_embedder(scenes), out).finished
    file = write(tiny_embedder(scenes), out)
    assert (file.shape, file.unreadable) == ((68, 24), 0)
    assert not file.unreadable_list.exists()


def test_a_damaged_part_is_read_again(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tiny_embedder(scenes), tmp_path / "whole/f.npy")
    out = tmp_path / "stopped/f.npy"
    seen = stop_after(monkeypatch, 2)
    assert not write(tiny_embedder(scenes), out).finished
    (part,) = parts_folder(out).glob("rows-*.npz")
    part.write_bytes(part.read_bytes()[:-200])
    assert write(tiny_embedder(scenes), out).finished
    assert seen[2] == range(8)
    assert files_in(out.parent) == files_in(tmp_path / "whole")


def test_nothing_readable_is_one_line_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"none of 1 image can be read \(.*a\.png: not a picture"):
        write(tiny_embedder(tmp_path / "images"), tmp_path / "f.npy")


def test_a_disk_without_room_is_known_before_an_image_is_read(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr("attmask.evaluation.features.store.shutil.disk_usage", lambda _: free)
    monkeypatch.setattr(Embedder, "read", None)
    with pytest.raises(UserError, match=r"f\.npy needs 0\.0 GB of free disk space until it is jo"):
        write(tiny_embedder(scenes), tmp_path / "f.npy")


def test_a_disk_that_fails_on_the_way_is_one_line_and_loses_nothing(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, arrays: dict[str, np.ndarray]) -> None:
        if "000000000016-" in file.name:
            raise OSError(28, "No space left on device")
        save_npz(file, arrays)

    monkeypatch.setattr(parts_module, "SECONDS_OF_A_PART", 0.0)
    with monkeypatch.context() as disk:
        disk.setattr(parts_module, "save_npz", full)
        with pytest.raises(UserError, match=r"No space left on device; make room, then start the"):
            write(tiny_embedder(scenes), tmp_path / "f.npy")
    seen = stop_after(monkeypatch, 0)
    assert write(tiny_embedder(scenes), tmp_path / "f.npy").finished
    assert seen[0] == range(16, 24), "what was read before is not read again"


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_write_the_files_of_one(
    scenes: Path, tmp_path: Path, processes: int
) -> None:
    write(tiny_embedder(scenes), tmp_path / "one/f.npy")

    def work(rank: int) -> tuple[EmbeddingFile, int]:
        read = 0
        embedder = tiny_embedder(scenes)
        for _ in embedder.share_of([range(48), range(48, 68)]):
            read += 1
        return write(embedder, tmp_path / "many/f.npy"), read

    found = in_group(processes, tmp_path / "group", work)
    assert {file.shape for file, _ in found} == {(68, 24)}
    assert all(read for _, read in found), "each has a share"
    assert files_in(tmp_path / "many") == files_in(tmp_path / "one")


def test_an_error_of_one_process_is_an_error_of_all(scenes: Path, tmp_path: Path) -> None:
    def work(rank: int) -> str:
        embedder = tiny_embedder(scenes)
        if distributed.rank() == 1:
            embedder.model.backbone.state_dict()["vit.norm.bias"][0] = float("nan")
        try:
            write(embedder, tmp_path / "f.npy")
        except UserError as fault:
            return str(fault)
        return ""

    first, second = in_group(2, tmp_path / "group", work)
    assert first == second
    assert first.startswith("process 1 of 2: the features of tiny ")

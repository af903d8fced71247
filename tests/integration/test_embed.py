"""`attmask embed` as a user runs it: killed, stopped, on several processes, with any images."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

import attmask
from attmask.cli import main
from attmask.embedding import parts
from attmask.embedding.embedder import Embedder, ReadRows
from attmask.embedding.parts import Parts
from tests.evaluation.models import tiny_backbone
from tests.processes import finish_group, start_group, wait_for
from tests.runs import Forked, environment

PAGE = Path(__file__).parents[2] / "docs" / "embedding.md"
FEW = ("--batch-size", "8", "--workers", "0")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("embed") / "weights.safetensors"
    save_file(tiny_backbone().vit.state_dict(), file)
    return f"{file}@heads=2"


@pytest.fixture(scope="module")
def whole(weights: str, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted file of one process."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["embed", weights, str(scenes), "--out", str(folder / "f.parquet"), *FEW]) == 0
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    try:
        status = main([str(word) for word in words])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is a part, and takes some time."""
    read = Embedder.read

    def slowly(embedder: Embedder, rows: range) -> Iterator[ReadRows]:
        for batch in read(embedder, rows):
            time.sleep(0.1)
            yield batch

    monkeypatch.setattr(parts, "SECONDS_OF_A_PART", 0.0)
    monkeypatch.setattr(Embedder, "read", slowly)


@pytest.mark.usefixtures("slow")
def test_a_command_that_is_killed_again_and_again_writes_the_file_of_one_that_was_not(
    weights: str, scenes: Path, whole: Path, tmp_path: Path
) -> None:
    out, done = tmp_path / "killed/f.parquet", Parts(tmp_path / "killed/f.parquet.parts").done
    words = ("embed", weights, scenes, "--out", out, *FEW)
    counts = []
    for kill in range(3):
        began, process = len(done()), Forked(tmp_path / f"{kill}.txt", *words)
        wait_for(lambda began=began: len(done()) > began, "a part is written")  # type: ignore[misc]
        time.sleep(0.07 * kill)  # another moment each time
        os.kill(process.pid, signal.SIGKILL)
        status, _ = process.finish()
        assert status == -signal.SIGKILL
        assert not out.exists()
        counts.append(len(done()))
    assert counts[0] < counts[1] < counts[2], "each goes on where the one before was"
    status, _ = Forked(tmp_path / "last.txt", *words).finish()
    assert status == 0
    assert files_in(out.parent) == files_in(whole)


@pytest.mark.usefixtures("slow")
def test_ctrl_c_says_how_to_go_on_and_a_second_command_is_kept_out(
    weights: str, scenes: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stopped/f.parquet"
    words = ("embed", weights, scenes, "--out", out, *FEW)
    process = Forked(tmp_path / "said.txt", *words)
    wait_for(lambda: bool(Parts(tmp_path / "stopped/f.parquet.parts").done()), "a part is written")
    status, _, err = said(capsys, *words)
    assert status == 1
    assert "f.parquet.parts is in use: process" in err
    assert err.count("\n") == 1
    os.kill(process.pid, signal.SIGINT)
    stopped, text = process.finish()
    assert stopped == 130
    assert "of 68 images; run the same command to go on" in text
    status, shown, _ = said(capsys, *words)
    assert status == 0
    assert "f.parquet has the features of 68 images: 68 x 24, float32\n" in shown
    assert files_in(out.parent) == files_in(whole)
    status, shown, _ = said(capsys, *words)
    assert (status, "was written before and has" in shown) == (0, True)


@pytest.mark.slow
def test_two_processes_write_the_file_of_one(
    weights: str, scenes: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "two/f.parquet"
    words: list[str | Path] = ["-m", "attmask", "embed", weights, scenes, "--out", out, *FEW]
    (first, text), (second, silent) = finish_group(start_group(words, 2), 120)
    assert (first, second) == (0, 0), text + silent
    assert text.count("has the features of 68 images") == 1
    assert silent == ""
    assert files_in(out.parent) == files_in(whole)
    (again, text), (_, silent) = finish_group(start_group(words, 2), 120)
    assert (again, "was written before" in text, silent) == (0, True, ""), text
    assert not (tmp_path / "two/f.parquet.parts").exists(), "not even the index that two share"


@pytest.mark.slow
def test_the_option_processes_launches_them(
    weights: str, scenes: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "two/f.parquet"
    words = ["embed", weights, scenes, "--out", out, "--processes", "2", *FEW]
    command = [sys.executable, "-m", "attmask", *map(str, words)]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert files_in(out.parent) == files_in(whole)


def test_the_function_streams_what_the_command_writes(
    weights: str, scenes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "f.npy"
    file = attmask.write_embeddings(
        weights, scenes, out=out, tokens="cls+gap", image_size=40, batch_size=8, workers=0
    )
    assert file.shape == (68, 48)
    batches = attmask.embed(
        weights, scenes, tokens="cls+gap", image_size=40, batch_size=8, workers=0
    )
    first = next(batches)
    assert first.features.shape == (8, 48)
    features = np.concatenate([first.features, *(batch.features for batch in batches)])
    assert np.array_equal(np.load(out), features)


def test_the_example_of_the_page_runs_as_it_is_written(
    weights: str, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "images").symlink_to(scenes)
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(example.replace('"runs/mine"', repr(weights)), made)
    assert made["batch"].features.shape[1] == 48
    assert made["batch"].classes[made["batch"].labels[0]] in made["batch"].names[0]
    assert made["features"].shape == made["tensor"].shape == (68, 24)
    assert np.array_equal(made["features"], made["tensor"].numpy())
    assert made["table"]["name"].to_pylist()[0].startswith("train/")
    assert len(made["labels"]) == 68


def test_the_same_images_in_any_store_have_the_same_features(weights: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    (tmp_path / "images").mkdir()
    for index, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "images" / f"{index}.png")
    lines = "".join(f"images/{index}.png,{index % 2}\n" for index in range(10))
    (tmp_path / "list.csv").write_text(f"path,label\n{lines}")
    found = {}
    for images in ("pixels.npy", "images", "list.csv"):
        batches = list(attmask.embed(weights, tmp_path / images, workers=0))
        found[images] = np.concatenate([batch.features for batch in batches])
    assert np.array_equal(found["pixels.npy"], found["images"])
    assert np.array_equal(found["list.csv"], found["images"])
    assert batches[0].labels is not None
    assert batches[0].labels.tolist() == [0, 1] * 5
    assert batches[0].names[3] == "images/3.png"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--out", "{tmp}/f.csv"), "f.csv has an unknown ending; use .npy, .parquet, .safetensors"),
        (("--out", "{tmp}"), "is a folder; give a file, such as"),
        (("--out", "{tmp}/f.npy", "--dtype", "bfloat16"), ".npy cannot hold bfloat16; use float32"),
        (("--out", "{tmp}/f.npy", "--size", "20"), "image size 20 is not a multiple of patch size"),
        (("--out", "{tmp}/f.npy", "--blocks", "3"), "blocks=3 is more than the network has, 2"),
        (("--out", "{tmp}/f.npy", "--tokens", "patches", "--blocks", "3"), "layer -3 does not ex"),
        (("--out", "{tmp}/f.npy", "--tokens", "mean"), "--tokens mean: use cls, gap, cls+gap or p"),
        (("--out", "{tmp}/f.npy", "--split", "test"), "there is no split test in"),
        (("--out", "{images}/f.npy"), "is among the images of"),
        (("--out", "{tmp}/f.npy", "image_size=64"), "unknown argument image_size=64"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    weights: str,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    line: str,
) -> None:
    given = [word.format(tmp=tmp_path, images=scenes) for word in words]
    status, out, err = said(capsys, "embed", weights, scenes, *given)
    assert (status, out) == (1, "")
    assert err.startswith("attmask: ")
    assert err.count("\n") == 1
    assert line in err
    assert list(tmp_path.iterdir()) == []


def test_missing_or_empty_images_and_checkpoints_are_one_line(
    weights: str, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    out = ("--out", tmp_path / "f.npy")
    for checkpoint, images, says in (
        (weights, tmp_path / "gone", "there is no"),
        (weights, tmp_path / "empty", "no images"),
        (tmp_path / "no-run", scenes, "is not a checkpoint; give a run"),
    ):
        status, _, err = said(capsys, "embed", checkpoint, images, *out)
        assert status == 1
        assert err.count("\n") == 1
        assert says in err
    assert [file.name for file in tmp_path.iterdir()] == ["empty"]

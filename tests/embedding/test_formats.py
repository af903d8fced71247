"""Each format is read back by its own library."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from attmask.embedding.embedder import Tokens
from attmask.embedding.file import EmbeddingFile
from attmask.embedding.formats import FORMATS, find_format
from attmask.embedding.joined import DType
from attmask.embedding.write import write_features
from attmask.errors import UserError
from tests.embedding.embedders import tiny_embedder


def written(images: Path, out: Path, dtype: DType = "float32", **read: Tokens) -> EmbeddingFile:
    embedder = tiny_embedder(images, **read)  # type: ignore[arg-type]
    return write_features(embedder, out, find_format(out, dtype), dtype)


def expected(images: Path, **read: Tokens) -> tuple[torch.Tensor, list[list[str]]]:
    """The features, and name, split, label and class of each image."""
    features, lines = [], []
    for batch in tiny_embedder(images, **read).batches():  # type: ignore[arg-type]
        features.append(torch.from_numpy(batch.features))
        labels = [] if batch.labels is None else batch.labels.tolist()
        about = [[str(label), batch.classes[label]] for label in labels] or [[]] * len(batch.names)
        pairs = zip(batch.names, about, strict=True)
        lines += [[name, batch.split, *more] for name, more in pairs]
    return torch.cat(features), lines


def names_in(file: Path) -> list[list[str]]:
    with file.open(newline="") as opened:
        return list(csv.reader(opened))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_numpy_reads_an_array_with_names_and_labels_beside(
    scenes: Path, tmp_path: Path, dtype: DType
) -> None:
    out = tmp_path / "f.npy"
    file = written(scenes, out, dtype)
    features, lines = expected(scenes)
    found = np.load(out, mmap_mode="r")
    assert found.dtype == dtype
    assert found.shape == file.shape == (68, 24)
    assert np.array_equal(found, features.numpy().astype(dtype))
    assert names_in(tmp_path / "f.npy.csv") == [["name", "split", "label", "class"], *lines]
    about = json.loads((tmp_path / "f.npy.json").read_text())
    assert (about["shape"], about["dtype"], about["unreadable"]) == ([68, 24], dtype, 0)
    assert about["classes"][int(lines[0][2])] == lines[0][3]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_safetensors_reads_features_and_labels(scenes: Path, tmp_path: Path, dtype: DType) -> None:
    out = tmp_path / "f.safetensors"
    written(scenes, out, dtype)
    features, lines = expected(scenes)
    with safe_open(out, framework="pt") as opened:
        assert set(opened.keys()) == {"features", "labels"}
        found, labels = opened.get_tensor("features"), opened.get_tensor("labels")
        about = json.loads(opened.metadata()["attmask"])
    assert found.dtype == getattr(torch, dtype)
    assert torch.equal(found, features.to(found.dtype))
    assert labels.tolist() == [int(line[2]) for line in lines]
    assert about == json.loads((tmp_path / "f.safetensors.json").read_text())
    assert names_in(tmp_path / "f.safetensors.csv")[1:] == lines


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pyarrow_reads_a_table_with_all_columns(scenes: Path, tmp_path: Path, dtype: DType) -> None:
    out = tmp_path / "f.parquet"
    written(scenes, out, dtype)
    features, lines = expected(scenes)
    table = pq.read_table(out)
    assert table.column_names == ["name", "split", "label", "class", "feature"]
    found = table["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    assert np.array_equal(found.reshape(68, 24), features.numpy().astype(dtype))
    rows = zip(*(table[name].to_pylist() for name in table.column_names[:4]), strict=True)
    assert [[str(cell) for cell in row] for row in rows] == lines
    assert json.loads(table.schema.metadata[b"attmask"])["shape"] == [68, 24]


@pytest.mark.parametrize("ending", list(FORMATS))
def test_patches_and_images_without_labels_are_written_too(tmp_path: Path, ending: str) -> None:
    (tmp_path / "images").mkdir()
    for index in range(11):
        pixels = np.full((32, 32, 3), 20 * index, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{index:02},{index}.png")
    out = tmp_path / f"f{ending}"
    file = written(tmp_path / "images", out, tokens="patches")
    features, lines = expected(tmp_path / "images", tokens="patches")
    assert file.shape == (11, 4, 4, 24)
    if ending == ".parquet":
        table = pq.read_table(out)
        assert table.column_names == ["name", "split", "feature"]
        found = table["feature"].combine_chunks().flatten().to_numpy().reshape(11, 4, 4, 24)
        assert table["name"].to_pylist() == [line[0] for line in lines]
    else:
        assert names_in(tmp_path / f"f{ending}.csv") == [["name", "split"], *lines]
        if ending == ".npy":
            found = np.load(out)
        else:
            with safe_open(out, framework="np") as opened:
                assert list(opened.keys()) == ["features"]
                found = opened.get_tensor("features")
    assert np.array_equal(found, features.numpy())


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_a_name_that_is_not_unicode_is_written_with_escapes(tmp_path: Path, ending: str) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "images/plain.png")
    (tmp_path / "images/plain.png").rename(tmp_path / "images" / "a\udcff.png")
    out = tmp_path / f"f{ending}"
    written(tmp_path / "images", out)
    if ending == ".parquet":
        name = pq.read_table(out)["name"][0].as_py()
    else:
        name = names_in(tmp_path / "f.npy.csv")[1][0]
    assert name == "a\\udcff.png"


def test_a_file_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for out, dtype, says in (
        ("f.csv", "float32", r"--out f.csv has an unknown ending; use .npy, .parquet, .safetensor"),
        ("f", "float32", "has an unknown ending"),
        ("f.npy", "bfloat16", ".npy cannot hold bfloat16; use float32 or float16, or .safetensors"),
        ("f.parquet", "bfloat16", ".parquet cannot hold bfloat16"),
    ):
        with pytest.raises(UserError, match=says):
            find_format(Path(out), dtype)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"needs pyarrow .* pip install 'attmask\[parquet\]'"):
        find_format(Path("f.parquet"), "float32")

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask import distributed
from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from attmask.embedding.embedder import Tokens
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.readout import CLS, Embedding
from tests.embedding.embedders import tiny_embedder
from tests.evaluation.models import extractor_in, tiny_model


@pytest.mark.parametrize(
    ("tokens", "blocks", "readout"),
    [
        ("cls", 1, CLS),
        ("cls", 2, Embedding(blocks=2)),
        ("gap", 1, Embedding(token="gap")),
        ("cls+gap", 1, Embedding(token="cls+gap")),
    ],
)
def test_features_are_those_that_k_nn_reads_to_the_bit(
    scenes: Path, tmp_path: Path, tokens: Tokens, blocks: int, readout: Embedding
) -> None:
    embedder = tiny_embedder(scenes, tokens=tokens, blocks=blocks)
    found = list(embedder.batches())
    for split, source in open_images(scenes).splits.items():
        cached = extractor_in(tmp_path, batch_size=8).features(
            tiny_model(), source, CenterCrop(32), readout
        )
        mine = [batch for batch in found if batch.split == split]
        features = np.concatenate([batch.features for batch in mine])
        assert np.array_equal(features, cached.vectors.numpy())
        assert features.shape[1:] == embedder.shape
        assert cached.labels is not None
        labels = [batch.labels for batch in mine if batch.labels is not None]
        assert np.concatenate(labels).tolist() == cached.labels.tolist()
        names = [f"{split}/{source.name(index)}" for index in range(len(source))]
        assert [name for batch in mine for name in batch.names] == names
        assert mine[0].classes == source.classes


def test_patches_are_a_grid_with_the_channels_last(scenes: Path) -> None:
    embedder = tiny_embedder(scenes, tokens="patches", blocks=2, size=40)
    batch = next(embedder.batches())
    assert batch.features.shape == (8, 5, 5, 48) == (8, *embedder.shape)
    model = tiny_model()
    source = open_images(scenes).train
    (crops,) = (
        pixels.pixels
        for pixels in extractor_in(scenes, batch_size=8).stream(
            model, source, CenterCrop(40), indices=range(8)
        )
    )
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (model.data.mean, model.data.std))
    tokens = model.backbone((crops.float() / 255 - mean) / std)
    last = tokens.patches.unflatten(1, (5, 5)).numpy()
    np.testing.assert_allclose(batch.features[..., 24:], last, atol=1e-5)


def test_unreadable_images_are_left_out_with_their_names_and_labels(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    source = open_images(tmp_path / "images").train
    for index in (3, *range(8, 16)):  # the second batch is gone as a whole
        (tmp_path / "images/train" / source.name(index)).write_bytes(b"no picture")
    found = list(tiny_embedder(tmp_path / "images", split="train").batches())
    whole = list(tiny_embedder(scenes, split="train").batches())
    kept = [index for index in range(48) if index not in (3, *range(8, 16))]
    assert [name for b in found for name in b.names] == [
        f"train/{source.name(index)}" for index in kept
    ]
    features = np.concatenate([batch.features for batch in whole])[kept]
    assert np.array_equal(np.concatenate([batch.features for batch in found]), features)
    assert [len(batch.labels) for batch in found if batch.labels is not None] == [7, 8, 8, 8, 8]
    assert "9 of 48 images" in caplog.text
    assert "left out of the embedding" in caplog.text


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"1 of 1 images of .* cannot be read, the first is .*a"):
        list(tiny_embedder(tmp_path).batches())


def test_features_that_are_not_finite_are_refused(scenes: Path) -> None:
    embedder = tiny_embedder(scenes)
    embedder.model.backbone.state_dict()["vit.norm.bias"][0] = float("nan")
    with pytest.raises(UserError, match=r"features of tiny .* are not finite; .* earlier"):
        next(embedder.batches())


def test_images_are_read_one_batch_at_a_time(scenes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, rows = Files.read, list[int]()

    def counted(files: Files, row: int) -> bytes:
        rows.append(row)
        return read(files, row)

    monkeypatch.setattr(Files, "read", counted)
    batches = tiny_embedder(scenes).batches()
    assert rows == []
    for number in (1, 2, 3):
        next(batches)
        assert len(rows) == 8 * number


@pytest.mark.parametrize("processes", [1, 2, 3, 20])
def test_shares_are_whole_batches_and_all_of_them(
    scenes: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    embedder = tiny_embedder(scenes)
    wanted = [range(48), range(48, 51), range(60, 68)]  # of two splits, with a gap
    monkeypatch.setattr(distributed, "world_size", lambda: processes)
    batches = []
    for rank in range(processes):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        for part in embedder.share_of(wanted):
            batches += [part[i : i + 8] for i in range(0, len(part), 8)]
    assert batches == [*(range(i, i + 8) for i in range(0, 48, 8)), range(48, 51), range(60, 68)]

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features, collect, forward
from attmask.evaluation.features.images import CachedCrops
from attmask.evaluation.features.readout import CLS, AttentionMaps, Embedding, PatchMaps
from tests.evaluation.models import extractor_in, tiny_model

ROOT = Path(__file__).parents[3]

# What torchrun starts twice: both read their share and see all features.
WORKER = """
import sys, torch
from pathlib import Path
from attmask import distributed
from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from attmask.evaluation.features.crops import CenterCrop
from tests.evaluation.models import extractor_in, tiny_model

images, out = map(Path, sys.argv[1:])
with distributed.processes(torch.device("cpu")):
    assert distributed.world_size() == 2
    found = extractor_in(out, batch_size=5).features(
        tiny_model(), open_images(images).train, CenterCrop(32))
    torch.save((found.vectors.clone(), found.labels), out / f"{distributed.rank()}.pt")
"""


def test_features_are_those_of_a_plain_pass(scenes: Path, tmp_path: Path) -> None:
    source, model = open_images(scenes).train, tiny_model()
    crops = CachedCrops(source, CenterCrop(32), model.data)
    values = collect(forward(model.backbone, crops.batches(64), CLS, model.data))
    plain = Features(values, crops.labels)
    found = extractor_in(tmp_path, batch_size=7).features(model, source, CenterCrop(32))
    torch.testing.assert_close(found.vectors, plain.vectors, atol=1e-5, rtol=1e-5)
    assert found.labels is not None
    assert plain.labels is not None
    assert torch.equal(found.labels, plain.labels)


def test_features_are_extracted_once(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, model, extractor = open_images(scenes).train, tiny_model(), extractor_in(tmp_path)
    first = extractor.features(model, source, CenterCrop(32))
    monkeypatch.setattr(FeatureExtractor, "_extract", None)  # a second extraction would raise
    again = extractor_in(tmp_path).features(tiny_model(), open_images(scenes).train, CenterCrop(32))
    assert torch.equal(again.vectors, first.vectors)


def test_a_changed_picture_network_or_readout_is_extracted_anew(
    scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    source, extractor = open_images(tmp_path / "images").train, extractor_in(tmp_path)
    first = extractor.features(tiny_model(), source, CenterCrop(32)).vectors.clone()
    Image.new("RGB", (32, 32), (250, 10, 10)).save(tmp_path / "images/train" / source.name(3))
    extractor = extractor_in(tmp_path)  # as another command would
    changed = extractor.features(tiny_model(), source, CenterCrop(32)).vectors
    assert [i for i in range(len(source)) if not torch.equal(changed[i], first[i])] == [3]
    assert not torch.equal(
        extractor.features(tiny_model(1), source, CenterCrop(32)).vectors, changed
    )
    gap = extractor.features(tiny_model(), source, CenterCrop(32), Embedding(token="gap")).vectors
    assert not torch.equal(gap, changed)


def test_an_unreadable_picture_is_left_out_and_said(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    source = open_images(tmp_path / "images").train
    whole = extractor_in(tmp_path / "a").features(tiny_model(), source, CenterCrop(32))
    (tmp_path / "images/train" / source.name(2)).write_bytes(b"no picture")
    found = extractor_in(tmp_path / "b").features(tiny_model(), source, CenterCrop(32))
    kept = [i for i in range(len(source)) if i != 2]
    assert torch.equal(found.vectors, whole.vectors[kept])
    assert found.labels is not None
    assert whole.labels is not None
    assert torch.equal(found.labels, whole.labels[kept])
    assert found.rows is not None
    assert found.rows.tolist() == kept
    assert "1 of 48 images" in caplog.text
    assert source.name(2) in caplog.text


def test_a_picture_that_can_be_read_again_is_read_again(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_images(scenes).train
    with monkeypatch.context() as broken:
        broken.setattr(Files, "read", _with_a_bad_sector(2))
        found = extractor_in(tmp_path).features(tiny_model(), source, CenterCrop(32))
        assert len(found.vectors) == 47
        again = extractor_in(tmp_path).features(tiny_model(), source, CenterCrop(32))
        assert len(again.vectors) == 47
    whole = extractor_in(tmp_path).features(tiny_model(), source, CenterCrop(32))
    assert (len(whole.vectors), whole.rows) == (48, None)


def _with_a_bad_sector(bad: int) -> Callable[[Files, int], bytes]:
    good = Files.read

    def read(files: Files, row: int) -> bytes:
        if row == bad:
            raise OSError(5, "Input/output error")
        return good(files, row)

    return read


def test_features_that_are_not_finite_are_refused(scenes: Path, tmp_path: Path) -> None:
    model = tiny_model()
    model.backbone.state_dict()["vit.norm.bias"][0] = float("nan")
    with pytest.raises(UserError, match=r"features of tiny .* are not finite; .* earlier"):
        extractor_in(tmp_path).features(model, open_images(scenes).train, CenterCrop(32))


def test_a_source_without_images_is_refused(scenes: Path, tmp_path: Path) -> None:
    nothing = open_images(scenes).train.subset([])
    with pytest.raises(UserError, match="has no images to evaluate on"):
        extractor_in(tmp_path).features(tiny_model(), nothing, CenterCrop(32))


def test_two_processes_read_each_image_once_and_see_what_one_sees(
    scenes: Path, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    shutil.copytree(scenes, images)
    odd = open_images(images).train
    (images / "train" / odd.name(0)).unlink()  # 47 images, which two processes cannot halve
    ports = 29_000 + os.getpid() % 2_000
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(images), str(tmp_path)],
            env={
                **os.environ,
                **shared,
                "RANK": str(rank),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                "OMP_NUM_THREADS": "1",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(said)
    alone = extractor_in(tmp_path / "alone", batch_size=5).features(
        tiny_model(), open_images(images).train, CenterCrop(32)
    )
    for rank in range(2):
        vectors, labels = torch.load(tmp_path / f"{rank}.pt")
        assert len(vectors) == 47
        np.testing.assert_allclose(vectors, alone.vectors, atol=1e-6)
        assert alone.labels is not None
        assert torch.equal(labels, alone.labels)


def test_a_part_of_a_readout_that_is_kept_is_not_computed_again(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, model, extractor = open_images(scenes).train, tiny_model(), extractor_in(tmp_path)
    crop = CenterCrop(32)
    two = extractor.features(model, source, crop, Embedding(blocks=2)).vectors
    maps = extractor.features(model, source, crop, PatchMaps(layers=(1, 2))).values
    monkeypatch.setattr(FeatureExtractor, "_extract", None)  # an extraction would raise
    last = extractor_in(tmp_path).features(tiny_model(), source, crop)
    assert torch.equal(last.vectors, two[:, 24:])
    assert torch.equal(extractor.features(model, source, crop, PatchMaps()).values, maps[:, 1:])
    with pytest.raises(TypeError):
        extractor.features(model, source, CenterCrop(40))
    with pytest.raises(TypeError):
        extractor.features(tiny_model(1), source, crop)
    monkeypatch.undo()
    plain = extractor_in(tmp_path / "other").features(model, source, crop).vectors
    torch.testing.assert_close(last.vectors, plain, atol=1e-5, rtol=1e-5)


def test_maps_are_kept_in_their_shape_without_images_that_cannot_be_read(
    scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    source = open_images(tmp_path / "images").train
    crop, readout = CenterCrop(32), AttentionMaps(heads="each")
    streamed = torch.cat(
        [b.values for b in extractor_in(tmp_path).stream(tiny_model(), source, crop, readout)]
    )
    (tmp_path / "images/train" / source.name(2)).write_bytes(b"no picture")
    found = extractor_in(tmp_path).features(tiny_model(), source, crop, readout)
    assert found.values.shape == (47, *readout.shape(tiny_model().backbone, (32, 32)))
    torch.testing.assert_close(found.values, streamed[torch.arange(48) != 2])


def test_a_stream_reads_the_chosen_images_in_the_order_asked_for(
    scenes: Path, tmp_path: Path
) -> None:
    source, model = open_images(scenes).train, tiny_model()
    extractor = extractor_in(tmp_path, batch_size=4)
    whole = extractor.features(model, source, CenterCrop(32)).vectors
    chosen = [7, 3, 40, 3, 0, 21]
    batches = [*extractor.stream(model, source, CenterCrop(32), indices=chosen)]
    assert [len(batch.values) for batch in batches] == [4, 2]
    streamed = torch.cat([batch.values for batch in batches])
    torch.testing.assert_close(streamed, whole[chosen], atol=1e-5, rtol=1e-5)
    crops = CachedCrops(source, CenterCrop(32), model.data).pixels
    assert torch.equal(torch.cat([batch.pixels for batch in batches]), crops[chosen])

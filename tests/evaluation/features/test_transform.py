from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import attmask
from attmask.api import pretrain
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.loading import load_model
from attmask.models.backbone import Backbone
from tests.evaluation.models import extractor_in
from tests.runs import SHORT


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("transform") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
    return out


def shown_by_evaluate(
    run: Path, source: Source, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """The very tensors that an evaluation gives to the network."""
    seen: list[Tensor] = []
    summary = Backbone.summary

    def watched(backbone: Backbone, images: Tensor) -> object:
        seen.append(images.clone())
        return summary(backbone, images)

    monkeypatch.setattr(Backbone, "summary", watched)
    extractor.features(load_model(run), source, CenterCrop(32))
    monkeypatch.undo()
    return torch.cat(seen)


def write_pictures(folder: Path) -> None:
    """Files that are not simply RGB: turned, transparent, grey, in a palette, 16 bits deep."""
    rng = np.random.default_rng(0)
    colours = Image.fromarray(rng.integers(0, 256, (50, 70, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    colours.save(folder / "turned.jpg", exif=exif, quality=95)
    colours.save(folder / "turned.png", exif=exif)
    colours.convert("L").save(folder / "grey.png")
    colours.convert("P").save(folder / "palette.png")
    clear = colours.convert("RGBA")
    clear.putalpha(Image.fromarray(rng.integers(0, 256, (50, 70), dtype=np.uint8)))
    clear.save(folder / "clear.png")
    colours.save(folder / "plain.webp", lossless=True)
    deep = rng.integers(0, 2**16, (40, 60), dtype=np.uint16)
    Image.fromarray(deep).save(folder / "deep.png")


def test_a_picture_becomes_to_the_bit_what_evaluate_shows_the_network(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    write_pictures(tmp_path / "images")
    source = open_images(tmp_path / "images").train
    expected = shown_by_evaluate(run, source, extractor_in(tmp_path), monkeypatch)
    transform = attmask.transform(run)
    assert len(expected) == 7
    for index, shown in enumerate(expected):
        file = Path(source.place(index))
        assert torch.equal(transform(file), shown), file
        assert torch.equal(transform(str(file)), shown), file
        assert torch.equal(transform(Image.open(file)), shown), file
        pixels = decode(source, index, transform.data)
        assert torch.equal(transform(pixels), shown), file


def test_a_picture_may_have_any_size_that_patches_fill(run: Path, scenes: Path) -> None:
    picture = next((scenes / "train").rglob("*.png"))
    assert attmask.transform(run)(picture).shape == (3, 32, 32)
    assert attmask.transform(f"{run}@untrained", image_size=48)(picture).shape == (3, 48, 48)
    with pytest.raises(UserError, match="is not a multiple of patch size"):
        attmask.transform(run, image_size=33)


def test_a_picture_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    transform = Transform(32, DataConfig())
    with pytest.raises(UserError, match=r"cannot read .*nowhere.png: No such file"):
        transform(tmp_path / "nowhere.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"cannot read .*bad.png: not a picture"):
        transform(tmp_path / "bad.png")
    with pytest.raises(UserError, match=r"cannot read the image: an array of shape"):
        transform(np.zeros((2, 3, 4, 5), dtype=np.uint8))


def test_channels_are_those_of_the_network(tmp_path: Path) -> None:
    grey = Transform(32, DataConfig(channels=1))
    assert grey(Image.new("RGB", (40, 50), "red")).shape == (1, 32, 32)

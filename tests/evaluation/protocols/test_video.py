from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.datasets.sequences import Sequences, Videos
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.video import VideoSegmentation
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.task import Measures
from tests.evaluation.models import extractor_in, tiny_model
from tests.evaluation.videos import write_davis
from tests.groups import in_group

SMALL = VideoSegmentation(short_side=48, multiple=16, radius=2, context_frames=2)


@pytest.fixture(scope="module")
def davis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_davis(tmp_path_factory.mktemp("davis"), frames=7)


@pytest.fixture(scope="module")
def data(davis: Path) -> Videos:
    return Sequences().open(davis)


def plain_masks(model: FrozenModel, folder: Path, first: Path) -> Iterator[np.ndarray]:
    """The published procedure as it reads: one affinity matrix of all patches per frame, masked.

    Settings as in SMALL.
    """
    patch, radius, top_k, last = 8, 2, 5, 2
    files = sorted(folder.glob("*.jpg"))

    def features(file: Path) -> Tensor:
        bgr = cv2.imread(str(file))
        assert bgr is not None
        height, width = 48, 48 * bgr.shape[1] // bgr.shape[0] // 16 * 16
        rgb = cv2.resize(bgr, (width, height))[:, :, ::-1].astype(np.float32) / 255
        mean, std = np.array([[0.485, 0.456, 0.406], [0.228, 0.224, 0.225]], dtype=np.float32)
        rgb = (rgb - mean) / std
        image = torch.from_numpy(rgb.transpose(2, 0, 1).copy())[None]
        with torch.no_grad():
            tokens = model.backbone.vit.norm(model.backbone.last_outputs(image, 1))[0, 0]
        return functional.normalize(tokens[model.backbone.prefix :], dim=1)

    seg = Image.open(first)
    rows, cols = 6, 10
    small = torch.from_numpy(np.array(seg.resize((cols, rows), Image.Resampling.NEAREST)))
    one_hot = functional.one_hot(small.long().flatten(), 3).float()
    places = [(i // cols, i % cols) for i in range(rows * cols)]
    near = torch.tensor(
        [[abs(a - c) <= radius and abs(b - d) <= radius for c, d in places] for a, b in places]
    ).float()
    queue: list[tuple[Tensor, Tensor]] = []
    start = (features(files[0]), one_hot)
    for file in files[1:]:
        now = features(file)
        context = [start, *queue]
        affinity = torch.cat([(torch.exp(now @ keys.T / 0.1) * near).T for keys, _ in context])
        least = affinity.topk(top_k, dim=0).values.amin(dim=0)
        affinity[affinity < least] = 0
        affinity /= affinity.sum(dim=0, keepdim=True)
        labels = affinity.T @ torch.cat([known for _, known in context])
        queue = [*queue, (now, labels)][-last:]
        maps = functional.interpolate(
            labels.T.reshape(1, 3, rows, cols), scale_factor=patch, mode="bilinear"
        )[0]
        for each in maps:
            if each.max() > 0:
                each -= each.min().clone()
                each /= each.max().clone()
        mask = Image.fromarray(maps.argmax(dim=0).to(torch.uint8).numpy())
        yield np.array(mask.resize(seg.size, Image.Resampling.NEAREST))


@pytest.fixture(scope="module")
def measured(
    model: FrozenModel, data: Videos, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Measures, Path]:
    folder = tmp_path_factory.mktemp("measured")
    protocol = SMALL.model_copy(update={"masks": folder / "masks"})
    protocol.check(model, data)
    return protocol.measure(model, data, extractor_in(folder)), folder / "masks" / "tiny"


def test_masks_equal_those_of_a_plain_version_of_the_published_procedure(
    measured: tuple[Measures, Path], model: FrozenModel, davis: Path
) -> None:
    for name in ("ball", "car"):
        first = davis / "Annotations" / "480p" / name / "00000.png"
        expected = list(plain_masks(model, davis / "JPEGImages" / "480p" / name, first))
        files = sorted((measured[1] / name).glob("*.png"))
        assert (np.array(Image.open(files[0])) == np.array(Image.open(first))).all()
        wrong = [
            int((np.array(Image.open(file)) != mask).sum())
            for file, mask in zip(files[1:], expected, strict=True)
        ]
        assert sum(wrong) <= 3, wrong  # pixels on a border may be rounded to the other side
        assert {value for mask in expected for value in np.unique(mask)} == {0, 1, 2}


def test_the_measures_are_those_of_vos_benchmark_on_the_written_masks(
    measured: tuple[Measures, Path], davis: Path
) -> None:
    video = pytest.importorskip("vos_benchmark.benchmark").VideoEvaluator
    found, masks = measured
    theirs = [
        (name, number, j[number], f[number])
        for name in ("ball", "car")
        for _, j, f in [video(str(davis / "Annotations" / "480p"), str(masks))(name)]
        for number in sorted(j)
    ]
    ours = [
        (each["sequence"], each["object"], each["j_mean"], each["f_mean"])
        for each in found.details["objects"]
    ]
    assert [each[:2] for each in ours] == [each[:2] for each in theirs]
    assert np.array([each[2:] for each in ours]) == pytest.approx(
        np.array([each[2:] for each in theirs]), abs=0.0051
    )


def test_j_and_f_come_first_and_the_card_has_objects_and_worst_frames(
    measured: tuple[Measures, Path],
) -> None:
    found, _ = measured
    assert found.metrics[0].key == "video.j_and_f"
    both = (found.values["video.j_mean"] + found.values["video.f_mean"]) / 2
    assert found.values["video.j_and_f"] == pytest.approx(both)
    assert len(found.details["objects"]) == 4
    assert len(found.details["worst frames"]) == 10
    assert found.notes[0] == ("frames of 80 x 48 pixels are shown at 80 x 48, 10 x 6 patches")
    assert found.notes[1] == (
        "frames are normalised by mean 0.485, 0.456, 0.406 and std 0.228, 0.224, 0.225"
    )
    assert found.notes[2].startswith("worst frames: ")
    (picture,) = found.files
    with Image.open(picture) as opened:
        assert getattr(opened, "n_frames", 1) == 7


def test_dinos_std_replaces_imagenets_and_no_other(
    model: FrozenModel, data: Videos, extractor: FeatureExtractor
) -> None:
    own = DataConfig(mean=(0.5, 0.5, 0.5), std=(0.3, 0.3, 0.3))
    used = [
        protocol.measure(each, data, extractor).details["std"]
        for protocol, each in (
            (SMALL, model),
            (SMALL, replace(model, data=own)),
            (SMALL.model_copy(update={"std": (0.1, 0.2, 0.3)}), model),
        )
    ]
    assert used == [[0.228, 0.224, 0.225], [0.3, 0.3, 0.3], [0.1, 0.2, 0.3]]


def test_another_temperature_gives_other_masks(
    model: FrozenModel, data: Videos, extractor: FeatureExtractor, measured: tuple[Measures, Path]
) -> None:
    hot = SMALL.model_copy(update={"temperature": 10.0, "top_k": 40})
    other = hot.measure(model, data, extractor).values
    assert other["video.j_and_f"] != measured[0].values["video.j_and_f"]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"multiple": 12}, "video.multiple=12 is not a multiple of the patch size 8; use 8"),
        ({"animate": "dog"}, "video.animate=dog is not among the sequences; use one of ball, car"),
        ({"std": (0.1, 0.2)}, "video.std has 2 values for 3 channels"),
        ({"readout": {"layers": (9,)}}, "layer 9 does not exist"),
    ],
)
def test_what_does_not_fit_is_said_before_a_frame_is_read(
    setting: dict[str, object], line: str, model: FrozenModel, data: Videos
) -> None:
    with pytest.raises(UserError, match=line):
        VideoSegmentation.model_validate(setting).check(model, data)


def test_a_frame_that_cannot_be_read_is_named(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    data = Sequences().open(write_davis(tmp_path / "davis", ["ball"]))
    Path(data.frames.place(3)).write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"cannot read the frame .*00003\.jpg"):
        SMALL.measure(model, data, extractor)


def test_features_that_are_not_finite_are_named(data: Videos, extractor: FeatureExtractor) -> None:
    diverged = tiny_model()
    with torch.no_grad():
        next(diverged.backbone.vit.blocks[-1].parameters()).fill_(torch.nan)
    with pytest.raises(UserError, match="are not finite; its training diverged"):
        SMALL.measure(diverged, data, extractor)


def test_workers_change_nothing(
    model: FrozenModel, data: Videos, tmp_path: Path, measured: tuple[Measures, Path]
) -> None:
    found = SMALL.measure(model, data, extractor_in(tmp_path, workers=2))
    assert found.values == measured[0].values


def test_the_curve_over_the_sequences_is_drawn(
    measured: tuple[Measures, Path], tmp_path: Path
) -> None:
    found, _ = measured
    blank: dict[str, dict[str, Any]] = {
        name: {} for name in ("protocol", "dataset", "images", "unreadable", "hashes")
    }
    card = Card(
        checkpoint="tiny",
        task="video",
        version=1,
        metrics=found.metrics,
        notes=[],
        details=found.details,
        files=[],
        data="davis",
        seed=0,
        format="fp32",
        device="cpu",
        processes=1,
        software={},
        began="",
        seconds=0.0,
        **blank,
    )
    SMALL.draw([card], tmp_path / "course.png")
    with Image.open(tmp_path / "course.png") as picture:
        assert picture.width > 1000


def test_processes_share_the_sequences_and_measure_what_one_does(
    model: FrozenModel, data: Videos, tmp_path: Path, measured: tuple[Measures, Path]
) -> None:
    extractor = extractor_in(tmp_path)
    # One of three has no sequence.
    found = in_group(3, tmp_path / "group", lambda _: SMALL.measure(model, data, extractor))
    for each in found:
        assert each.values == measured[0].values
        assert each.details == measured[0].details
        assert each.files[0].is_file()


def test_what_fails_in_one_process_fails_in_all(model: FrozenModel, tmp_path: Path) -> None:
    data = Sequences().open(write_davis(tmp_path / "davis"))
    Path(data.frames.place(8)).write_bytes(b"no picture")  # of the second sequence

    def line(_: int) -> str:
        try:
            SMALL.measure(model, data, extractor_in(tmp_path))
        except UserError as fault:
            return str(fault)
        return ""

    for told in in_group(2, tmp_path / "group", line):
        assert told.startswith("process 1 of 2: cannot read the frame")

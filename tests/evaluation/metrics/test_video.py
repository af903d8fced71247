import numpy as np
import pytest
from PIL import Image

from attmask.evaluation.metrics.video import (
    boundary,
    boundary_accuracy,
    region_similarity,
    statistics,
)
from tests.real_data import FOLDER, needs
from tests.reference import arrays

DAVIS = "davis2016_val8"

# J mean, recall, decay and F mean, recall, decay of the predictions of OSVOS that come with the
# official evaluation, computed by that evaluation (davis2017-evaluation, commit ac7c43f).
OFFICIAL = {
    "blackswan": (0.9430, 1.000, 0.0014, 0.9741, 1.000, -0.0004),
    "car-shadow": (0.9284, 1.000, 0.1103, 0.9174, 1.000, 0.1697),
    "drift-straight": (0.6655, 0.7292, 0.6199, 0.7068, 0.6667, 0.4896),
    "horsejump-high": (0.7744, 1.000, 0.2509, 0.8724, 1.000, 0.0847),
    "kite-surf": (0.5981, 0.8542, -0.0210, 0.6604, 1.000, -0.0227),
    "libby": (0.6230, 0.6170, 0.4986, 0.7512, 0.9149, 0.3495),
    "motocross-jump": (0.8156, 1.000, 0.0043, 0.6207, 0.8158, 0.0523),
    "scooter-black": (0.6711, 0.7317, 0.4577, 0.7130, 1.000, 0.3183),
}


def square(top: int, left: int, side: int = 20, size: tuple[int, int] = (60, 80)) -> np.ndarray:
    mask = np.zeros(size, dtype=bool)
    mask[top : top + side, left : left + side] = True
    return mask


def test_j_is_the_intersection_over_the_union() -> None:
    truth = square(10, 10)
    assert region_similarity(truth, truth) == 1
    assert region_similarity(truth, square(10, 15)) == (20 * 15) / (2 * 400 - 20 * 15)
    assert region_similarity(truth, square(10, 40)) == 0


def test_two_empty_masks_agree_and_one_empty_mask_is_wrong() -> None:
    empty, full = np.zeros((60, 80), dtype=bool), square(10, 10)
    for measure in (region_similarity, boundary_accuracy):
        assert measure(empty, empty) == 1
        assert measure(empty, full) == measure(full, empty) == 0


def test_a_mask_without_a_border_inside_the_image_has_no_boundary() -> None:
    everything = np.ones((60, 80), dtype=bool)
    assert not boundary(everything).any()
    assert boundary_accuracy(everything, everything) == 1


def test_a_boundary_is_one_pixel_wide_and_lies_towards_the_origin() -> None:
    found = boundary(square(10, 10, side=3))
    rows = ["1111", "1001", "1001", "1111"]
    expected = np.zeros_like(found)
    expected[9:13, 9:13] = [[int(digit) for digit in row] for row in rows]
    assert (found == expected).all()


def test_f_allows_boundaries_to_differ_by_the_tolerance_alone() -> None:
    truth = square(10, 10)  # a diagonal of 100 pixels
    assert boundary_accuracy(truth, square(10, 11)) == 1  # ceil(0.8) = 1 pixel
    assert boundary_accuracy(truth, square(12, 12)) < 0.5
    assert boundary_accuracy(truth, square(12, 12), tolerance=0.03) == 1
    assert boundary_accuracy(truth, square(35, 50)) == 0


def test_f_is_the_harmonic_mean_of_precision_and_recall_of_the_boundary() -> None:
    # 21 + 21 + 2 x 19 pixels around each square, and the second one is far away from the truth.
    both = square(5, 5) | square(30, 50)
    assert boundary_accuracy(square(5, 5), both) == pytest.approx(2 / 3)  # precision 1/2, recall 1


def test_j_and_f_are_those_of_the_official_evaluation() -> None:
    golden = arrays("davis")
    pairs = list(zip(golden["annotation"] > 0, golden["segmentation"] > 0, strict=True))
    assert [region_similarity(*pair) for pair in pairs] == pytest.approx(golden["J"], rel=1e-12)
    assert [boundary_accuracy(*pair) for pair in pairs] == pytest.approx(golden["F"], rel=1e-12)


def test_recall_and_decay_of_hand_made_values() -> None:
    # Borders of the four parts: frames 1, 3, 5, 7, 9, which belong to both of their parts.
    found = statistics(np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]))
    assert found.mean == pytest.approx(0.5)
    assert found.recall == pytest.approx(4 / 9)  # 0.5 itself does not count
    assert found.decay == pytest.approx(0.8 - 0.2)


def test_a_single_frame_has_no_decay() -> None:
    found = statistics(np.array([0.7]))
    assert (found.mean, found.recall, found.decay) == (0.7, 1, 0)


@needs(DAVIS)
@pytest.mark.parametrize("sequence", OFFICIAL)
def test_statistics_are_the_official_ones_of_real_predictions(sequence: str) -> None:
    truths = sorted((FOLDER / DAVIS / "Annotations" / "480p" / sequence).glob("*.png"))[1:-1]
    folder = FOLDER / DAVIS / "osvos_results" / sequence
    pairs = [
        (np.array(Image.open(file)) > 127, np.array(Image.open(folder / file.name)) > 0)
        for file in truths
    ]
    values = []
    for measure in (region_similarity, boundary_accuracy):
        found = statistics(np.array([measure(truth, ours) for truth, ours in pairs]))
        values += [found.mean, found.recall, found.decay]
    assert values == pytest.approx(OFFICIAL[sequence], abs=5.1e-5)  # printed with four digits


def test_means_are_those_of_vos_benchmark_with_several_objects() -> None:
    evaluator = pytest.importorskip("vos_benchmark.evaluator").Evaluator()
    chance = np.random.default_rng(0)
    ours: dict[int, list[tuple[float, float]]] = {1: [], 2: [], 3: []}
    for _ in range(4):
        truth, predicted = np.zeros((2, 90, 120), dtype=np.uint8)
        for number in ours:
            top, left = chance.integers(0, 60, 2)
            truth[top : top + 25, left : left + 30] = number
            down, right = chance.integers(-4, 5, 2)
            predicted[max(0, top + down) :, max(0, left + right) :][:25, :30] = number
        evaluator.feed_frame(predicted, truth)
        for number, values in ours.items():
            pair = truth == number, predicted == number
            values.append((region_similarity(*pair), boundary_accuracy(*pair)))
    j, f = evaluator.conclude()
    for number, values in ours.items():
        assert 100 * np.mean(values, axis=0) == pytest.approx([j[number], f[number]], rel=1e-12)

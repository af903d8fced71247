import math
import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from attmask.errors import UserError
from attmask.masking import Block, High, Hint, Low, Masker, MaskingConfig, Nothing, Random, Strategy
from attmask.randomness import uniform
from tests.reference import tensors

STRATEGIES = [High(), Low(), Hint(0.1), Random(), Block(), Nothing()]
LOOKING = [High(), Low(), Hint(0.1)]
RATIO = st.floats(0, 1)
# Few different values make many ties.
ATTENTION = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(
    lambda values: torch.tensor(values, dtype=torch.float32)[None] / 5
)


def always(strategy: Strategy, ratio: float, seed: int = 0) -> Masker:
    """A masker that hides one share of every view."""
    return Masker(strategy, (ratio, ratio), probability=1.0, seed=seed)


def attention_of(images: int, patches: int, seed: int = 0) -> Tensor:
    noise = torch.randn(images, patches, generator=torch.Generator().manual_seed(seed))
    return (2 * noise).softmax(dim=-1)


def hidden(mask: Tensor) -> set[int]:
    """The hidden patches of the first image."""
    return set(mask[0].nonzero().flatten().tolist())


def by_attention(attention: Tensor, *, descending: bool) -> list[int]:
    """Patches in order of attention; of equal ones the lower index first."""
    values = attention[0].tolist()
    sign = -1 if descending else 1
    return sorted(range(len(values)), key=lambda patch: (sign * values[patch], patch))


# --- attention decides


@pytest.mark.parametrize("ratio", ["0.1", "0.137", "0.3", "0.5", "0.75"])
def test_masks_equal_the_reference_to_the_bit(ratio: str) -> None:
    golden = tensors("masks")
    for strategy, name in ((High(), "high"), (Low(), "low")):
        mask = always(strategy, float(ratio))(golden["attention"], step=0)
        assert torch.equal(mask, golden[f"{name}_{ratio}"]), name


@given(attention=ATTENTION, ratio=RATIO)
def test_high_hides_exactly_the_most_attended_patches(attention: Tensor, ratio: float) -> None:
    patches = attention.shape[1]
    mask = always(High(), ratio)(attention, (1, patches), step=0)
    assert hidden(mask) == set(by_attention(attention, descending=True)[: int(patches * ratio)])


@given(attention=ATTENTION, ratio=RATIO)
def test_low_hides_exactly_the_least_attended_patches(attention: Tensor, ratio: float) -> None:
    patches = attention.shape[1]
    mask = always(Low(), ratio)(attention, (1, patches), step=0)
    assert hidden(mask) == set(by_attention(attention, descending=False)[: int(patches * ratio)])


def test_of_equally_attended_patches_the_lower_index_is_hidden_first() -> None:
    for strategy in (High(), Low()):
        mask = always(strategy, 0.25)(torch.ones(1, 64), step=0)
        assert hidden(mask) == set(range(16))


def test_three_tenths_of_196_patches_are_58() -> None:
    for strategy in (High(), Low(), Random()):
        assert always(strategy, 0.3)(attention_of(3, 196), step=0).sum(1).tolist() == [58, 58, 58]


@given(attention=ATTENTION, ratio=RATIO, share=RATIO, seed=st.integers(0, 1000))
def test_hint_reveals_exactly_m_of_the_most_attended_and_nothing_else(
    attention: Tensor, ratio: float, share: float, seed: int
) -> None:
    patches, show_max = attention.shape[1], share * ratio
    grid = (1, patches)
    high = hidden(always(High(), ratio, seed)(attention, grid, step=0))
    hint = hidden(always(Hint(show_max), ratio, seed)(attention, grid, step=0))
    assert hint <= high
    revealed = high - hint
    assert len(revealed) == int((show_max * ratio) * patches)
    candidates = by_attention(attention, descending=True)[: int(show_max * patches)]
    assert revealed <= set(candidates)


def test_hint_without_anything_to_reveal_is_high() -> None:
    attention = attention_of(8, 64)
    for show_max in (0.0, 0.01, 0.05):  # int(0.05 * 0.3 * 64) is 0, with three candidates
        hint = always(Hint(show_max), 0.3)(attention, step=0)
        assert torch.equal(hint, always(High(), 0.3)(attention, step=0))


def test_hint_reveals_each_candidate_equally_often() -> None:
    images, patches = 4000, 100
    attention = attention_of(1, patches).expand(images, -1)
    hint = always(Hint(0.2), 0.5)(attention, step=0)
    candidates = by_attention(attention, descending=True)[:20]
    rates = 1 - hint[:, candidates].double().mean(0)  # 10 of 20 are shown
    assert (rates - 0.5).abs().max() < 4 * math.sqrt(0.25 / images)


def test_the_share_of_hints_is_drawn_apart_from_the_share_that_is_hidden() -> None:
    patches, steps = 2500, 400
    attention = attention_of(1, patches)
    maskers = [Masker(s, (0.2, 0.6), probability=1.0) for s in (High(), Hint(0.2))]
    counts = np.array(
        [[int(m(attention, step=step).sum()) for m in maskers] for step in range(steps)]
    )
    ratio, hint_ratio = counts[:, 0] / patches, (counts[:, 0] - counts[:, 1]) / (0.2 * patches)
    for drawn in (ratio, hint_ratio):
        assert drawn.min() >= 0.2 - 2e-3
        assert drawn.max() <= 0.6
        assert abs(drawn.mean() - 0.4) < 4 * 0.4 / math.sqrt(12 * steps)
    assert abs(np.corrcoef(ratio, hint_ratio)[0, 1]) < 4 / math.sqrt(steps)


# --- without looking


@given(patches=st.integers(1, 60), ratio=RATIO, seed=st.integers(0, 1000))
def test_random_hides_exactly_its_share(patches: int, ratio: float, seed: int) -> None:
    mask = always(Random(), ratio, seed)(torch.zeros(4, patches), (1, patches), step=0)
    assert mask.sum(1).tolist() == [int(patches * ratio)] * 4


def test_random_hides_every_patch_and_every_pair_equally_often() -> None:
    images, patches = 6000, 16
    mask = always(Random(), 0.25)(torch.zeros(images, patches), step=0).double()
    together = mask.T @ mask / images
    single, pair = together.diagonal(), together[~torch.eye(patches, dtype=torch.bool)]
    assert (single - 1 / 4).abs().max() < 4 * math.sqrt(3 / 16 / images)
    p = 4 * 3 / (16 * 15)
    assert (pair - p).abs().max() < 4.5 * math.sqrt(p * (1 - p) / images)


def test_random_75_hides_three_quarters_of_every_second_view() -> None:
    masker = Masker(Random(), (0.75, 0.75), probability=0.5)
    counts = masker(torch.zeros(2000, 196), step=0).sum(1)
    assert set(counts.tolist()) == {0, 147}
    assert abs((counts > 0).double().mean() - 0.5) < 4 * math.sqrt(0.25 / 2000)


@pytest.mark.parametrize("strategy", [Random(), Block(), Nothing()])
def test_random_and_block_and_nothing_do_not_look(strategy: Strategy) -> None:
    masker = Masker(strategy, (0.1, 0.5))
    assert torch.equal(
        masker(attention_of(20, 64, seed=0), step=0), masker(attention_of(20, 64, seed=1), step=0)
    )


def test_nothing_hides_nothing() -> None:
    assert not always(Nothing(), 0.5)(attention_of(5, 64), step=0).any()


# --- block-wise

Rectangle = tuple[int, int, int, int]  # top, left, height, width


def plain_block(
    rows: int, cols: int, wanted: float, draw: Callable[[str, int], float]
) -> tuple[np.ndarray, list[Rectangle]]:
    """The rule, one rectangle after the other (BEiT; docs/fidelity.md)."""
    mask = np.zeros((rows, cols), dtype=bool)
    smallest = (min(rows, cols) // 3) ** 2
    rectangles: list[Rectangle] = []
    remaining, failures, attempt = wanted, 0, 0
    while remaining > 0 and failures < 10:
        area = smallest + (remaining - smallest) * draw("area", attempt)
        logarithm = math.log(0.3) + (math.log(1 / 0.3) - math.log(0.3)) * draw("aspect", attempt)
        height = round(math.sqrt(area * math.exp(logarithm)))
        width = round(math.sqrt(area / math.exp(logarithm)))
        fits = False
        if height < rows and width < cols:
            top = int(draw("top", attempt) * (rows - height + 1))
            left = int(draw("left", attempt) * (cols - width + 1))
            place = (slice(top, top + height), slice(left, left + width))
            added = int((~mask[place]).sum())
            fits = 0 < added <= remaining
        if fits:
            mask[place] = True
            remaining -= added
            rectangles.append((top, left, height, width))
        failures = 0 if fits else failures + 1
        attempt += 1
    return mask, rectangles


def counted(seed: int, step: int, image: int, what: str, attempt: int) -> float:
    """The numbers that our masks are made of."""
    return float(uniform(f"block {what}", seed, step, image, 0, attempt))


@settings(max_examples=40)
@given(
    rows=st.integers(1, 15),
    cols=st.integers(1, 15),
    ratio=RATIO,
    step=st.integers(0, 10**6),
)
def test_a_block_mask_is_the_union_of_the_rules_rectangles(
    rows: int, cols: int, ratio: float, step: int
) -> None:
    masks = always(Block(), ratio, seed=3)(torch.zeros(3, rows * cols), (rows, cols), step=step)
    for image, mask in enumerate(masks):
        plain, rectangles = plain_block(
            rows,
            cols,
            ratio * (rows * cols),
            partial(counted, 3, step, image),
        )
        union = np.zeros((rows, cols), dtype=bool)
        for top, left, height, width in rectangles:
            assert height < rows
            assert width < cols
            union[top : top + height, left : left + width] = True
        assert np.array_equal(union, plain)
        assert np.array_equal(mask.view(rows, cols).numpy(), plain)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 16),
    cols=st.integers(1, 16),
    low=st.floats(0, 0.5),
    spread=st.floats(0, 0.5),
    seed=st.integers(0, 10**6),
)
def test_block_hides_at_most_its_share(
    rows: int, cols: int, low: float, spread: float, seed: int
) -> None:
    masker = Masker(Block(), (low, low + spread), probability=1.0, seed=seed)
    counts = masker(torch.zeros(8, rows * cols), (rows, cols), step=0).sum(1).numpy()
    shares = low + spread * uniform("mask ratio", seed, 0, np.arange(8), 0)
    assert (counts <= rows * cols * shares + 1e-9).all()


@pytest.mark.parametrize(
    ("grid", "ratio"),
    [
        ((14, 14), (0.1, 0.1)),
        ((14, 14), (0.3, 0.3)),
        ((14, 14), (0.1, 0.5)),
        ((14, 14), (0.75, 0.75)),
        ((6, 10), (0.1, 0.5)),
        ((12, 4), (0.3, 0.3)),
    ],
)
def test_block_masks_have_the_distribution_of_the_rule(
    grid: tuple[int, int], ratio: tuple[float, float]
) -> None:
    images, (rows, cols) = 3000, grid
    chance = random.Random(0)
    theirs = np.empty((images, rows, cols), dtype=bool)
    wanted = np.array([chance.uniform(*ratio) * rows * cols for _ in range(images)])
    for image in range(images):
        theirs[image], _ = plain_block(rows, cols, wanted[image], lambda *_: chance.random())
    masker = Masker(Block(), ratio, probability=1.0)
    ours = masker(torch.zeros(images, rows * cols), grid, step=0).view(images, rows, cols).numpy()
    our_wanted = ratio[0] + (ratio[1] - ratio[0]) * uniform(
        "mask ratio", 0, 0, np.arange(images), 0
    )

    def measures(masks: np.ndarray, wanted: np.ndarray) -> dict[str, np.ndarray]:
        counts = masks.sum((1, 2))
        edges = (masks[:, 1:] != masks[:, :-1]).sum((1, 2))
        return {
            "hidden": counts,
            "deviation": (counts - counts.mean()) ** 2,
            "exact": counts == np.floor(wanted),
            "missing": wanted - counts,
            "rows touched": masks.any(2).sum(1),
            "columns touched": masks.any(1).sum(1),
            "horizontal edges": edges,
            "centre of gravity": (masks * np.arange(rows)[:, None]).sum((1, 2)) / (counts + 1e-9),
        }

    pairs = zip(
        measures(ours, our_wanted * rows * cols).items(),
        measures(theirs, wanted).values(),
        strict=True,
    )
    for (name, one), other in pairs:
        error = math.sqrt((one.var() + other.var()) / images)
        assert abs(one.mean() - other.mean()) <= 4 * error + 1e-12, name
    p = (ours.mean(0) + theirs.mean(0)) / 2
    apart = np.abs(ours.mean(0) - theirs.mean(0)) / np.sqrt(2 * p * (1 - p) / images)
    assert apart.max() < 4.5  # every place of the grid is hidden as often


@pytest.mark.parametrize(("ratio", "exact"), [(0.1, 0.28), (0.3, 0.59)])
def test_block_reaches_its_share_as_often_as_the_reference(ratio: float, exact: float) -> None:
    images = 4000  # the shares were measured on the reference, on a grid of 14 x 14
    counts = always(Block(), ratio, seed=1)(torch.zeros(images, 196), step=0).sum(1)
    reached = (counts == int(196 * ratio)).double().mean().item()
    assert abs(reached - exact) < 4 * math.sqrt(exact * (1 - exact) / images) + 0.005


def test_what_block_hides_hangs_together() -> None:
    # On 14 x 14 the smallest area is 16, which rounds to at least 12 patches at any aspect.
    # Smaller rectangles only come when less than 16 are left to hide.
    masks = Masker(Block(), (0.2, 0.7), probability=1.0)(torch.zeros(300, 196), step=0)
    grid = masks.view(300, 14, 14).numpy()
    total = np.zeros((300, 15, 15), dtype=int)
    total[:, 1:, 1:] = grid.cumsum(1).cumsum(2)
    covered = np.zeros_like(grid)
    for height in range(1, 14):
        for width in range(math.ceil(12 / height), 14):
            inside = total[:, height:, width:] - total[:, :-height, width:]
            inside -= total[:, height:, :-width] - total[:, :-height, :-width]
            for image, top, left in np.argwhere(inside == height * width):
                covered[image, top : top + height, left : left + width] = True
    assert (grid & ~covered).sum((1, 2)).max() < 16
    assert covered.any((1, 2)).all()


@pytest.mark.parametrize("grid", [(1, 30), (30, 1), (1, 1)])
def test_a_grid_of_one_row_has_no_smaller_rectangle_to_hide(grid: tuple[int, int]) -> None:
    assert not always(Block(), 1.0)(torch.zeros(20, grid[0] * grid[1]), grid, step=0).any()


# --- how much, how often


@pytest.mark.parametrize("strategy", [High(), Low()])
def test_one_ratio_is_drawn_for_all_images_and_views_of_a_step(strategy: Strategy) -> None:
    masker = Masker(strategy, (0.1, 0.5), probability=1.0)
    attention = attention_of(6, 10_000)
    ratios = []
    for step in range(300):
        first = masker(attention[:1], step=step).sum().item()
        ratios.append(first / 10_000)
        if step < 20:
            counts = [masker(attention, step=step, view=view).sum(1) for view in (0, 1)]
            assert set(torch.cat(counts).tolist()) == {first}
    assert min(ratios) >= 0.1 - 1e-4
    assert max(ratios) <= 0.5
    assert abs(np.mean(ratios) - 0.3) < 4 * 0.4 / math.sqrt(12 * 300)
    assert np.std(ratios) == pytest.approx(0.4 / math.sqrt(12), rel=0.15)


@pytest.mark.parametrize(
    "masker",
    [
        Masker(High(), (0.1, 0.5), probability=1.0, per_image=True),
        Masker(Low(), (0.1, 0.5), probability=1.0, per_image=True),
        Masker(Random(), (0.1, 0.5), probability=1.0),
    ],
)
def test_a_ratio_for_each_view_of_each_image_is_uniform(masker: Masker) -> None:
    images = 400
    attention = attention_of(1, 2500).expand(images, -1)
    views = [masker(attention, view=view, step=0).sum(1).double() / 2500 for view in (0, 1)]
    for ratios in views:
        assert ratios.min() >= 0.1 - 1e-3
        assert ratios.max() <= 0.5
        assert abs(ratios.mean() - 0.3) < 4 * 0.4 / math.sqrt(12 * images)
        assert ratios.std().item() == pytest.approx(0.4 / math.sqrt(12), rel=0.1)
    assert abs(np.corrcoef(views[0].numpy(), views[1].numpy())[0, 1]) < 4 / math.sqrt(images)


@pytest.mark.parametrize("strategy", [*LOOKING, Random(), Block()])
@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_each_view_of_each_image_is_masked_with_the_probability(
    strategy: Strategy, probability: float
) -> None:
    images = 2000
    masker = Masker(strategy, (0.3, 0.5), probability)
    attention = attention_of(1, 64).expand(images, -1)
    views = [masker(attention, view=view, step=0).any(1).double() for view in (0, 1)]
    for rate, wanted in (
        (views[0].mean(), probability),
        (views[1].mean(), probability),
        ((views[0] * views[1]).mean(), probability**2),  # independent views
        ((views[0][1:] * views[0][:-1]).mean(), probability**2),  # and images
    ):
        assert abs(rate - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / images)


# --- by counter


@given(
    strategy=st.sampled_from(STRATEGIES),
    cut=st.integers(0, 12),
    step=st.integers(0, 10**9),
    view=st.integers(0, 1),
    per_image=st.booleans(),
)
def test_masks_do_not_depend_on_how_the_batch_is_split(
    strategy: Strategy, cut: int, step: int, view: int, per_image: bool
) -> None:
    masker = Masker(strategy, (0.2, 0.6), per_image=per_image, seed=4)
    attention = attention_of(12, 48)
    grid = (6, 8)
    whole = masker(attention, grid, step=step, view=view)
    head = masker(attention[:cut], grid, step=step, view=view)
    tail = masker(attention[cut:], grid, step=step, view=view, first_image=cut)
    assert torch.equal(whole, torch.cat([head, tail]))


@pytest.mark.parametrize("strategy", [Hint(0.2), Random(), Block(), High()])
def test_another_step_view_or_seed_gives_other_masks(strategy: Strategy) -> None:
    attention = attention_of(16, 100)
    masker, other = (Masker(strategy, (0.2, 0.6), seed=seed) for seed in (0, 1))
    masks = [
        masker(attention, step=5, view=0),
        masker(attention, step=6, view=0),
        masker(attention, step=5, view=1),
        other(attention, step=5, view=0),
    ]
    assert torch.equal(masks[0], masker(attention, step=5, view=0))
    different = {tuple(mask.flatten().tolist()) for mask in masks}
    assert len(different) == len(masks)


# --- what is refused


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_attention_that_is_not_finite_is_refused(strategy: Strategy, wrong: float) -> None:
    attention = attention_of(4, 64)
    attention[2, 7] = wrong
    with pytest.raises(UserError, match="NaN or infinite"):
        Masker(strategy, (0.2, 0.5))(attention, step=0)


@pytest.mark.parametrize("ratio", [(0.5, 0.1), (-0.1, 0.5), (0.1, 1.1), (math.nan, 0.5)])
def test_impossible_ratios_are_refused(ratio: tuple[float, float]) -> None:
    with pytest.raises(UserError, match="wanted 0 <= a <= b <= 1"):
        Masker(High(), ratio)
    with pytest.raises(ValidationError, match="ratio"):
        MaskingConfig(ratio=ratio)


@pytest.mark.parametrize("probability", [-0.1, 1.5, math.nan])
def test_impossible_probabilities_are_refused(probability: float) -> None:
    with pytest.raises(UserError, match="mask probability"):
        Masker(High(), probability=probability)
    with pytest.raises(ValidationError, match="probability"):
        MaskingConfig(probability=probability)


@pytest.mark.parametrize("show_max", [-0.1, 0.2, 1.5])
def test_hints_that_could_be_more_than_what_is_hidden_are_refused(show_max: float) -> None:
    with pytest.raises(UserError, match="show_max"):
        Masker(Hint(show_max), (0.1, 0.5))
    with pytest.raises(ValidationError, match="show_max"):
        MaskingConfig(strategy="hint", show_max=show_max)
    assert MaskingConfig(strategy="high", show_max=show_max).show_max == show_max  # not read


@pytest.mark.parametrize("grid", [(4, 4), (8, 9), None])
def test_a_grid_that_does_not_fit_is_refused(grid: tuple[int, int] | None) -> None:
    with pytest.raises(UserError, match="60 patches do not fill a grid of"):
        Masker(Random())(torch.zeros(2, 60), grid, step=0)


def test_layers_count_from_one() -> None:
    with pytest.raises(ValidationError, match="layer"):
        MaskingConfig(layer=0)


# --- the edge


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("high", High()),
        ("low", Low()),
        ("hint", Hint(0.05)),
        ("random", Random()),
        ("block", Block()),
        ("none", Nothing()),
    ],
)
def test_settings_build_the_masker_they_describe(name: str, strategy: Strategy) -> None:
    config = MaskingConfig.model_validate(
        {"strategy": name, "ratio": [0.2, 0.4], "probability": 0.7, "show_max": 0.05}
    )
    assert config.build(seed=9) == Masker(strategy, (0.2, 0.4), 0.7, per_image=False, seed=9)


def test_the_papers_masking_is_the_default() -> None:
    assert MaskingConfig().build(seed=0) == Masker(High(), (0.1, 0.5), 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_kind_of_attention_will_do(dtype: torch.dtype) -> None:
    attention = (torch.randperm(64, generator=torch.Generator().manual_seed(0)) / 64)[None]
    exact = always(High(), 0.3)(attention, step=0)
    assert torch.equal(always(High(), 0.3)(attention.to(dtype), step=0), exact)
    assert exact.dtype == torch.bool

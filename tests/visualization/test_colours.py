import torch

from attmask.visualization.colours import (
    colours,
    head_colours,
    oklab,
    score_colours,
    seen_distance,
)


def test_the_colour_map_gets_lighter_in_even_steps() -> None:
    lightness = oklab(colours(torch.linspace(0, 1, 65)[None])[0])[:, 0]
    steps = lightness.diff()
    assert (steps > 0).all()
    assert steps.std() / steps.mean() < 0.25


def test_the_colours_of_sixteen_heads_differ_for_every_reader() -> None:
    palette = torch.tensor(head_colours(16), dtype=torch.uint8)
    apart = seen_distance(palette, palette) + torch.eye(16)
    assert apart.min() > 0.05
    assert head_colours(16)[:6] == head_colours(6)


def test_colours_of_six_heads_differ_clearly_for_every_reader() -> None:
    palette = torch.tensor(head_colours(6), dtype=torch.uint8)
    assert (seen_distance(palette, palette) + torch.eye(6)).min() > 0.07


def test_the_first_score_is_the_lightness_whatever_the_others_are() -> None:
    first = torch.linspace(-1, 1, 33)
    for second, third in ((0.0, 0.0), (0.5, -0.5), (-1.0, 1.0)):
        scores = torch.stack([first, torch.full_like(first, second), torch.full_like(first, third)])
        lightness = oklab(score_colours(scores.T))[:, 0]
        assert (lightness.diff() > 0).all()


def test_the_second_score_is_told_apart_without_red_and_green() -> None:
    scores = torch.tensor([[0.0, -1.0, 0.0], [0.0, 1.0, 0.0]])
    blue, yellow = score_colours(scores).split(1)
    assert seen_distance(blue, yellow) > 0.1


def test_oklab_has_the_published_values() -> None:
    white, red = oklab(torch.tensor([[255, 255, 255], [255, 0, 0]], dtype=torch.uint8))
    assert torch.allclose(white, torch.tensor([1.0, 0, 0], dtype=torch.float64), atol=1e-4)
    expected = torch.tensor([0.62796, 0.22486, 0.12585], dtype=torch.float64)
    assert torch.allclose(red, expected, atol=1e-4), "Ottosson 2020"

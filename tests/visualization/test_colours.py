import torch

from attmask.visualization.colours import colours, head_colours, oklab, seen_distance


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

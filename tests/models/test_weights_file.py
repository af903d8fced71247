from pathlib import Path

import pytest
import torch

from attmask.errors import UserError
from attmask.models.weights_file import (
    listed,
    name_of,
    read_weights,
    refuse_not_finite,
    refuse_unusable,
)


def test_tensors_heads_and_positions_are_read_from_inside_their_wrappers(tmp_path: Path) -> None:
    inner = {"teacher": {"a": torch.ones(2), "positions": "size"}, "heads": 3}
    torch.save({"model": inner, "epoch": 4}, tmp_path / "x.pth")
    stored = read_weights(tmp_path / "x.pth")
    assert list(stored.tensors) == ["a"]
    assert (stored.heads, stored.positions) == (3, "size")


def test_the_first_tensor_that_is_not_finite_is_named() -> None:
    good, bad = torch.ones(3), torch.tensor([1.0, torch.nan])
    refuse_not_finite("here", {"a": good, "empty": torch.ones(0)})
    with pytest.raises(UserError, match=r"^here has NaN or infinite values in b: "):
        refuse_not_finite("here", {"a": good, "b": bad, "c": bad})


def test_a_view_of_a_larger_tensor_is_usable_and_an_expanded_number_is_not() -> None:
    refuse_unusable("here", {"a": torch.ones(4, 4).t()[1:], "b": torch.ones(0)})
    with pytest.raises(UserError, match=r"declares a of shape \(5,\) but stores less"):
        refuse_unusable("here", {"a": torch.ones(1).expand(5)})


def test_names_of_a_file_are_shown_in_one_short_line() -> None:
    assert name_of("norm.weight") == "norm.weight"
    assert name_of("a\nb") == r"'a\nb'"
    assert len(name_of("x" * 1000)) == 60
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcdef") == "a, b, c, d and 2 more"
    assert listed([]) == "nothing"

"""Two networks have the same hash if and only if they have the same weights."""

import torch
from torch import nn

from attmask.evaluation.digest import weights_digest


def test_the_hash_depends_on_every_weight_on_names_and_on_what_is_said() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(2, 2)
    same = nn.Linear(2, 2)
    same.load_state_dict(layer.state_dict())
    first = weights_digest({"a": layer})
    assert weights_digest({"a": same}) == first
    assert weights_digest({"b": layer}) != first
    assert weights_digest({"a": layer}, "other") != first
    with torch.no_grad():
        same.bias[1] += 1e-7
    assert weights_digest({"a": same}) != first

import pytest
import torch

from attmask.errors import UserError
from attmask.networks import build_distiller
from attmask.recipe import load_recipe
from attmask.run_config import override

TINY = load_recipe("tiny")


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = build_distiller(TINY).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = build_distiller(TINY).state_dict()
    assert torch.equal(torch.get_rng_state(), state), "the caller's generator is left alone"
    other = build_distiller(override(TINY, ["seed=1"])).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["student.head.mlp.0.weight"], other["student.head.mlp.0.weight"])


def test_networks_that_do_not_fit_into_memory_are_one_line() -> None:
    # More than the memory of any machine, so the system refuses it at once.
    large = override(TINY, ["head.prototypes=16777216", "head.bottleneck=131072"])
    with pytest.raises(UserError, match=r"do not fit into memory; lower backbone\.width"):
        build_distiller(large)

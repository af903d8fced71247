import torch

from attmask.config import override
from attmask.networks import build_distiller
from attmask.recipe import load_recipe

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

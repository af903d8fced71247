"""One process can take the part of one of many."""

import pytest
import torch
import torch.distributed as dist

from attmask import distributed
from attmask.errors import UserError
from attmask.planning.group import group_of, refuse_inside_a_group


def test_a_process_is_the_first_of_many_for_a_while() -> None:
    with group_of(64):
        assert (distributed.world_size(), distributed.rank()) == (64, 0)
        assert distributed.average_(torch.ones(3)).shape == (3,)
    assert distributed.world_size() == 1


def test_the_group_ends_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="inside"), group_of(2):
        raise RuntimeError("inside")
    assert not dist.is_initialized()


def test_a_plan_inside_a_group_is_refused() -> None:
    refuse_inside_a_group()
    with group_of(2), pytest.raises(UserError, match="there is one of 2; plan before"):
        refuse_inside_a_group()

"""What is known of a vision transformer, and the arithmetic that all of them share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Logits = Callable[[Any, Sequence[Any], Mapping[str, Any]], Float[Tensor, "B H T"]]
"""An attention module and what it was called with become the logits of its `[CLS]` row."""


@dataclass(frozen=True)
class Network:
    """The attention modules of a vision transformer, first to last, and how to read them."""

    attentions: Sequence[nn.Module]
    prefix: int
    """The number of tokens before the patches: `[CLS]`, distillation token, registers."""
    logits: Logits

    def heads(
        self, attention: nn.Module, given: Sequence[Any], named: Mapping[str, Any]
    ) -> Float[Tensor, "B H N"]:
        """The attention of `[CLS]` to each patch in each head, in full precision.

        The softmax is over all tokens; the columns of the tokens before the patches are dropped
        afterwards, not renormalised.
        """
        tokens: Tensor = given[0] if given else named["hidden_states"]
        with torch.no_grad(), torch.autocast(tokens.device.type, enabled=False):
            return self.logits(attention, given, named).softmax(dim=-1)[..., self.prefix :]


def at_least_fp32(x: Tensor) -> Tensor:
    """A tensor in fp32, or in fp64 if it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def apply(module: nn.Module, x: Tensor) -> Tensor:
    """A module on a tensor, with its weights in the tensor's number format."""
    weights = {
        name: value.to(x.dtype)
        for name, value in (*module.named_parameters(), *module.named_buffers())
        if value.is_floating_point()
    }
    result: Tensor = torch.func.functional_call(module, weights, (x,))
    return result


def apply_third(module: nn.Module, x: Tensor, third: int) -> Tensor:
    """The queries (0), keys (1) or values (2) of a joint projection, without the others."""
    if type(module) is not nn.Linear:  # e.g. with an adapter
        return apply(module, x).chunk(3, dim=-1)[third]
    weight = module.weight.chunk(3)[third].to(x.dtype)
    bias = None if module.bias is None else module.bias.chunk(3)[third].to(x.dtype)
    return F.linear(x, weight, bias)


def split_heads(x: Float[Tensor, "B T D"], heads: int) -> Float[Tensor, "B heads T head_width"]:
    """One row of tokens for each head."""
    split: Tensor = x.unflatten(-1, (heads, -1))
    return split.transpose(1, 2)


def cls_logits(
    q: Float[Tensor, "B H 1 head_width"], k: Float[Tensor, "B H T head_width"], scale: float
) -> Float[Tensor, "B H T"]:
    """The scaled products of the query of `[CLS]` with all keys."""
    return (q * scale @ k.transpose(-2, -1))[:, :, 0]

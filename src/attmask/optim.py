"""AdamW with the reference's parameter groups and clipping."""

from collections.abc import Collection, Iterable

import torch
from jaxtyping import Float
from pydantic import field_validator
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from attmask import distributed
from attmask.settings import Config, setting

_STATE = ("step", "exp_avg", "exp_avg_sq")


class OptimConfig(Config):
    """The optimiser."""

    clip: float | None = setting(
        3.0,
        "largest gradient norm of each parameter tensor by itself (null: none)",
        paper="3",
        gt=0,
    )
    betas: tuple[float, float] = setting((0.9, 0.999), "AdamW's betas", paper="[0.9, 0.999]")

    @field_validator("betas")
    @classmethod
    def _between_zero_and_one(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"{list(betas)} are not valid betas of AdamW: wanted 0 <= beta < 1, e.g. [0.9, "
                "0.999]"
            )
        return betas


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """Whether a parameter has weight decay: all but biases and one-dimensional ones.

    Position embedding, `[CLS]`, mask token and the norm of the last layer *are* decayed.
    """
    return parameter.dim() > 1 and not name.endswith(".bias")


def build_optimizer(module: nn.Module, config: OptimConfig) -> AdamW:
    """Two groups, decayed first; learning rate and decay are set at each step."""
    named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if is_decayed(n, p)], "decayed": True},
        {"params": [p for n, p in named if not is_decayed(n, p)], "decayed": False},
    ]
    return AdamW(groups, lr=0.0, weight_decay=0.0, betas=config.betas, fused=True)


def set_rates(
    optimizer: Optimizer, *, lr: float, weight_decay: float, backbone_rate: float = 1.0
) -> None:
    """Set this step's learning rate and weight decay.

    A group may have its own `lr_scale`, and those of a `backbone` learn at a share of the rate.
    """
    for group in optimizer.param_groups:
        share = backbone_rate if group.get("backbone") else 1.0
        group["lr"] = lr * group.get("lr_scale", 1.0) * share
        group["weight_decay"] = weight_decay if group["decayed"] else 0.0


def gradient_norms(parameters: Iterable[nn.Parameter]) -> Float[Tensor, "P"]:
    """The norm of each gradient tensor, of all processes; 0 for a parameter that has none."""
    whole = [p.grad for p in parameters]
    grads = [distributed.own_part(grad) for grad in whole if grad is not None]
    norms = iter(torch._foreach_norm(grads) if grads else ())
    zero = grads[0].new_zeros(()) if grads else torch.zeros(())
    each = torch.stack([zero if grad is None else next(norms) for grad in whole])
    is_sharded = any(grad is not None and distributed.is_sharded(grad) for grad in whole)
    return distributed.norms_of_all(each) if is_sharded else each


def clip_each_parameter_(
    parameters: Iterable[nn.Parameter], limit: float, norms: Float[Tensor, "P"]
) -> None:
    """Scale down each gradient tensor whose own norm, of `gradient_norms`, is above the limit.

    The reference clips tensor by tensor, not over all together. Nothing here waits for the
    device.
    """
    factors = (limit / (norms + 1e-6)).clamp(max=1.0).unbind()
    clipped = [(p.grad, f) for p, f in zip(parameters, factors, strict=True) if p.grad is not None]
    if clipped:
        grads, own = zip(*clipped, strict=True)
        torch._foreach_mul_([distributed.own_part(grad) for grad in grads], list(own))


def optimizer_tensors(optimizer: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state under the names of the module's parameters."""
    return {
        f"{name}:{key}": value
        for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def moment_bytes(module: nn.Module) -> int:
    """The bytes of `optimizer_tensors` after the first step: two moments per parameter."""
    trained = (p for p in module.parameters() if p.requires_grad)
    return sum(2 * p.numel() * p.element_size() for p in trained)


def empty_moments_(optimizer: Optimizer, module: nn.Module, stored: Collection[str]) -> None:
    """Make room for the moments that a checkpoint has, for those who fill them in place."""
    for name, parameter in module.named_parameters():
        if f"{name}:step" in stored:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def load_optimizer_tensors(
    optimizer: Optimizer, module: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Load the state that `optimizer_tensors` returned."""
    parameters = dict(module.named_parameters())
    for name, value in tensors.items():
        owner, _, key = name.rpartition(":")
        parameter = parameters[owner]
        if value.shape != (() if key == "step" else parameter.shape):
            raise ValueError(f"{name} of the optimizer has shape {tuple(value.shape)}")
        if any(f"{owner}:{other}" not in tensors for other in _STATE):
            raise ValueError(f"the optimizer lacks a part of {owner}")
        optimizer.state[parameter][key] = value.to(parameter.device)

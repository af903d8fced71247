"""PyTorch's engines for several processes: DDP, or FSDP2, which shards networks and optimizer."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from attmask import distributed
from attmask.distill import Distiller, Engine
from attmask.mask import Mask
from attmask.models.backbone import Backbone
from attmask.models.network import Output, Student

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Sharding: TypeAlias = Literal["none", "fsdp"]


def attach_engine_(distiller: Distiller, sharding: Sharding, device: torch.device) -> None:
    """Move the networks to the device, and share gradients where there are several processes.

    It comes before the optimizer is built, because sharding replaces the parameters.
    """
    several = distributed.world_size() > 1
    if several and sharding == "fsdp":
        attach_fsdp_(distiller, mesh_of_all(device))
    distiller.to(device)
    if several and sharding == "none":
        reads_patches = distiller.loss.patch_weight > 0
        settle = partial(_reach_all, distiller.student, reads_patches=reads_patches)
        distiller.wrap_student(replicated(distiller.student, settle))


def attach_fsdp_(distiller: Distiller, mesh: "DeviceMesh") -> None:
    """Shard student and teacher over a mesh; centres stay where they are."""
    for network in (distiller.student, distiller.teacher):
        shard_(network, mesh)
    distiller.wrap_student(sharded(distiller.student))


def mesh_of_all(device: torch.device) -> "DeviceMesh":
    """The devices of all processes, in one row."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (distributed.world_size(),))


def replicated(network: nn.Module, reach: Callable[[nn.Module], Tensor]) -> Engine:
    """DDP: every process has all weights, gradients are averaged during the backward pass.

    `reach` calls the network and returns a number that depends on every trained parameter. With
    its gradient, of zero, DDP lays out its buckets before the first step. It does so by the order
    of the first gradients that it shares. The order in which numbers of several processes are
    added depends on where they are in a bucket, so a resumed run would differ in its first step by
    rounding from one that was never stopped.
    """
    ddp = DistributedDataParallel(network, gradient_as_bucket_view=True)
    (0 * reach(ddp)).backward()
    network.zero_grad(set_to_none=True)

    def call(*inputs: Any, share_gradients: bool, **settings: Any) -> Any:
        with nullcontext() if share_gradients else ddp.no_sync():
            return ddp(*inputs, **settings)

    return call


def _reach_all(student: Student, ddp: nn.Module, *, reads_patches: bool) -> Tensor:
    """Logits of `[CLS]` and of one hidden patch of each of two small images, added up."""
    backbone = student.backbone
    images = small_images(backbone)
    hidden = torch.zeros(2, 4, dtype=torch.bool, device=backbone.device)
    hidden[:, 0] = True
    output: Output = ddp(
        images, Mask(hidden, np.ones(2, dtype=np.int64)), predict_patches=reads_patches
    )
    return output.cls.sum() + output.patches.sum()


def small_images(backbone: Backbone) -> Float[Tensor, "2 C side side"]:
    """Two black images of four patches each."""
    side = 2 * backbone.patch_size
    return torch.zeros(
        2, backbone.channels, side, side, device=backbone.device, dtype=backbone.mask_token.dtype
    )


def sharded(network: nn.Module) -> Engine:
    """FSDP2: gradients are added up unsharded until they are shared."""
    from torch.distributed.fsdp import FSDPModule

    assert isinstance(network, FSDPModule)

    def call(*inputs: Any, share_gradients: bool, **settings: Any) -> Any:
        network.set_requires_gradient_sync(share_gradients)
        return network(*inputs, **settings)

    return call


def shard_(network: nn.Module, mesh: "DeviceMesh") -> None:
    """Shard a network over all processes: each block, the rest of the backbone, the heads.

    Each is moved to its device as its shards are made, so none ever holds a whole network.

    Weights are gathered where a module is called and dropped again after it, so a teacher that
    has no backward pass never reads those of an earlier step.
    """
    # Imported here, because it takes a second, and DDP needs none of it.
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # The outputs of our modules are parts of one tensor, and nobody changes them in place.
    warnings.filterwarnings("ignore", r"FSDP2-wrapped module \(\w+\) returned a view tensor")
    backbone = network.get_submodule("backbone")
    assert isinstance(backbone, Backbone)
    for block in backbone.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
        register_fsdp_forward_method(block, "cls_attention")
    for module in (backbone, network):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for method in ("select", "summary", "attention_heads", "all_tokens", "outputs", "last_outputs"):
        register_fsdp_forward_method(backbone, method)
    # The first call must be of the outermost module, but an evaluation calls the backbone.
    register_fsdp_forward_method(network, "prepare")
    network.prepare()  # type: ignore[operator]

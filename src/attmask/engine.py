"""PyTorch's engines for several processes: DDP, or FSDP2, which shards networks and optimizer."""

import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from attmask import distributed
from attmask.distill import Distiller, Engine
from attmask.mask import Mask
from attmask.models.network import Network, Output, Student

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
        distiller.wrap_student(_replicated(distiller.student, reads_patches=reads_patches))


def attach_fsdp_(distiller: Distiller, mesh: "DeviceMesh") -> None:
    """Shard student and teacher over a mesh; centres stay where they are."""
    for network in (distiller.student, distiller.teacher):
        shard_(network, mesh)
    distiller.wrap_student(_sharded(distiller.student))


def mesh_of_all(device: torch.device) -> "DeviceMesh":
    """The devices of all processes, in one row."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (distributed.world_size(),))


def _replicated(student: Student, *, reads_patches: bool) -> Engine:
    """DDP: every process has all weights, gradients are averaged during the backward pass."""
    ddp = DistributedDataParallel(student, gradient_as_bucket_view=True)
    _settle_buckets(ddp, student, reads_patches=reads_patches)

    def call(*inputs: Any, share_gradients: bool, **settings: Any) -> Output:
        with nullcontext() if share_gradients else ddp.no_sync():
            output: Output = ddp(*inputs, **settings)
        return output

    return call


def _settle_buckets(ddp: DistributedDataParallel, student: Student, *, reads_patches: bool) -> None:
    """Take a gradient of zero, so that DDP lays out its buckets before the first step.

    It does so by the order of the first gradients that it shares. The order in which numbers of
    several processes are added depends on where they are in a bucket, so a resumed run would
    differ in its first step by rounding from one that was never stopped.
    """
    backbone = student.backbone
    side, device = 2 * backbone.patch_size, backbone.device
    dtype = backbone.mask_token.dtype
    images = torch.zeros(2, backbone.channels, side, side, device=device, dtype=dtype)
    hidden = torch.zeros(2, 4, dtype=torch.bool, device=device)
    hidden[:, 0] = True
    output: Output = ddp(
        images, Mask(hidden, np.ones(2, dtype=np.int64)), predict_patches=reads_patches
    )
    (0 * (output.cls.sum() + output.patches.sum())).backward()
    student.zero_grad(set_to_none=True)


def _sharded(student: Student) -> Engine:
    """FSDP2: gradients are added up unsharded until they are shared."""
    from torch.distributed.fsdp import FSDPModule

    assert isinstance(student, FSDPModule)

    def call(*inputs: Any, share_gradients: bool, **settings: Any) -> Output:
        student.set_requires_gradient_sync(share_gradients)
        output: Output = student(*inputs, **settings)
        return output

    return call


def shard_(network: Network, mesh: "DeviceMesh") -> None:
    """Shard a network over all processes: each block, the rest of the backbone, the heads.

    Each is moved to its device as its shards are made, so none ever holds a whole network.

    Weights are gathered where a module is called and dropped again after it, so a teacher that
    has no backward pass never reads those of an earlier step.
    """
    # Imported here, because it takes a second, and DDP needs none of it.
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # The outputs of our modules are parts of one tensor, and nobody changes them in place.
    warnings.filterwarnings("ignore", r"FSDP2-wrapped module \(\w+\) returned a view tensor")
    backbone = network.backbone
    for block in backbone.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
        register_fsdp_forward_method(block, "cls_attention")
    for module in (backbone, network):
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    for method in ("select", "summary", "attention_heads"):
        register_fsdp_forward_method(backbone, method)
    # The first call must be of the outermost module, but an evaluation calls the backbone.
    register_fsdp_forward_method(network, "prepare")
    network.prepare()

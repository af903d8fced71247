"""A hash of weights, which tells networks apart in caches and cards."""

import hashlib

import torch
from torch import nn


def weights_digest(modules: dict[str, nn.Module], about: str = "") -> str:
    """A hash of all weights of some modules, of their names, and of what else `about` states."""
    found = hashlib.sha256(about.encode())
    for owner, module in modules.items():
        for name, tensor in sorted(module.state_dict().items()):
            flat = tensor.detach().cpu().contiguous().flatten()
            found.update(f"{owner}.{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            found.update(flat.view(torch.uint8).numpy())
    return found.hexdigest()

"""The number of compiled kernels that oneDNN keeps on a CPU.

oneDNN compiles a kernel (a primitive) for every new shape of a bf16 product and by default keeps
the last 1024 of them. The number of masked patches changes with every step, and so do the shapes:
kernels of steps long past took more memory than the step itself.
"""

import os

CAPACITY = 256  # one step of ViT-S/16 with drop path uses 233 (docs/performance.md)
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def bound_primitive_cache() -> None:
    """Let oneDNN keep `CAPACITY` primitives, unless the environment already sets a number.

    oneDNN reads the variable once, when it creates its first primitive. PyTorch offers no other
    way to set the capacity.
    """
    if not any(name in os.environ for name in VARIABLES):
        os.environ[VARIABLES[0]] = str(CAPACITY)

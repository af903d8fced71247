"""The time of exactly the matrix multiplies that a piece of work executes, done alone.

Every product that PyTorch dispatches while the work runs is noted with its shapes, strides and
number formats; each kind is then repeated on random numbers, best of some tries, times its count.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten.convolution_backward.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
}


@dataclass(frozen=True)
class Shaped:
    """A tensor without its values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self) -> Tensor:
        """Random numbers of this shape."""
        if not self.dtype.is_floating_point:
            return torch.zeros(self.size, dtype=self.dtype)
        reach = 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        return torch.randn(reach).to(self.dtype).as_strided(self.size, self.stride)


class Noted(TorchDispatchMode):
    """Counts the products that are dispatched, by their arguments."""

    def __init__(self) -> None:
        untyped: Any = super().__init__
        untyped()
        self.products: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in PRODUCTS:
            key = (
                func,
                tuple(map(_shaped, args)),
                tuple((k, _shaped(v)) for k, v in kwargs.items()),
            )
            self.products[key] += 1
        return func(*args, **kwargs)


def _shaped(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Shaped(tuple(value.shape), value.stride(), value.dtype)
    return tuple(value) if isinstance(value, list) else value


def _made(value: Any) -> Any:
    return value.make() if isinstance(value, Shaped) else value


def seconds_of_products(work: Callable[[], object], tries: int = 3) -> float:
    """CPU seconds of all products of the work, each kind measured alone."""
    with Noted() as noted:
        work()
    total = 0.0
    with torch.no_grad():
        for (func, args, kwargs), count in noted.products.items():
            made, named = [_made(a) for a in args], {k: _made(v) for k, v in kwargs}
            best = float("inf")
            for _ in range(tries):
                began = time.process_time()
                func(*made, **named)
                best = min(best, time.process_time() - began)
            total += count * best
    return total

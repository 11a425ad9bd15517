"""Functions of `nn.functional` on windows that may also give the maxima's places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.tensor import api
from lehr.tensor.tensor import Tensor


def _pool(name: str, values: Callable[..., Any], both: Callable[..., Any]) -> Callable[..., Any]:
    def pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
             dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
        """Maxima of windows; `return_indices` also gives their places, flat within a channel."""
        run = both if return_indices else values
        return run(input, kernel_size, stride, padding, dilation, ceil_mode)
    pool.__name__ = pool.__qualname__ = name
    return pool


def _adaptive(name: str, values: Callable[..., Any], both: Callable[..., Any]) -> Callable[...,
                                                                                           Any]:
    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        """Maxima of `output_size` windows; `return_indices` also gives their places."""
        return (both if return_indices else values)(input, output_size)
    pool.__name__ = pool.__qualname__ = name
    return pool


def _made(make: Callable[..., Any], stem: str) -> dict[str, Any]:
    out = {}
    for rank in (1, 2, 3):
        name = f"{stem}{rank}d"
        pair = [api.function(n, "nn") for n in (name, f"{name}_with_indices")]
        out[name] = make(name, *pair)
    return out


globals().update(_made(_pool, "max_pool"), **_made(_adaptive, "adaptive_max_pool"))

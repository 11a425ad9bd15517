"""Fractional max pooling: functions and layers (Graham, 2014)."""

from __future__ import annotations

import math
from typing import Any

from lehr.base import dtype as dt
from lehr.nn.conv import spread
from lehr.nn.module import Module
from lehr.tensor import random
from lehr.tensor.policy import given
from lehr.tensor.tensor import Tensor


def _starts(sample: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """Where each window begins along one dimension, for every sample and channel: [n, c, out]."""
    F = Tensor.F
    at = F.arange(out, dtype=dt.float64, device=sample.device)
    u = F.unsqueeze(F.to_dtype(sample, dt.float64), -1)
    if out == 1:
        made: Any = F.full((*sample._shape, 1), size - kernel, dtype=dt.int64)
        return made
    alpha = (size - kernel) / (out - 1)
    begin = F.to_dtype(F.floor((u + at) * alpha) - F.floor(u * alpha), dt.int64)
    last = F.full((*sample._shape, 1), size - kernel, dtype=dt.int64, device=sample.device)
    return F.cat([begin[..., :-1], last], -1)  # type: ignore[no-any-return]


def _pool(input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any,
          rank: int) -> tuple[Tensor, Tensor]:
    if output_size is None and output_ratio is None:
        raise ValueError(f"fractional_max_pool{rank}d requires specifying either an output_size or "
                         "an output_ratio")
    if input.dim() not in (rank + 1, rank + 2):
        raise RuntimeError(f"fractional_max_pool{rank}d: Expected {rank + 1}D or {rank + 2}D "
                           "tensor, but "
                           f"got: {list(input.shape)}")
    F = Tensor.F
    input = given(f"fractional_max_pool{rank}d", input)
    kernel = spread(kernel_size, rank)
    x = input.unsqueeze(0) if input.dim() == rank + 1 else input
    sizes = tuple(x.shape[2:])
    out = (spread(output_size, rank) if output_size is not None else
           tuple(int(s * r) for s, r in zip(sizes, spread(output_ratio, rank), strict=True)))
    if samples is None:
        samples = F.uniform((*x.shape[:2], rank), 0.0, 1.0, *random.take(None), dtype=x.dtype,
                            device=x.device)
    n, c = x.shape[:2]
    samples = samples[:n, :c]
    flat = F.full((n, c, *(1,) * (2 * rank)), 0, dtype=dt.int64, device=x.device)
    for d in range(rank):
        # The samples' order is that of the dimensions from the last to the first.
        start = _starts(samples[..., rank - 1 - d], sizes[d], out[d], kernel[d])
        offset = F.arange(kernel[d], device=x.device)
        along = start.reshape(n, c, out[d], 1) + offset
        shape = [n, c, *(1,) * (2 * rank)]
        shape[2 + d], shape[2 + rank + d] = out[d], kernel[d]
        flat = flat + along.reshape(shape) * math.prod(sizes[d + 1:])
    many, window = math.prod(out), math.prod(kernel)
    flat = flat.reshape(n, c, many * window)
    found = F.gather(x.reshape(n, c, math.prod(sizes)), 2, flat).reshape(n, c, many, window)
    best = F.argmax(found, -1, True)
    values = F.gather(found, -1, best).reshape(n, c, *out)
    places = F.gather(flat.reshape(n, c, many, window), -1, best).reshape(n, c, *out)
    if input.dim() == rank + 1:
        return values.squeeze(0), places.squeeze(0)
    return values, places


def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: Any, output_size: Any = None,
                                       output_ratio: Any = None, return_indices: bool = False,
                                       _random_samples: Any = None) -> tuple[Tensor, Tensor]:
    """Maxima of windows that begin at pseudo-random places of [n, c, h, w], and their places."""
    return _pool(input, kernel_size, output_size, output_ratio, _random_samples, 2)


def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: Any, output_size: Any = None,
                                       output_ratio: Any = None, return_indices: bool = False,
                                       _random_samples: Any = None) -> tuple[Tensor, Tensor]:
    """Maxima of windows that begin at pseudo-random places of [n, c, d, h, w], and their places."""
    return _pool(input, kernel_size, output_size, output_ratio, _random_samples, 3)


def fractional_max_pool2d(input: Tensor, kernel_size: Any, output_size: Any = None,
                          output_ratio: Any = None, return_indices: bool = False,
                          _random_samples: Any = None) -> Any:
    """Maxima of windows that begin at pseudo-random places of [n, c, h, w]."""
    made = _pool(input, kernel_size, output_size, output_ratio, _random_samples, 2)
    return made if return_indices else made[0]


def fractional_max_pool3d(input: Tensor, kernel_size: Any, output_size: Any = None,
                          output_ratio: Any = None, return_indices: bool = False,
                          _random_samples: Any = None) -> Any:
    """Maxima of windows that begin at pseudo-random places of [n, c, d, h, w]."""
    made = _pool(input, kernel_size, output_size, output_ratio, _random_samples, 3)
    return made if return_indices else made[0]


class _FractionalMaxPoolNd(Module):
    """Settings of fractional max pooling: the output's size, or its ratio to the input's."""

    rank = 0

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                 return_indices: bool = False, _random_samples: Any = None) -> None:
        super().__init__()
        n = self.rank
        if (isinstance(kernel_size, int) and kernel_size <= 0) or (
                isinstance(kernel_size, tuple) and not all(k > 0 for k in kernel_size)):
            raise ValueError(f"kernel_size must be greater than zero, but got {kernel_size}")
        self.kernel_size = spread(kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else spread(output_size, n)
        self.output_ratio = None if output_ratio is None else spread(output_ratio, n)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or "
                             "a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima of windows that begin at pseudo-random places of [n, c, h, w]."""

    rank = 2

    def forward(self, input: Tensor) -> Any:
        """[n, c, h, w] -> [n, c, *output_size] (and places)."""
        return fractional_max_pool2d(input, self.kernel_size, self.output_size, self.output_ratio,
                                     self.return_indices, self._random_samples)


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima of windows that begin at pseudo-random places of [n, c, d, h, w]."""

    rank = 3

    def forward(self, input: Tensor) -> Any:
        """[n, c, d, h, w] -> [n, c, *output_size] (and places)."""
        return fractional_max_pool3d(input, self.kernel_size, self.output_size, self.output_ratio,
                                     self.return_indices, self._random_samples)


__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]

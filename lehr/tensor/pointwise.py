"""Eager convolutions of float32 images whose kernel is one pixel: products of matrices, of images
as they lie (`lehr.compiler.emit.pointwise` says how). All others are left to `native`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.tensor import native
from lehr.tensor.product import multiply


def _one_pixel(kernel: Sequence[int], stride: Sequence[int], *none: Sequence[int]) -> bool:
    """Whether every pixel of a result comes of one pixel, the same."""
    return (all(n == 1 for n in (*kernel, *stride))
            and not any(n for values in none for n in values))


def _suits(*arrays: Any) -> bool:
    return all(a.dtype == np.float32 and a.size for a in arrays)


def _last(x: Any) -> bool:
    """Whether images have their channels together, and nothing between their pixels."""
    return x.shape[1] > 1 and bool(np.moveaxis(x, 1, -1).flags.c_contiguous)


def convolution(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any,
                transposed: Any, output_padding: Any, groups: Any, out_dtype: Any) -> Any:
    """The result of `convolution` on arrays, or NotImplemented."""
    extra = output_padding if transposed else ()
    made = NotImplemented
    if (_one_pixel(w.shape[2:], stride, padding, extra) and _suits(x, w)
            and w.flags.c_contiguous):
        made = _images(x, w.reshape(w.shape[:2]), transposed, groups)
    if made is NotImplemented:
        return native.convolution(x, w, b, stride, padding, dilation, transposed, output_padding,
                                  groups, out_dtype)
    if b is not None:
        made += b.reshape(-1, *(1,) * (x.ndim - 2))
    return made


def _images(x: Any, w: Any, transposed: bool, groups: int) -> Any:
    n, _, *size = x.shape
    kernel = w.reshape(groups, -1, w.shape[1])  # of a group: [out, in]
    kernel = kernel.swapaxes(1, 2) if transposed else kernel
    if groups == 1 and x.ndim > 3 and _last(x) and not x.flags.c_contiguous:
        rows = np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])
        made = multiply(rows, kernel[0].T)
        return made if made is NotImplemented else np.moveaxis(
            made.reshape(n, *size, made.shape[1]), -1, 1)
    if not x.flags.c_contiguous:
        return NotImplemented
    images = x.reshape(n, groups, -1, math.prod(size))
    made = multiply(kernel[0], images[:, 0]) if groups == 1 else multiply(kernel, images)
    return made if made is NotImplemented else made.reshape(n, -1, *size)


def conv_weight(x: Any, g: Any, size: Any, stride: Any, padding: Any, dilation: Any,
                groups: Any) -> Any:
    """The result of `conv_weight` on arrays, or NotImplemented."""
    made = NotImplemented
    if _one_pixel(size, stride, padding) and _suits(x, g):
        made = multiply(_channels(g, groups), _channels(x, groups).swapaxes(1, 2))
    if made is NotImplemented:
        return native.conv_weight(x, g, size, stride, padding, dilation, groups)
    return made.reshape(g.shape[1], x.shape[1] // groups, *size)


def _channels(x: Any, groups: int) -> Any:
    """Images as [group, channel, pixel], the pixels of all of them one after the other."""
    if _last(x) and groups == 1:
        return np.moveaxis(x, 1, -1).reshape(1, -1, x.shape[1]).swapaxes(1, 2)
    return x.swapaxes(0, 1).reshape(groups, x.shape[1] // groups, -1)


native.fill({made.__name__: made for made in (convolution, conv_weight)})

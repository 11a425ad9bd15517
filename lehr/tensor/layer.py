"""Eager normalisations, maxima of windows and gelu in C (`layer.c`): one or two passes over memory
where numpy makes ten.

Arrays of float32 that lie densely in memory; everything else, and small calls, stay with numpy.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lehr.ops import activation, approximation
from lehr.ops.rule import reduced_shape
from lehr.tensor import native

LEAST = 1 << 15  # elements that are worth a call
_Int = ctypes.c_int64
_Three = _Int * 3


class Norm(ctypes.Structure):
    """`lehr_norm` of layer.c."""

    _fields_ = [*((name, ctypes.c_void_p) for name in ("x", "g", "w", "bias", "y", "mean", "var")),
                *((name, _Int) for name in ("a", "b", "c", "inner", "center", "parts")),
                ("eps", ctypes.c_double)]


class Pool(ctypes.Structure):
    """`lehr_pool` of layer.c."""

    _fields_ = [*((name, ctypes.c_void_p) for name in ("x", "y", "place")), ("planes", _Int),
                *((name, _Three) for name in ("size", "many", "kernel", "stride", "pad",
                                              "dilation")),
                ("parts", _Int)]


class Map(ctypes.Structure):
    """`lehr_map` of layer.c."""

    _fields_ = [*((name, ctypes.c_void_p) for name in ("x", "g", "p", "q", "y")),
                *((name, _Int) for name in ("n", "kind", "parts")),
                *((name, ctypes.c_float) for name in ("edge", "cube", "scale"))]


def _worth(x: Any) -> native.Library | None:
    if x.size < LEAST or x.dtype != np.float32:
        return None
    return native.library("layer")


# Normalisations


class Form(NamedTuple):
    """An array as [a][b][c] in memory, statistics over a and c; `kept`: the dimensions of b."""

    a: int
    b: int
    c: int
    kept: tuple[int, ...]


@functools.lru_cache(512)
def form(shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...]) -> Form | None:
    """None where the memory has holes, or its dimensions are mixed otherwise."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -strides[d])
    step = 4
    for d in reversed(order):
        if strides[d] != step:
            return None
        step *= shape[d]
    reduced = [d in dims for d in order]
    if True not in reduced:
        return None
    kept = [i for i, r in enumerate(reduced) if not r]
    low, high = (kept[0], kept[-1] + 1) if kept else (0, 0)
    if any(reduced[low:high]) or order[low:high] != sorted(order[low:high]):
        return None
    a, b, c = (math.prod(shape[d] for d in part)
               for part in (order[:low], order[low:high], order[high:]))
    if c < 8 and (c != 1 or b < 8):
        return None
    return Form(a, b, c, tuple(order[low:high]))


def _row(w: Any, shape: Sequence[int], dims: Sequence[int], found: Form) -> tuple[Any, int] | None:
    """A weight as numbers for each b (0) or each c (1); None where it is neither."""
    size = (1,) * (len(shape) - w.ndim) + w.shape
    if all(n == (1 if d in dims else m) for d, (n, m) in enumerate(zip(size, shape, strict=True))):
        return np.ascontiguousarray(w), 0
    if found.a == 1 and all(n == (m if d in dims else 1)
                            for d, (n, m) in enumerate(zip(size, shape, strict=True))):
        return np.ascontiguousarray(w), 1
    return None


def _like(x: Any, g: Any) -> Any:
    """`g` with the layout of `x`."""
    if g.strides == x.strides and g.shape == x.shape:
        return g
    made = np.empty_like(x)
    made[...] = g
    return made


def _ready(x: Any, dims: Any) -> Any:
    """(library, form), or None."""
    k = _worth(x)
    found = form(x.shape, x.strides, tuple(dims)) if k is not None else None
    return None if found is None else (k, found)


def _rows(x: Any, dims: Any, found: Form, *weights: Any) -> Any:
    """The weights, and whether they are of the inner numbers; None where C takes them not."""
    rows = [v if v is None else _row(v, x.shape, dims, found) for v in weights]
    inner = {r[1] for r in rows if r}
    if len(inner) > 1 or any(v is not None and r is None for v, r in zip(weights, rows,
                                                                         strict=True)):
        return None
    return [r and r[0] for r in rows], max(inner, default=0)


def _at(a: Any) -> Any:
    return None if a is None else a.ctypes.data


def standardize(x: Any, w: Any, b: Any, dims: Any, eps: Any, center: Any) -> Any:
    """The results of `standardize` on arrays, or NotImplemented."""
    ready = _ready(x, dims)
    if ready is None or not _plain(w, b):
        return NotImplemented
    k, found = ready
    rows = _rows(x, dims, found, w, b)
    (weight, bias), inner = rows or ((None, None), 0)
    stat = reduced_shape(x.shape, dims, True)
    y, mean, var = np.empty_like(x), np.empty(stat, np.float32), np.empty(stat, np.float32)
    k.call("lehr_standardize", Norm(_at(x), None, _at(weight), _at(bias), _at(y), _at(mean),
                                    _at(var), *found[:3], inner, center, 0, eps))
    if rows is None:
        if w is not None:
            y *= w
        if b is not None:
            y += b
    return y, mean, var


def standardize_grad(g: Any, x: Any, mean: Any, var: Any, w: Any, dims: Any, eps: Any,
                     center: Any) -> Any:
    """The result of `standardize_grad` on arrays, or NotImplemented."""
    ready = _ready(x, dims)
    if ready is None or not _plain(g, mean, var, w):
        return NotImplemented
    k, found = ready
    rows = _rows(x, dims, found, w)
    (weight,), inner = rows or ((None,), 0)
    g = _like(x, g if rows else g * w)
    mean, var = np.ascontiguousarray(mean), np.ascontiguousarray(var)
    y = np.empty_like(x)
    k.call("lehr_standardize_back", Norm(_at(x), _at(g), _at(weight), None, _at(y), _at(mean),
                                         _at(var), *found[:3], inner, center, 0, eps))
    return y


def _plain(*arrays: Any) -> bool:
    return all(a is None or a.dtype == np.float32 for a in arrays)


def standardize_scale(g: Any, x: Any, mean: Any, var: Any, shape: Any, dims: Any, eps: Any,
                      center: Any) -> Any:
    """The result of `standardize_scale` on arrays, or NotImplemented."""
    ready = _ready(x, dims)
    if ready is None or not _plain(g, mean, var):
        return NotImplemented
    k, found = ready
    y = np.empty(shape, np.float32)
    rows = _rows(x, dims, found, y)
    if rows is None or (rows[1] and found.c < 8):
        return NotImplemented
    g, mean, var = _like(x, g), np.ascontiguousarray(mean), np.ascontiguousarray(var)
    r = 1 / np.sqrt(var + np.float32(eps)) if rows[1] else None
    k.call("lehr_standardize_scale", Norm(_at(x), _at(g), None, _at(r), _at(y), _at(mean), _at(var),
                                          *found[:3], rows[1], center, 0, eps))
    return y


# Maxima of windows


@functools.lru_cache(512)
def _whole(size: int, kernel: int, many: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether every window holds an element of the image."""
    for o in range(many):
        first = o * stride - padding
        low = (dilation - 1 - first) // dilation if first < 0 else 0
        if low >= kernel or first + low * dilation >= size:
            return False
    return True


def _pool(x: Any, y: Any, place: Any, size: Any, many: Any, kernel: Any, stride: Any, padding: Any,
          dilation: Any) -> Pool:
    def three(values: Any, one: int) -> Any:
        return _Three(*(one,) * (3 - len(values)), *values)

    return Pool(_at(x), _at(y), _at(place), math.prod((x if place is None else place).shape[:2]),
                three(size, 1), three(many, 1), three(kernel, 1), three(stride, 1),
                three(padding, 0), three(dilation, 1), 0)


def _pooled(dtype: Any, x: Any, kernel: Any, out: Any, stride: Any, padding: Any,
            dilation: Any) -> Any:
    """The maxima, or where they lie, or NotImplemented."""
    k = _worth(x)
    size = x.shape[2:]
    if (k is None or not x.flags.c_contiguous or math.prod(size) >= 1 << 31 or not all(
            map(_whole, size, kernel, out, stride, padding, dilation))):
        return NotImplemented
    made = np.empty((*x.shape[:2], *out), dtype)
    values, places = (made, None) if dtype is np.float32 else (None, made)
    k.call("lehr_max_pool", _pool(x, values, places, size, out, kernel, stride, padding, dilation))
    return made


def max_pool(x: Any, *window: Any) -> Any:
    """The result of `max_pool` on arrays, or NotImplemented."""
    return _pooled(np.float32, x, *window)


def max_pool_place(x: Any, *window: Any) -> Any:
    """The result of `max_pool_place` on arrays, or NotImplemented."""
    return _pooled(np.int64, x, *window)


def max_pool_grad(g: Any, places: Any, size: Any, kernel: Any, stride: Any, padding: Any,
                  dilation: Any) -> Any:
    """The result of `max_pool_grad` on arrays, or NotImplemented."""
    k = _worth(g)
    if k is None or not (g.flags.c_contiguous and places.flags.c_contiguous):
        return NotImplemented
    y = np.empty((*g.shape[:2], *size), np.float32)
    k.call("lehr_max_unpool", _pool(g, y, places, size, g.shape[2:], kernel, stride, padding,
                                    dilation))
    return y


# Functions of single numbers

KINDS = {"erf": 0, "gelu": 1, "gelu_back": 2, "gelu_tanh": 3, "gelu_tanh_back": 4}
_P, _Q = (np.array(c, np.float32) for c in (approximation.ERF_P, approximation.ERF_Q))


def _mapped(kind: str, x: Any, g: Any = None) -> Any:
    """A function of every number, or NotImplemented."""
    k = _worth(x)
    if (k is None or not _dense(x.shape, x.strides) or not _plain(g)
            or (g is not None and g.shape != x.shape)):
        return NotImplemented
    y = np.empty_like(x)
    g = None if g is None else _like(x, g)
    k.call("lehr_map_numbers", Map(_at(x), _at(g), _at(_P), _at(_Q), _at(y), x.size, KINDS[kind], 0,
                                   approximation.ERF_EDGE, activation.TANH_CUBE,
                                   activation.TANH_SCALE))
    return y


@functools.lru_cache(512)
def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether float32 numbers fill a piece of memory, in whatever order of dimensions."""
    step = 4
    for s, n in sorted(zip(strides, shape, strict=True)):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def erf(x: Any) -> Any:
    """The result of `erf` on arrays, or NotImplemented."""
    return _mapped("erf", x)


def gelu(x: Any, approximate: Any) -> Any:
    """The result of `gelu` on arrays, or NotImplemented."""
    return _mapped("gelu_tanh" if approximate == "tanh" else "gelu", x)


def gelu_grad(g: Any, x: Any, approximate: Any) -> Any:
    """The result of `gelu_grad` on arrays, or NotImplemented."""
    return _mapped("gelu_tanh_back" if approximate == "tanh" else "gelu_back", x, g)


native.fill({made.__name__: made for made in (
    standardize, standardize_grad, standardize_scale, max_pool, max_pool_place, max_pool_grad, erf,
    gelu, gelu_grad)})

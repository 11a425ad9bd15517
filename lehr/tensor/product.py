"""Eager products of matrices in C: cut into tasks of lehr's own threads, and on the processor's
bfloat16 tiles where it has them.

numpy's products run on threads of the library that it brings. Those look out for more work for a
while when a product is done, and keep the processors from whatever runs next.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lehr.ops import contract
from lehr.tensor import native

# Products that are worth a call: below, OpenBLAS does not use threads either.
LEAST = 1 << 18
_Int = ctypes.c_int64
_Four = _Int * 4
KINDS = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TALL, SIDE, FEW = 288, 32, (24, 16, 8)   # see `lehr.compiler.emit.product`
LINE = 64       # bytes: panels are read as whole lines of the cache; numpy's memory begins anywhere


class Product(ctypes.Structure):
    """`lehr_product` of runtime.h."""

    _fields_ = [*((name, _Four) for name in ("batch", "a_step", "b_step", "c_step")),
                *((name, _Int) for name in ("kind", "m", "n", "k", "ta", "tb", "lda", "ldb",
                                            "ldc")),
                *((name, ctypes.c_void_p) for name in ("a", "b", "c", "rows", "p", "ready"))]


class Half(ctypes.Structure):
    """`lehr_half` of runtime.h."""

    _fields_ = [*((name, _Four) for name in ("batch", "a_step", "b_step", "c_step")),
                *((name, _Int) for name in ("m", "n", "k", "ta", "tb", "lda", "ldb", "ldc",
                                            "a_wide", "b_wide")),
                *((name, ctypes.c_void_p) for name in ("a", "b", "c", "rows", "p")),
                ("many", _Int), ("lent", _Int), ("packed", ctypes.c_void_p),
                ("ready", ctypes.c_void_p)]


class Plan(NamedTuple):
    """A product of arrays with certain shapes and strides.

    record  `Product` or `Half` but for the addresses
    size    of the result
    copied  whether a, b lie in a way that gemm cannot read
    packed  elements that B takes up when it is packed; 0: it is not
    thin    whether it has so few rows, columns or terms that the template `thin` may do it
    """

    record: ctypes.Structure
    size: tuple[int, ...]
    copied: tuple[bool, bool]
    packed: int
    thin: bool = False


def side(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int] | None:
    """(whether it is transposed, leading dimension) of a matrix that gemm can read: rows, or
    columns, lie together."""
    (m, n), (across, along) = shape[-2:], strides[-2:]
    if any(s % size for s in strides):
        return None
    if (along == size or n == 1) and (m == 1 or across >= n * size):
        return 0, n if m == 1 else across // size
    if (across == size or m == 1) and (n == 1 or along >= m * size):
        return 1, m if n == 1 else along // size
    return None


def dense(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides of an array without gaps, in bytes."""
    return tuple(size * math.prod(shape[d + 1:]) for d in range(len(shape)))


@functools.lru_cache(1024)
def plan(kind: Any, a: tuple[int, ...], a_strides: tuple[int, ...], b: tuple[int, ...],
         b_strides: tuple[int, ...]) -> Plan | None:
    """How arrays of a dtype are multiplied; None where numpy does it."""
    if len(a) < 2 or len(b) < 2:
        return None
    m, k, n = *a[-2:], b[-1]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    if m * n * k < LEAST or len(batch) > 4 or 0 in batch:
        return None
    half, size = kind == BFLOAT16, kind.itemsize
    made, copied, steps = [], [], []
    for shape, strides in ((a, a_strides), (b, b_strides)):
        found = side(shape, strides, size)
        copied.append(found is None)
        if found is None:
            strides, found = dense(shape, size), (0, shape[-1])
        made.append(found)
        steps.append((0,) * (4 - len(shape) + 2) + tuple(
            0 if n == 1 else s // size for n, s in zip(shape[:-2], strides, strict=False)))
    (ta, lda), (tb, ldb) = made
    whole = (*batch, m, n)
    shared = [_Four(*(1,) * (4 - len(batch)), *batch), *(_Four(*s) for s in steps),
              _Four(*(0,) * (4 - len(batch)), *(s for s in dense(whole, 1)[:-2]))]
    if half:
        packed = 0 if m <= TALL else math.prod((*batch, *(-(-x // SIDE) * SIDE for x in (n, k))))
        return Plan(Half(*shared, m, n, k, ta, tb, lda, ldb, n), whole, (copied[0], copied[1]),
                    packed)
    return Plan(Product(*shared, KINDS[kind], m, n, k, ta, tb, lda, ldb, n), whole,
                (copied[0], copied[1]), 0,
                kind == np.float32 and any(x <= y for x, y in zip((m, n, k), FEW, strict=True)))


def _at(a: Any) -> int:
    return a.__array_interface__["data"][0]  # type: ignore[no-any-return]


def multiply(a: Any, b: Any, dtype: Any = None) -> Any:
    """The product of arrays [.., m, k] and [.., k, n], or NotImplemented. `dtype`: of the result
    where it is another."""
    kind = a.dtype
    half = kind == BFLOAT16
    if kind != b.dtype or not (half or kind in KINDS):
        return NotImplemented
    how = plan(kind, a.shape, a.strides, b.shape, b.strides)
    made = None if how is None else native.library("half" if half else "split", not half)
    if how is None or made is None or how.thin and native.library("thin") is None:
        return NotImplemented
    if how.copied[0]:
        a = np.ascontiguousarray(a)
    if how.copied[1]:
        b = np.ascontiguousarray(b)
    c = np.empty(how.size, np.float32 if half else kind)
    q = type(how.record).from_buffer_copy(how.record)
    q.a, q.b, q.c = _at(a), _at(b), _at(c)
    if not half:
        made.call("lehr_multiply_now", q)
        return c
    if how.packed:
        room = np.empty(how.packed * 2 + LINE, np.uint8)
        q.packed = -(-_at(room) // LINE) * LINE
    made.call("lehr_product_half", q)
    return c if dtype is np.float32 else c.astype(kind)


def matmul(a: Any, b: Any, out_dtype: Any) -> Any:
    """The result of `matmul` on arrays, or NotImplemented."""
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:     # one gemm
        made = matmul(a.reshape(-1, a.shape[-1]) if a.size else a[..., 0, :], b, out_dtype)
        return made if made is NotImplemented else made.reshape(*a.shape[:-1], b.shape[1])
    if out_dtype is not None and out_dtype.np != np.float32 and out_dtype.np != a.dtype:
        return NotImplemented
    wide = out_dtype is not None and out_dtype.np == np.float32
    return multiply(a, b, np.float32 if wide else None)


def linear(x: Any, w: Any, b: Any) -> Any:
    """The result of `linear` on arrays, or NotImplemented."""
    if w.ndim != 2 or x.ndim == 0:
        return NotImplemented
    half = x.dtype == BFLOAT16
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y = multiply(rows, w.T, np.float32 if half else None)
    if y is NotImplemented:
        return y
    if b is not None:
        y += b
    return (y.astype(x.dtype) if half else y).reshape(*x.shape[:-1], w.shape[0])


def both(a: Any, b: Any) -> Any:
    """The product of two arrays, or NotImplemented."""
    return multiply(a, b) if a.ndim > 1 and b.ndim > 1 else NotImplemented


contract.FASTER.append(both)
native.fill({made.__name__: made for made in (matmul, linear)})

"""Eager kernels in C, where numpy's are much slower: convolutions of float32 images.

They fill the ops' slots. What compiles and loads them is imported at the first call. Small calls
and other dtypes stay with numpy, and so does everything where there is no compiler.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lehr.base import log
from lehr.ops import registry
from lehr.ops.patch import each, out_size
from lehr.ops.registry import Op
from lehr.tensor import kernel
from lehr.tensor.tensor import Tensor

LEAST = 1 << 20  # products that are worth a call
NARROW = (1, 2, 4, 8, 16)  # see `lehr.compiler.emit.convolution`
_tell = log.channel("run")
_Int = ctypes.c_int64
_Three, _Four = _Int * 3, _Int * 4


class Call(ctypes.Structure):
    """`lehr_convolution` of runtime.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "w", "y")),
        *((name, _Int) for name in ("batch", "groups", "in", "out", "transposed")),
        *((name, _Three) for name in ("size", "many", "kernel", "stride", "pad", "dilation")),
        ("x_step", _Four), ("y_step", _Four), ("w_step", _Int * 6),
        *((name, ctypes.c_void_p) for name in ("x_from", "y_from", "y_into")),
        ("x_turn", _Int * 2), ("y_turn", _Int * 2), ("y_bias", ctypes.c_void_p)]


class Turn(ctypes.Structure):
    """`lehr_turn` of convolution.c."""

    _fields_ = [("apart", ctypes.c_void_p), ("together", ctypes.c_void_p),
                ("bias", ctypes.c_void_p),
                *((name, _Int) for name in ("n", "c", "p", "n_step", "c_step", "back"))]


class Library:
    """The functions of a template, or with one, if it is of use here, those of the runtime; in a
    process that has a compiler or its code."""

    def __init__(self, name: str, runtime: bool = False) -> None:
        from lehr.compiler.run import pool, template

        made = template.need(name)
        if runtime:
            made = pool.pool().library
        assert made is not None
        self._made, self._table = made, pool.pool().table
        self._functions: dict[str, Callable[..., Any]] = {}

    def call(self, name: str, record: ctypes.Structure) -> None:
        """Runs a function of (runtime, record)."""
        found = self._functions.get(name)
        if found is None:
            found = self._made.function(name, None, ctypes.c_void_p, ctypes.c_void_p)
            self._functions[name] = found
        found(self._table, ctypes.byref(record))


@functools.cache
def library(name: str, runtime: bool = False) -> Library | None:
    """A template's functions; None where there is no compiler, which is said once in the log."""
    from lehr.compiler.run.library import LoadError
    from lehr.compiler.run.toolchain import CompileError

    try:
        return Library(name, runtime)
    except (CompileError, LoadError) as error:
        _tell("%s by numpy: %s", name, error)
        return None


def together(k: Library, x: Any) -> Any:
    """Images [n, c, *size] as [n, *size, c], channels together."""
    last = np.moveaxis(x, 1, -1)
    if x.strides[1] == 4 or x.shape[1] == 1:
        return last
    if not _dense(x):
        return np.ascontiguousarray(last)
    made = np.empty(last.shape, np.float32)
    _turn(k, x, made, 0)
    return made


def apart(k: Library, last: Any, bias: Any = None) -> Any:
    """Dense [n, *size, c] as dense [n, c, *size], plus a number for each c."""
    made = np.empty((last.shape[0], last.shape[-1], *last.shape[1:-1]), np.float32)
    _turn(k, made, last, 1, bias)
    return made


def _turn(k: Library, x: Any, last: Any, back: int, bias: Any = None) -> None:
    q = Turn(x.ctypes.data, last.ctypes.data, None if bias is None else bias.ctypes.data,
             x.shape[0], x.shape[1], math.prod(x.shape[2:]),
             x.strides[0] // 4, x.strides[1] // 4, back)
    k.call("lehr_turn_images", q)


def _dense(x: Any) -> bool:
    """Whether the last dimensions walk memory as one."""
    step = 4
    for n, s in zip(x.shape[:1:-1], x.strides[:1:-1], strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return all(s % 4 == 0 for s in x.strides)


def _call(x: Any, w: Any, y: Any, groups: int, geometry: Sequence[Sequence[int]],
          transposed: bool) -> Call:
    """`x` and `y` are [n, *size, c]; `geometry`: stride, padding, dilation."""
    n = x.ndim - 2

    def three(values: Sequence[int], one: int) -> Any:
        return _Three(*(one,) * (3 - n), *values)

    def steps(a: Any) -> Any:
        s = [v // 4 for v in a.strides]
        return _Four(s[0], *(0,) * (3 - n), *s[1:-1])
    ws = [v // 4 for v in w.strides]
    order = (ws[1], ws[0]) if transposed else (ws[0], ws[1])
    return Call(x.ctypes.data, w.ctypes.data, y.ctypes.data, x.shape[0], groups,
                x.shape[-1] // groups, y.shape[-1] // groups, int(transposed),
                three(x.shape[1:-1], 1), three(y.shape[1:-1], 1), three(w.shape[2:], 1),
                three(geometry[0], 1), three(geometry[1], 0), three(geometry[2], 1), steps(x),
                steps(y), (_Int * 6)(w.shape[0] // groups * ws[0], *order, *(0,) * (3 - n),
                                     *ws[2:]))


def _worth(x: Any, w: Any, products: int) -> Library | None:
    """The kernels, for a call that they do and that is worth it."""
    if products < LEAST or x.dtype != np.float32 or w.dtype != np.float32 or x.ndim > 5:
        return None
    return library("convolution")


def _run(k: Library, function: str, q: Call) -> None:
    """Groups of few channels have a template of their own."""
    few = q.groups > 1 and getattr(q, "in") == q.out and q.out in NARROW
    narrow = library("depthwise") if few else None
    if narrow is None:
        k.call(function, q)
    else:
        narrow.call(f"{function}_narrow", q)


def _channels_last(*arrays: Any) -> bool:
    return any(a.ndim > 3 and a.strides[1] == 4 and a.shape[1] > 1 and not a.flags.c_contiguous
               for a in arrays)


def _aligned(a: Any) -> Any:
    """An array whose strides are whole elements."""
    return a if all(s % 4 == 0 for s in a.strides) else np.ascontiguousarray(a)


def convolution(x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any,
                transposed: Any, output_padding: Any, groups: Any, out_dtype: Any) -> Any:
    """The result of `convolution` on arrays, or NotImplemented."""
    n = w.ndim - 2
    geometry = [each(v, n, "size") for v in (stride, padding, dilation)]
    rows = zip(x.shape[2:], w.shape[2:], *geometry, strict=True)
    if transposed:
        extra = each(output_padding, n, "output_padding")
        size = [(i - 1) * s - 2 * p + d * (k - 1) + e + 1
                for (i, k, s, p, d), e in zip(rows, extra, strict=True)]
        outputs = w.shape[1] * groups
    else:
        size = [out_size(i, k, s, p, d) for i, k, s, p, d in rows]
        outputs = w.shape[0]
    many = x.shape[2:] if transposed else size
    k = _worth(x, w, x.shape[0] * math.prod(many) * w.size)
    if k is None:
        return NotImplemented
    last = _channels_last(x, w)
    x, w = together(k, _aligned(x)), _aligned(w)
    y = np.empty((x.shape[0], *size, outputs), np.float32)
    q = _call(x, w, y, groups, geometry, transposed)
    _run(k, "lehr_convolve", q)
    if not last:
        return apart(k, y, None if b is None else np.ascontiguousarray(b, np.float32))
    if b is not None:
        y += b
    return np.moveaxis(y, -1, 1)


def conv_weight(x: Any, g: Any, size: Any, stride: Any, padding: Any, dilation: Any,
                groups: Any) -> Any:
    """The result of `conv_weight` on arrays, or NotImplemented."""
    n = len(size)
    k = _worth(x, g, g.size * x.shape[1] // groups * math.prod(size))
    if k is None:
        return NotImplemented
    made = np.empty((g.shape[1], x.shape[1] // groups, *size), np.float32)
    x, g = together(k, _aligned(x)), together(k, _aligned(g))
    geometry = [each(v, n, "size") for v in (stride, padding, dilation)]
    q = _call(x, made, g, groups, geometry, False)
    _run(k, "lehr_convolve_weight", q)
    return made


KERNELS: dict[str, Callable[..., Any]] = {"convolution": convolution, "conv_weight": conv_weight}


def run(op: Op, args: tuple[Any, ...], plan: kernel.Plan) -> Any:
    """What stands in an op's slot: the result as a tensor, or NotImplemented."""
    values = [t._array if isinstance(t, Tensor) else t for t in args]
    made = KERNELS[op.name](*values)
    if made is NotImplemented:
        return made
    if not plan.several:
        return kernel.finish(op, made, plan.results[0], values)
    parts = tuple([kernel.finish(op, a, r, values)
                   for a, r in zip(made, plan.results, strict=True)])
    return op.signature.named(*parts) if op.signature.named else parts


def fill(kernels: dict[str, Callable[..., Any]]) -> None:
    """Puts kernels, arrays in and arrays or NotImplemented out, into the ops' slots."""
    KERNELS.update(kernels)
    for name in kernels:
        registry.get(name).slots["cpu"] = run


fill(KERNELS)

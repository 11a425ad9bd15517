"""Eager attention and its gradients in C: the templates that compiled programs call.

float32 matrices whose rows lie together, without dropout; small calls and everything else stay with
numpy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from lehr.tensor import native

LEAST = 1 << 18     # products that are worth a call
STEP = 16           # sizes of rows are multiples of it
_Int = ctypes.c_int64
_Four, _Five = _Int * 4, _Int * 5
MOST = 4            # batch dimensions


class Attention(ctypes.Structure):
    """`lehr_attention` of runtime.h."""

    _fields_ = [*((name, ctypes.c_void_p) for name in ("q", "k", "v", "g", "mask", "out", "dq",
                                                       "dk", "dv", "rise", "lse")),
                ("batch", _Four), *((name, _Int) for name in ("l", "s", "e", "ev", "causal",
                                                              "mask_kind")),
                *((f"{name}_step", _Five) for name in ("q", "k", "v", "g", "rise")),
                ("mask_step", _Int * 6),
                *((f"{name}_step", _Five) for name in ("out", "lse", "dq", "dk", "dv")),
                ("scale", ctypes.c_float)]


def _library(q: Any, k: Any, v: Any, mask: Any, batch: tuple[int, ...], p: float, name: str
             ) -> native.Library | None:
    work = int(np.prod(batch, dtype=np.int64)) * q.shape[-2] * k.shape[-2] * q.shape[-1]
    if (work < LEAST or p or len(batch) > MOST or k.shape[-2] == 0
            or any(a.dtype != np.float32 for a in (q, k, v))
            or any(a.shape[-1] == 0 or a.shape[-1] % STEP for a in (q, v))
            or mask is not None and mask.dtype not in (np.bool_, np.float32)):
        return None
    return native.library(name)


def _along(a: Any) -> Any:
    """An array whose rows lie together, at whole elements."""
    good = a.strides[-1] == 4 and all(s % 4 == 0 for s in a.strides)
    return a if good else np.ascontiguousarray(a)


def _steps(a: Any, own: int, size: int = 4) -> tuple[int, ...]:
    """Steps of MOST batch dimensions and `own` others: 0 where there is but one."""
    kept = [0 if n == 1 else s // size for n, s in zip(a.shape, a.strides, strict=True)]
    return (*(0,) * (MOST + own - len(kept)), *kept)


def _call(batch: tuple[int, ...], scale: float, causal: bool, mask: Any, matrices: dict[str, Any],
          rows: dict[str, Any]) -> Attention:
    q, v = matrices["q"], matrices["v"]
    made = Attention(batch=_Four(*(1,) * (MOST - len(batch)), *batch), l=q.shape[-2],
                     s=v.shape[-2], e=q.shape[-1], ev=v.shape[-1], causal=int(causal), scale=scale)
    for name, a in matrices.items():
        setattr(made, name, a.ctypes.data)
        setattr(made, f"{name}_step", _Five(*_steps(a, 2)[:MOST + 1]))
    for name, a in rows.items():
        setattr(made, name, a.ctypes.data)
        setattr(made, f"{name}_step", _Five(*_steps(a, 1)))
    if mask is not None:
        size = mask.itemsize
        made.mask, made.mask_kind = mask.ctypes.data, 1 if size == 1 else 2
        made.mask_step = (_Int * 6)(*_steps(mask, 2, size))
    return made


def attention(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool, p: float, seed: int,
              offset: int) -> Any:
    """The results of `attention` on arrays, or NotImplemented."""
    shapes = [a.shape[:-2] for a in (q, k, v, mask) if a is not None]
    batch = np.broadcast_shapes(*shapes)
    made = _library(q, k, v, mask, batch, p, "attention")
    if made is None:
        return NotImplemented
    shape = (*batch, q.shape[-2], v.shape[-1])
    out = np.empty_like(q) if shape == q.shape and q.strides[-1] == 4 else np.empty(
        shape, np.float32)
    lse = np.empty(shape[:-1], np.float32)
    mask = mask if mask is None or all(s % mask.itemsize == 0 for s in mask.strides) else (
        np.ascontiguousarray(mask))
    matrices = {"q": _along(q), "k": _along(k), "v": _along(v), "out": out}
    made.call("lehr_attend", _call(batch, scale, causal, mask, matrices, {"lse": lse}))
    return out, lse


def attention_grad(g: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, rise: Any, mask: Any,
                   scale: float, causal: bool, p: float, seed: int, offset: int) -> Any:
    """The results of `attention_grad` on arrays, or NotImplemented."""
    batch = lse.shape[:-1]
    made = _library(q, k, v, mask, batch, p, "attention_back")
    if made is None or any(a is not None and a.dtype != np.float32 for a in (g, out, lse, rise)):
        return NotImplemented
    grads = {name: np.empty((*batch, *a.shape[-2:]), np.float32)
             for name, a in (("dq", q), ("dk", k), ("dv", v))}
    matrices = {n: _along(a) for n, a in (("g", g), ("q", q), ("k", k), ("v", v), ("out", out))}
    rows = {"lse": lse} if rise is None else {"lse": lse, "rise": rise}
    rows = {n: a if all(s % 4 == 0 for s in a.strides) else np.ascontiguousarray(a)
            for n, a in rows.items()}
    made.call("lehr_attend_back", _call(batch, scale, causal, mask, {**matrices, **grads}, rows))
    return tuple(grads.values())


native.fill({"attention": attention, "attention_grad": attention_grad})

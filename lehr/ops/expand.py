"""Runs the composite bodies of an op, `decomp` and `vjp`, in the precision that its `eager` has.

An op computes half precision in float32 and rounds once. Its `decomp` would round after every step
if it ran on half-precision values as it stands, and so would its `vjp`; every interpreter
therefore goes through here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.ops.registry import Op
from lehr.ops.saving import RESULT


def decompose(F: Any, op: Op, bound: tuple[Any, ...], spec: Any) -> Any:
    """`op.decomp` over `F`: tensor operands cast to the computing dtype (half precision as
    float32), results cast to the spec's dtypes. NotImplemented where this call is primitive."""
    assert op.decomp is not None, op
    compute = _first(spec).compute
    out = op.decomp(F, *(bound if compute is None else _operands(F, op, bound, compute.wide)))
    if out is NotImplemented:
        return out
    if type(spec) is tuple:
        return tuple(_cast(F, o, s.dtype) for o, s in zip(out, spec, strict=True))
    return _cast(F, out, spec.dtype)


def pullback(F: Any, op: Op, g: Any, out: Any, bound: tuple[Any, ...]) -> Any:
    """`op.vjp` over `F`, with half-precision values as float32 where the op computes so (and is not
    `exact`), and conjugated around where the gradient is complex and the op holomorphic.

    The caller still undoes broadcasting and casts each gradient to its input's dtype.
    """
    assert op.vjp is not None, op
    if _any_dtype(g, lambda d: d.is_complex) and op.name not in CONJUGATED:
        return _conjugated(F, op.vjp(F, _conjugated(F, g), out, *bound))
    if (op.exact or not _any_dtype(g, lambda d: d.wide is not d)
            or _first(op.rule(*bound)).compute is None):
        return op.vjp(F, g, out, *bound)
    saves = op.saves
    args = [_widen(F, a) if p.is_tensor and saves[p.name] == "value" else a
            for p, a in zip(op.params, bound, strict=True)]
    out = _widen(F, out) if saves[RESULT] == "value" else out
    return op.vjp(F, _widen(F, g), out, *args)


# Ops that are not holomorphic: their rules are right for complex gradients as they stand.
CONJUGATED = frozenset(("complex", "polar", "conj", "view_as_complex", "sgn", "linalg_eig"))


def _conjugated(F: Any, g: Any) -> Any:
    """The conjugate of gradients, of those still to be computed when they are."""
    if type(g) in (list, tuple):
        return type(g)(_conjugated(F, v) for v in g)
    if g is None:
        return None
    if not hasattr(g, "dtype"):
        return lambda: _conjugated(F, g())
    return F.conj(g) if g.dtype.is_complex else g


def _any_dtype(g: Any, test: Callable[[DType], bool]) -> bool:
    if isinstance(g, (list, tuple)):
        return any(_any_dtype(v, test) for v in g)
    return g is not None and test(g.dtype)


def _first(spec: Any) -> Any:
    return spec[0] if type(spec) is tuple else spec


def _operands(F: Any, op: Op, bound: tuple[Any, ...], dtype: DType) -> list[Any]:
    args = list(bound)
    for i, p in enumerate(op.params):
        if not p.is_tensor:
            continue
        if isinstance(args[i], (list, tuple)):
            args[i] = [_cast(F, x, dtype) for x in args[i]]
        else:
            args[i] = _cast(F, args[i], dtype)
    return args


def _cast(F: Any, x: Any, dtype: DType) -> Any:
    """Numbers and None stay as they are."""
    have = getattr(x, "dtype", None)
    return x if have is None or have is dtype else F.to_dtype(x, dtype)


def _widen(F: Any, x: Any) -> Any:
    if getattr(x, "is_description", False):  # the tape did not keep the value
        return x
    if isinstance(x, (list, tuple)):
        return type(x)(_widen(F, v) for v in x)
    have = getattr(x, "dtype", dt.float32)
    return x if have.wide is have else F.to_dtype(x, have.wide)

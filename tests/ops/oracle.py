"""torch as an oracle for ops, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops.registry import Op
from lehr.ops.sample import Sample

try:
    import torch
except ImportError:
    torch = None

# Relative and absolute tolerance by result dtype. Between our own interpreters half precision
# differs by one unit in the last place at most; torch rounds some intermediate results to half
# precision.
STRICT = {"float64": (1e-11, 1e-12), "float32": (2e-6, 1e-6), "float16": (1e-3, 1e-6),
          "bfloat16": (8e-3, 1e-6), "complex64": (2e-6, 1e-6), "complex128": (1e-11, 1e-12)}
TOLERANCE = STRICT | {"float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2)}


def tolerance(op: Op, dtype: DType, table: dict[str, tuple[float, float]]) -> tuple[float, float]:
    return op.tolerance.get(dtype.name, table.get(dtype.name, (0.0, 0.0)))


def agree(have: Any, want: Any, rtol: float, atol: float) -> str:
    """Empty where two arrays agree in shape, dtype and values; else what differs."""
    have, want = np.asarray(have), np.asarray(want)
    if have.dtype != want.dtype:
        return f"dtype {have.dtype}, expected {want.dtype}"
    if have.shape != want.shape:
        return f"shape {have.shape}, expected {want.shape}"
    if have.dtype.kind == "c":
        have, want = (np.stack([x.real, x.imag], -1) for x in (have, want))
    if have.dtype.kind in "biu":
        bad = have != want
    else:
        a, b = have.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= atol + rtol * np.abs(b)
            bad = ~((a == b) | near | (np.isnan(a) & np.isnan(b)))
            bad |= np.isinf(b) & (a != b)
    if not bad.any():
        return ""
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    return (f"{int(bad.sum())} of {bad.size} differ, first at {where}: {have[where]}, "
            f"expected {want[where]}")


def to_torch(a: Any) -> Any:
    """Arrays, dtypes and devices as torch's, also inside lists."""
    if isinstance(a, np.ndarray):
        if dt.of_numpy(a.dtype) is dt.bfloat16:
            return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(a)
    if isinstance(a, DType):
        return getattr(torch, a.name)
    if isinstance(a, Device):
        return str(a)
    return type(a)(map(to_torch, a)) if type(a) in (list, tuple) else a


def from_torch(a: Any) -> Any:
    """Tensors as arrays, also inside (named) tuples."""
    if isinstance(a, torch.Tensor):
        a = a.detach().resolve_conj()
        if a.dtype is torch.bfloat16:
            return a.contiguous().view(torch.int16).numpy().view(dt.bfloat16.np)
        return a.numpy()
    return tuple(map(from_torch, a)) if isinstance(a, (list, tuple)) else a


def lookup(path: str) -> Any:
    """torch's object at a dotted path below the package, or None."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def function(op: Op) -> Any:
    """What torch calls `op`: a callable, or None where it has nothing by that name."""
    if "inplace" in op.where and not op.places:
        method = getattr(torch.Tensor, f"{op.api}_", None)
        return method and (lambda x, *args, **kwargs: method(x.clone(), *args, **kwargs))
    for path in op.places:
        found = lookup(path)
        if callable(found):
            return found
        if found is not None:  # a property
            return lambda x, name=path.rpartition(".")[2]: getattr(x, name)
    return None


def call(op: Op, sample: Sample) -> Any:
    """torch's result for the sample, as tensors; raises what torch raises."""
    kwargs = {k: to_torch(v) for k, v in sample.kwargs.items()}
    return function(op)(*to_torch(list(sample.args)), **kwargs)

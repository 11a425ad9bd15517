"""`assert_close` and `make_tensor`, for tests of programs that use lehr."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.tensor import create, random
from lehr.tensor.tensor import Tensor

# dtype -> (rtol, atol)
TOLERANCES = {dt.float16: (1e-3, 1e-5), dt.bfloat16: (1.6e-2, 1e-5), dt.float32: (1.3e-6, 1e-5),
              dt.float64: (1e-7, 1e-7), dt.complex64: (1.3e-6, 1e-5), dt.complex128: (1e-7, 1e-7)}


class Check:
    """What a comparison was asked for."""

    def __init__(self, rtol: float | None, atol: float | None, **flags: Any) -> None:
        if (rtol is None) != (atol is None):
            raise ValueError("Both 'rtol' and 'atol' must be either specified or omitted, but got "
                             f"no {'rtol' if rtol is None else 'atol'}.")
        self.rtol, self.atol, self.flags = rtol, atol, flags

    def tolerances(self, *dtypes: DType) -> tuple[float, float]:
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)

    def fail(self, path: str, text: str) -> None:
        if path:
            text += f"\n\nThe failure occurred for item {path}"
        msg = self.flags["msg"]
        if msg is not None:
            text = msg(text) if callable(msg) else msg
        raise AssertionError(text)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True,
                 rtol: float | None = None, atol: float | None = None, equal_nan: bool = False,
                 check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
                 check_stride: bool = False, msg: str | Callable[[str], str] | None = None) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, numbers, and sequences and mappings of them; tolerances by dtype unless both are given.
    """
    check = Check(rtol, atol, equal_nan=equal_nan, check_device=check_device,
                  check_dtype=check_dtype, check_stride=check_stride, msg=msg,
                  allow_subclasses=allow_subclasses)
    _compare(check, actual, expected, "")


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) and not isinstance(x, Tensor)


def _compare(check: Check, a: Any, b: Any, path: str) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            extra = sorted(map(str, a.keys() - b.keys()))
            lacking = sorted(map(str, b.keys() - a.keys()))
            check.fail(path, "The keys of the mappings do not match:\nMissing keys in the actual "
                             f"mapping: {lacking}\nAdditional keys in the actual mapping: {extra}")
        for k in b:
            _compare(check, a[k], b[k], f"{path}[{k!r}]")
    elif _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            check.fail(path, f"The length of the sequences mismatch: {len(a)} != {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(check, x, y, f"{path}[{i}]")
    elif a is None or b is None:
        if a is not b:
            check.fail(path, f"None mismatch: {a} is not {b}")
    elif _is_number(a) and _is_number(b):
        _scalars(check, a, b, path)
    else:
        _tensors(check, a, b, path)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str)


def _scalars(check: Check, a: Any, b: Any, path: str) -> None:
    if check.flags["check_dtype"] and type(a) is not type(b):
        check.fail(path, f"The (d)types do not match: {type(a)} != {type(b)}.")
    kinds = [dt.of_category(dt.category_of(x)) if not isinstance(x, float) else dt.float64
             for x in (a, b)]
    _close(check, a, b, *check.tolerances(*kinds), path)


def _close(check: Check, a: Any, b: Any, rtol: float, atol: float, path: str) -> None:
    """Two numbers."""
    if a == b or (check.flags["equal_nan"] and a != a and b != b):
        return
    if math.isfinite(abs(a)) and math.isfinite(abs(b)) and abs(a - b) <= atol + rtol * abs(b):
        return
    difference = abs(a - b)
    relative = difference / abs(b) if b else math.inf
    if rtol == atol == 0:
        check.fail(path, f"Scalars are not equal!\n\nExpected {b} but got {a}.\nAbsolute "
                         f"difference: {difference}\nRelative difference: {relative}")
    check.fail(path, f"Scalars are not close!\n\nExpected {b} but got {a}.\nAbsolute difference: "
                     f"{difference} (up to {atol} allowed)\nRelative difference: {relative} (up to "
                     f"{rtol} allowed)")


def _tensors(check: Check, a: Any, b: Any, path: str) -> None:
    try:
        x, y = (t if isinstance(t, Tensor) else create.as_tensor(t) for t in (a, b))
    except (TypeError, RuntimeError, ValueError):
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and "
                        f"{type(b)}.") from None
    if not check.flags["allow_subclasses"] and type(a) is not type(b):
        check.fail(path, f"The types do not match: {type(a)} != {type(b)}")
    if x._shape != y._shape:
        check.fail(path, f"The values for attribute 'shape' do not match: {x.shape} != {y.shape}.")
    for name in ("device", "dtype"):
        if check.flags[f"check_{name}"] and getattr(x, name) is not getattr(y, name):
            check.fail(path, f"The values for attribute '{name}' do not match: {getattr(x, name)} "
                             f"!= {getattr(y, name)}.")
    if check.flags["check_stride"] and x.stride() != y.stride():
        check.fail(path, f"The values for attribute 'stride()' do not match: {x.stride()} != "
                         f"{y.stride()}.")
    rtol, atol = check.tolerances(x.dtype, y.dtype)
    if not x._shape:
        _close(check, x.item(), y.item(), rtol, atol, path)
        return
    _values(check, x, y, rtol, atol, path)


def _values(check: Check, x: Tensor, y: Tensor, rtol: float, atol: float, path: str) -> None:
    wide = dt.promote(x.dtype, y.dtype)
    kind = np.complex128 if wide.is_complex else np.float64 if wide.is_floating_point else np.int64
    p, q = (t.detach().cpu()._array.astype(kind) for t in (x, y))
    with np.errstate(all="ignore"):
        size = np.abs(p - q)
        same = p == q
        if check.flags["equal_nan"]:
            same |= (p != p) & (q != q)
        close = same | (np.isfinite(p) & np.isfinite(q) & (size <= atol + rtol * np.abs(q)))
        if close.all():
            return
        relative = size / np.abs(q)
    size, relative = (np.where(close, 0, v) for v in (size, relative))
    wrong, total = int((~close).sum()), close.size
    lines = [f"Tensor-likes are not {'equal' if rtol == atol == 0 else 'close'}!", "",
             f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})"]
    for name, values, limit in (("absolute", size, atol), ("relative", relative, rtol)):
        at = np.unravel_index(int(np.argmax(np.nan_to_num(values, nan=np.inf))), values.shape)
        shown = values[at].item()
        allowed = "" if rtol == atol == 0 else f" (up to {limit} allowed)"
        place = tuple(int(i) for i in at)
        lines.append(f"Greatest {name} difference: {shown} at index {place}{allowed}")
    check.fail(path, "\n".join(lines))


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None,
                    atol: float | None = None, equal_nan: bool = True, msg: str = "") -> None:
    """An old form of `assert_close`."""
    assert_close(create.as_tensor(actual), create.as_tensor(expected), rtol=rtol, atol=atol,
                 equal_nan=equal_nan, check_dtype=False, check_device=True, msg=msg or None)


def make_tensor(*shape: Any, dtype: DType, device: Any = None, low: Any = None, high: Any = None,
                requires_grad: bool = False, noncontiguous: bool = False,
                exclude_zero: bool = False, memory_format: Any = None) -> Tensor:
    """Random numbers of a dtype: uniform in [low, high), by default [-9, 9] (bool: both values)."""
    size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    asked = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    made: Any
    if dtype is dt.bool_:
        made = random.randint(0, 2, asked, dtype=dtype, device=device)
    elif dtype.category == dt.INT:
        first = (0 if not dtype.signed else -9) if low is None else math.ceil(low)
        made = random.randint(first, 10 if high is None else math.ceil(high), asked, dtype=dtype,
                              device=device)
    else:
        first, last = -9 if low is None else low, 9 if high is None else high
        made = random.rand(asked, dtype=dtype.to_real(), device=device) * (last - first) + first
        made = made.to(dtype)
    if noncontiguous and size:
        made = made[..., ::2]
    if exclude_zero:
        made[made == 0] = 1 if dtype.is_integer else float(np.finfo(np.float32).tiny)
    if memory_format is not None:
        made = made.clone(memory_format=memory_format)
    return made.requires_grad_() if requires_grad else made

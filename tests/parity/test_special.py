"""Elementwise ops at the edges of their types: NaN, infinities, signed zeros, halves to be rounded,
integers that overflow; every dtype, values and gradients, against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lehr
import lehr.ops.families
from lehr.ops.registry import OPS, POINTWISE, REQUIRED, Op
from tests.ops import oracle

torch = pytest.importorskip("torch")

FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0,
          -3.0, 1e30, -1e30, 88.7, -104.0, 2.0 ** 31, 300.0, -300.0]
INTEGERS = {"int8": [0, 1, -1, 127, -128, 2, 7, -7, 100], "uint8": [0, 1, 255, 254, 128, 2, 7],
            "int16": [0, 1, -1, 32767, -32768, 3, -5, 200], "bool": [0, 1],
            "int32": [0, 1, -1, 2 ** 31 - 1, -2 ** 31, 5, -7, 12],
            "int64": [0, 1, -1, 2 ** 63 - 1, -2 ** 63, 5, -7, 63, 64]}
DTYPES = ("float32", "float64", "bfloat16", *INTEGERS)
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 2e-2, "complex64": 2e-5,
             "complex128": 1e-9}

# Where torch is not followed: op -> (dtypes or "grad", why).
OTHER = {
    "lcm": ("int8 int16 int32 int64", "torch divides by -1 and is killed by the processor"),
    "gcd": ("int8 int16 int32 int64", "torch's is negative where a magnitude overflows"),
    "floor_divide": ("grad", "has no gradient here, an error in torch"),
    "sinc": ("bfloat16", "torch multiplies by pi in half precision"),
    "erfcx": ("grad bfloat16", "torch's difference cancels; half precision computes as float32"),
    "digamma": ("grad", "the poles of the derivative"),
    "zeta": ("float32 float64 bfloat16 int64", "infinite exponents"),
    "ndtr": ("bfloat16", "torch rounds between two steps"),
    "ndtri": ("bfloat16", "half precision computes as float32"),
    "log_ndtr": ("grad bfloat16", "torch's tail cancels"),
    "i1": ("grad", "NaN gives NaN"), "i1e": ("grad", "NaN gives NaN"),
    "igamma": ("float32 float64 bfloat16", "equal arguments beyond 2 ** 31"),
    "igammac": ("float32 float64 bfloat16", "equal arguments beyond 2 ** 31"),
    "gelu": ("float32 bfloat16", "torch's gelu(inf) is NaN for vectors"),
    "softsign": ("grad", "the limit at infinity is 0; torch has NaN"),
    "polar": ("float32", "torch's sines are approximate"),
}
for _name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"):
    OTHER[_name] = (" ".join(("grad", *DTYPES)),
                    "torch is off at large arguments: see tests/ops/test_bessel.py")
HALF = ("half precision computes as float32", "spherical_bessel_j0 modified_bessel_k0 "
        "modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1")
for _name in HALF[1].split():
    OTHER[_name] = ("bfloat16 grad", HALF[0])


def public(op: Op) -> Any:
    found: Any = lehr
    for name in op.places[0].split(".") if op.places else ():
        found = getattr(found, name, None)
    return found if op.places else None


def operands(op: Op) -> int:
    """How many tensors the op needs; 0 where it needs anything else."""
    needed = [p for p in op.params if p.default is REQUIRED]
    plain = all(p.is_tensor and not p.variadic for p in needed)
    known = plain and callable(public(op)) and oracle.function(op) is not None
    endless = op.module.endswith("polynomial")  # their degrees are operands
    return len(needed) if known and not endless and op.name != "dropout" else 0


CASES = [(op, dtype) for op in OPS.values() if op.kind == POINTWISE and operands(op) in (1, 2)
         for dtype in DTYPES]


def grid(dtype: str, count: int) -> list[Any]:
    """Every value, or every pair of values."""
    values = torch.tensor(INTEGERS.get(dtype, FLOATS),
                          dtype=getattr(torch, dtype) if dtype in INTEGERS else torch.float64)
    values = values.to(getattr(torch, dtype))
    n = len(values)
    pair = values[:, None].expand(n, n), values[None].expand(n, n)
    return [values] if count == 1 else [v.contiguous() for v in pair]


def ours(x: Any) -> Any:
    if x.dtype is torch.bfloat16:
        return lehr.from_numpy(x.float().numpy().copy()).to(lehr.bfloat16)
    return lehr.from_numpy(x.numpy().copy())


def attempt(call: Any) -> tuple[Any, str | None]:
    try:
        return call(), None
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return None, f"{type(error).__name__}: {error}"


def array(x: Any) -> tuple[str, np.ndarray]:
    name = str(x.dtype).removeprefix("torch.")
    x = (x.detach() if isinstance(x, lehr.Tensor) else x.detach().clone())  # a ZeroTensor as well
    return name, np.asarray((x.float() if name == "bfloat16" else x).numpy())


def differing(have: Any, want: Any) -> str:
    (kind, a), (told, b) = array(have), array(want)
    if kind != told:
        return f"dtype {kind}, torch has {told}"
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= TOLERANCE.get(told, 0) * np.maximum(np.abs(b), 1e-3) \
            if told in TOLERANCE else False
        same = (a == b) | near
        if told in TOLERANCE:
            same |= np.isnan(a) & np.isnan(b)
    bad = np.argwhere(~same)
    if not len(bad):
        return ""
    at = tuple(bad[0])
    return f"{len(bad)} differ, first at {at}: {a[at]}, torch has {b[at]}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda v: getattr(v, "name", v))
def test_values(op: Op, dtype: str) -> None:
    if dtype in OTHER.get(op.name, ("",))[0].split():
        pytest.skip(OTHER[op.name][1])
    function, xs = oracle.function(op), grid(dtype, operands(op))
    want, refused = attempt(lambda: function(*xs))
    have, error = attempt(lambda: public(op)(*map(ours, xs)))
    assert (error is None) == (refused is None), f"{error}; torch: {refused}"
    if error is None:
        many = isinstance(want, tuple)
        for a, b in zip(have if many else (have,), want if many else (want,), strict=True):
            found = differing(a, b)
            assert not found, found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [op for op, dtype in CASES if dtype == "float32"],
                         ids=lambda op: op.name)
def test_gradients(op: Op) -> None:
    if "grad" in OTHER.get(op.name, ("",))[0].split() or op.nondiff is True:
        pytest.skip(OTHER.get(op.name, ("", "no gradient"))[1])
    function, xs = oracle.function(op), grid("float32", operands(op))
    out, refused = attempt(lambda: function(*xs))
    if refused or not isinstance(out, torch.Tensor) or not out.is_floating_point():
        pytest.skip("no real result")
    for i in range(len(xs)):
        theirs = [x.clone().requires_grad_() for x in xs]
        mine = [ours(x).requires_grad_() for x in xs]
        want, refused = attempt(lambda t=theirs, i=i: torch.autograd.grad(
            function(*t).sum(), t[i], allow_unused=True)[0])
        have, error = attempt(lambda m=mine, i=i: lehr.autograd.grad(
            public(op)(*m).sum(), m[i], allow_unused=True)[0])
        assert (error is None) == (refused is None), f"{error}; torch: {refused}"
        assert (have is None) == (want is None)
        found = "" if have is None else differing(have, want)
        assert not found, f"gradient {i}: {found}"

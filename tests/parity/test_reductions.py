"""Reductions, running values and sorts at the edges of their types, every dtype, against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

FLOATS = [[1.5, math.nan, -2.0, 3.0, 0.0], [math.inf, 1.0, -math.inf, 2.5, -0.0],
          [1.0, 2.0, 2.0, 1.0, 7.25], [-1.0, -1.0, 0.5, 0.5, 0.5]]
INTEGERS = {"int8": [[127, 1, -128, 5, 0], [100, 100, 100, 3, -7], [-1, -1, 2, 2, 2]],
            "uint8": [[255, 1, 128, 5, 0], [100, 100, 100, 3, 7], [1, 1, 2, 2, 2]],
            "int16": [[32767, 1, -32768, 5, 0], [300, 300, 300, 3, -7], [-1, -1, 2, 2, 2]],
            "int32": [[2 ** 31 - 1, 1, -2 ** 31, 5, 0], [70000, 70000, 70000, 3, -7]],
            "int64": [[2 ** 63 - 1, 1, -2 ** 63, 5, 0], [2 ** 32, 2 ** 32, 4, 3, -7]],
            "bool": [[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]}
DTYPES = ("float32", "float64", "bfloat16", "float16", *INTEGERS)
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2, "float16": 4e-3}

CALLS: dict[str, Any] = {
    **{name: lambda lib, x, name=name: getattr(lib, name)(x, 1) for name in (
        "sum mean prod amax amin max min argmax argmin any all std var logsumexp nansum nanmean "
        "median nanmedian cumsum cumprod cummax cummin logcumsumexp count_nonzero softmax "
        "log_softmax diff").split()},
    **{f"{name}_all": lambda lib, x, name=name: getattr(lib, name)(x) for name in (
        "sum mean prod amax amin max min argmax argmin any all std var nansum nanmean median "
        "nanmedian count_nonzero aminmax unique").split()},
    "keepdim": lambda lib, x: lib.sum(x, 0, keepdim=True),
    "dtype": lambda lib, x: lib.sum(x, 1, dtype=lib.float64),
    "prod_dtype": lambda lib, x: lib.prod(x, 1, dtype=lib.int32) if not x.is_floating_point()
    else lib.prod(x, 1, dtype=lib.float64),
    "sort": lambda lib, x: lib.sort(x, stable=True, dim=1),
    "sort_down": lambda lib, x: lib.sort(x, dim=1, descending=True, stable=True),
    "topk": lambda lib, x: lib.topk(x, 3, 1)[0], "kthvalue": lambda lib, x: lib.kthvalue(x, 2)[0],
    "mode": lambda lib, x: lib.mode(x, 1)[0], "quantile": lambda lib, x: lib.quantile(x, 0.3, 1),
    "nanquantile": lambda lib, x: lib.nanquantile(x, 0.3, 1), "norm": lambda lib, x: lib.norm(x),
    "norm_one": lambda lib, x: lib.linalg.vector_norm(x, 1, 1),
    "norm_max": lambda lib, x: lib.linalg.vector_norm(x, math.inf, 1),
    "norm_zero": lambda lib, x: lib.linalg.vector_norm(x, 0, 1),
    "isin": lambda lib, x: lib.isin(x, x[:1]), "sum_kept": lambda lib, x: x.sum((0, 1), True),
    "searchsorted": lambda lib, x: lib.searchsorted(lib.sort(x[-1])[0], x[0]),
    "where": lambda lib, x: lib.where(x > 1, x, 2), "nonzero": lambda lib, x: lib.nonzero(x),
    "matmul": lambda lib, x: x @ x.t(), "dot": lambda lib, x: lib.dot(x[0], x[0]),
    "add_dtype": lambda lib, x: x + lib.tensor(3, dtype=lib.int16),
    "add_one": lambda lib, x: x + lib.tensor([3], dtype=lib.int16),
    "number": lambda lib, x: x + 1.5, "true_number": lambda lib, x: x * True,
    "floor_number": lambda lib, x: x // 3, "minus_floor": lambda lib, x: x // -3,
    "mod_number": lambda lib, x: x % 3, "half": lambda lib, x: x / 2,
    "power": lambda lib, x: x ** 3, "root": lambda lib, x: x ** 0.5,
    "inverse": lambda lib, x: x ** -1, "shift": lambda lib, x: x << 2,
    "div_floor": lambda lib, x: lib.div(x, 2, rounding_mode="floor"),
    "div_trunc": lambda lib, x: lib.div(x, -2, rounding_mode="trunc"),
    "to_int8": lambda lib, x: x.to(lib.int8), "to_uint8": lambda lib, x: x.to(lib.uint8),
    "to_bool": lambda lib, x: x.to(lib.bool), "to_half": lambda lib, x: x.to(lib.float16),
    "round": lambda lib, x: lib.round(x), "decimals": lambda lib, x: lib.round(x, decimals=1),
}
# Where torch is not followed: call -> (dtypes, why).
OTHER: dict[str, tuple[str, str]] = {
    "log_softmax": ("float16 bfloat16", "torch rounds between two steps"),
    "root": ("float16", "torch's power of -inf is inf in half precision, NaN in single"),
}


def ours(x: Any) -> Any:
    if x.dtype is torch.bfloat16:
        return lehr.from_numpy(x.float().numpy().copy()).to(lehr.bfloat16)
    return lehr.from_numpy(x.numpy().copy())


def parts(out: Any) -> list[tuple[str, np.ndarray]]:
    found = []
    for x in out if isinstance(out, tuple) else (out,):
        name = str(x.dtype).removeprefix("torch.")
        found.append((name, np.asarray((x.float() if name == "bfloat16" else x).numpy())))
    return found


def attempt(call: Any) -> tuple[Any, str | None]:
    try:
        return call(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_edges(name: str, dtype: str) -> None:
    if dtype in OTHER.get(name, ("",))[0].split():
        pytest.skip(OTHER[name][1])
    made = INTEGERS.get(dtype)
    x = (torch.tensor(made, dtype=getattr(torch, dtype)) if made
         else torch.tensor(FLOATS, dtype=torch.float64).to(getattr(torch, dtype)))
    want, refused = attempt(lambda: CALLS[name](torch, x.clone()))
    have, error = attempt(lambda: CALLS[name](lehr, ours(x)))
    assert (error is None) == (refused is None), f"{error}; torch: {refused}"
    if refused is not None:
        return
    for (kind, a), (told, b) in zip(parts(have), parts(want), strict=True):
        assert kind == told
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=TOLERANCE.get(told, 0), atol=0)

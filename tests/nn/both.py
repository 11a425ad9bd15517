"""The same program under lehr and, where it is installed, under torch."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr

try:
    import torch
except ImportError:  # the comparisons are skipped, the rest still runs
    torch = None
TENSORS = (lehr.Tensor,) if torch is None else (lehr.Tensor, torch.Tensor)


def plain(x: Any) -> Any:
    """Tensors as arrays, errors as (type, message), containers of these."""
    if isinstance(x, TENSORS):
        x = x.detach()
        return np.array((x.float() if "bfloat16" in str(x.dtype) else x).numpy())
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, np.ndarray | str | int | float | bool | type(None)):
        return x
    if "torch." in str(x) or isinstance(x, (lehr.dtype, lehr.Size)):
        return str(x)
    return x


def attempt(program: Callable[[Any], Any], mod: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(program(mod))
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)}


def same(a: Any, b: Any, rtol: float = 2e-5, atol: float = 2e-6, where: str = "") -> None:
    if isinstance(b, dict):
        assert isinstance(a, dict) and list(a) == list(b), f"{where}: {a} != {b}"
        for k in b:
            same(a[k], b[k], rtol, atol, f"{where}.{k}")
    elif isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b), f"{where}: {a} != {b}"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, rtol, atol, f"{where}[{i}]")
    elif isinstance(b, np.ndarray):
        assert isinstance(a, np.ndarray) and a.shape == b.shape, f"{where}: {a} != {b}"
        assert a.dtype == b.dtype, f"{where}: {a.dtype} != {b.dtype}"
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=where)
    elif isinstance(b, float):
        assert a == pytest.approx(b, rel=rtol, abs=atol, nan_ok=True), where
    else:
        assert a == b, f"{where}: {a!r} != {b!r}"


def check(program: Callable[[Any], Any], error: str | None = None, **tolerance: float) -> None:
    """`program(mod)` gives the same under both; `error` names the type both must raise."""
    got = attempt(program, lehr)
    if torch is None:
        assert isinstance(got, dict) and got.get("error") == error if error else (
            not isinstance(got, dict) or "error" not in got), got
        pytest.skip("torch is not installed: nothing to compare with")
    want = attempt(program, torch)
    if error is None:
        assert not (isinstance(want, dict) and "error" in want), f"torch raised {want}"
    else:
        assert isinstance(want, dict) and want.get("error") == error, want
        assert isinstance(got, dict) and got.get("error") == error, got
        return
    assert not (isinstance(got, dict) and "error" in got), f"lehr raised {got}"
    same(got, want, **tolerance)


def numbers(mod: Any, *shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    """The same normal numbers in both."""
    made = np.random.RandomState(seed).randn(*shape)
    return mod.tensor(made.tolist(), dtype=getattr(mod, dtype)).reshape(shape)


def filled(module: Any, mod: Any) -> Any:
    """`module` with the same parameters in both."""
    with mod.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(numbers(mod, *p.shape, seed=i + 1) * 0.3)
    return module


def buffer() -> io.BytesIO:
    return io.BytesIO()

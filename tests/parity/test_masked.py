"""`masked` and `signal.windows` against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

REDUCTIONS = ("sum prod amax amin argmax argmin mean logsumexp norm var std").split()
ALONG = "cumsum cumprod median softmax log_softmax softmin".split()


def pair(a: np.ndarray) -> tuple[Any, Any]:
    return lehr.from_numpy(a.copy()), torch.from_numpy(a.copy())


def same(have: Any, want: Any) -> None:
    assert str(have.dtype) == str(want.dtype)
    np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*REDUCTIONS, *ALONG])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1)])
def test_masked(name: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    xs = pair(rng.standard_normal((3, 4)).astype(np.float32))
    keep = rng.random(shape) < 0.6
    keep.reshape(-1)[:1] = True
    masks = pair(keep)
    for dim in (0, 1, None) if name in REDUCTIONS else (0, 1):
        calls = [getattr(lib.masked, name) for lib in (lehr, torch)]
        words = [{"mask": m} for m in masks]
        made = [f(x, *((2.0,) if name == "norm" else ()), dim, **w)
                for f, x, w in zip(calls, xs, words, strict=True)]
        whole = np.broadcast_to(keep, (3, 4))
        if name in ("sum", "prod", "mean", "cumsum") or whole.any(dim).all():
            same(*made)


def test_masks() -> None:
    x = lehr.ones(3, 4)
    with pytest.raises(ValueError, match="bool"):
        lehr.masked.sum(x, 0, mask=lehr.ones(3, 4))
    with pytest.raises(IndexError, match="broadcast"):
        lehr.masked.sum(x, 0, mask=lehr.ones(2, 3, 4, dtype=lehr.bool))
    assert lehr.masked.sum(x.int(), 0, mask=lehr.ones(4, dtype=lehr.bool)).dtype is lehr.int64


WINDOWS: dict[str, dict[str, Any]] = {
    "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.0}, "hamming": {},
    "gaussian": {"std": 1.7}, "general_cosine": {"a": [0.4, 0.3, 0.2]}, "hann": {},
    "general_hamming": {"alpha": 0.6}, "kaiser": {"beta": 8.0}, "nuttall": {}}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8])
def test_windows(name: str, sym: bool, size: int) -> None:
    same(*(getattr(lib.signal.windows, name)(size, sym=sym, dtype=lib.float64, **WINDOWS[name])
           for lib in (lehr, torch)))


@pytest.mark.parametrize("lib", [lehr, torch], ids=["lehr", "torch"])
def test_refused(lib: Any) -> None:
    windows = lib.signal.windows
    for call in (lambda: windows.hann(-1), lambda: windows.gaussian(4, std=-1.0),
                 lambda: windows.exponential(4, center=1.0), lambda: windows.kaiser(4, beta=-1.0),
                 lambda: windows.general_cosine(4, a=[]), lambda: windows.hann(4, dtype=lib.int64)):
        with pytest.raises(ValueError):
            call()

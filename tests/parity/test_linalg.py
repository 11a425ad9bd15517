"""Derivatives of factorisations against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")


def spectrum(lib: Any, x: Any) -> Any:
    """Depends on no order of the eigenvalues and no phase of the vectors."""
    values, vectors = lib.linalg.eig(x)
    return (values.real ** 3 * values.imag ** 2 + values.real.sin()).sum() + (
        vectors.abs() ** 3).sum()


def factors(lib: Any, x: Any) -> Any:
    _, low, up = lib.linalg.lu(x)
    return (low ** 3).sum() + up.sin().sum()


def packed(lib: Any, x: Any) -> Any:
    return (lib.linalg.lu_factor(x)[0] ** 3).sum()


def rests(lib: Any, x: Any) -> Any:
    """Solutions and residuals of least squares."""
    made = lib.linalg.lstsq(x, x[..., :2] ** 2, driver="gelsd")
    return (made.solution ** 2).sum() + made.residuals.sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], bool]] = {
    "eig": (spectrum, (2, 4, 4), False), "eig_complex": (spectrum, (2, 4, 4), True),
    "lu_wide": (factors, (2, 3, 5), False), "lu_tall": (factors, (5, 3), False),
    "lu_square": (factors, (4, 4), False), "lu_factor_wide": (packed, (3, 5), False),
    "lu_factor_tall": (packed, (2, 5, 3), False), "lstsq": (rests, (5, 3), False),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    function, shape, imaginary = CASES[name]
    rng = np.random.default_rng(3)
    data = rng.standard_normal(shape)
    data = data + 1j * rng.standard_normal(shape) if imaginary else data
    found = []
    for lib in (torch, lehr):
        x = lib.from_numpy(data.copy()).requires_grad_()
        function(lib, x).backward()
        found.append(x.grad.resolve_conj().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("x", [-8.478373527526855, -4.826984902407649, -0.3, 2.5, 9.9, 40.0])
def test_polygamma(n: int, x: float) -> None:
    """Negative arguments need one more term of the series than positive ones."""
    have, want = (lib.special.polygamma(n, lib.tensor(x, dtype=lib.float64)).item()
                  for lib in (lehr, torch))
    assert have == pytest.approx(want, rel=1e-8)

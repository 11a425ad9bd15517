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


GRADIENTS: dict[str, dict[str, Any]] = {
    "plain": {}, "step": {"spacing": 0.5}, "steps": {"spacing": (0.5, 2.0)}, "one": {"dim": 1},
    "second": {"edge_order": 2}, "last": {"dim": (-1,), "edge_order": 2, "spacing": 3.0}}


@pytest.mark.parametrize("name", GRADIENTS)
def test_differences(name: str) -> None:
    data = np.random.default_rng(1).standard_normal((4, 5))
    made = [lib.gradient(lib.from_numpy(data.copy()), **GRADIENTS[name]) for lib in (lehr, torch)]
    for have, want in zip(*made, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-12)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_uneven_differences(edge_order: int) -> None:
    data = np.random.default_rng(1).standard_normal((4, 5))
    places = np.array([0.0, 0.5, 2.0, 2.25, 7.0])
    made = [lib.gradient(lib.from_numpy(data.copy()), spacing=(lib.from_numpy(places.copy()),),
                         dim=1, edge_order=edge_order)[0] for lib in (lehr, torch)]
    np.testing.assert_allclose(made[0].numpy(), made[1].numpy(), rtol=1e-12)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_reflections(left: bool, transpose: bool) -> None:
    """`geqrf` and `ormqr`: the whole Q, from the packed form."""
    data = np.random.default_rng(2).standard_normal((5, 3))
    other = np.random.default_rng(3).standard_normal((5, 5))
    found = []
    for lib in (lehr, torch):
        packed, tau = lib.geqrf(lib.from_numpy(data.copy()))
        found.append(lib.ormqr(packed, tau, lib.from_numpy(other.copy()), left, transpose).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 4, 4)])
def test_unpacked(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(2).standard_normal(shape)
    made = [lib.lu_unpack(*lib.lu(lib.from_numpy(data.copy()))) for lib in (lehr, torch)]
    for have, want in zip(*made, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose((made[0].P @ made[0].L @ made[0].U).numpy(), data, atol=1e-12)


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"])
def test_bessel(name: str) -> None:
    """torch's own are good to five digits only."""
    low = -20.0 if name == "airy_ai" else 0.01
    x = np.linspace(low, 40.0, 997)
    have, want = (getattr(lib.special, name)(lib.from_numpy(x.copy())).numpy()
                  for lib in (lehr, torch))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


def test_wronskian() -> None:
    """J1 Y0 - J0 Y1 = 2 / (pi x), over the borders of all methods."""
    x = lehr.linspace(0.05, 60.0, 1999, dtype=lehr.float64)
    s = lehr.special
    made = s.bessel_j1(x) * s.bessel_y0(x) - s.bessel_j0(x) * s.bessel_y1(x)
    np.testing.assert_allclose((made * x).numpy(), 2 / np.pi, rtol=1e-13)


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 6)])
def test_lowrank(shape: tuple[int, ...]) -> None:
    """A matrix of rank 3 comes back from its three singular values, those that torch finds."""
    rng = np.random.default_rng(4)
    thin = rng.standard_normal((*shape[:-1], 3))
    data = thin @ rng.standard_normal((*shape[:-2], 3, shape[-1]))
    u, s, v = lehr.svd_lowrank(lehr.from_numpy(data.copy()), 3)
    np.testing.assert_allclose((u * s[..., None, :] @ v.mT).numpy(), data, atol=1e-10)
    want = torch.svd_lowrank(torch.from_numpy(data), 3)[1]
    np.testing.assert_allclose(s.numpy(), want.numpy(), rtol=1e-8)
    center = lehr.pca_lowrank(lehr.from_numpy(data.copy()), 3)[1]
    np.testing.assert_allclose(center.numpy(), torch.pca_lowrank(torch.from_numpy(data), 3)[1],
                               rtol=1e-2)
    with pytest.raises(ValueError, match="not greater than"):
        lehr.svd_lowrank(lehr.from_numpy(data), 9)


HISTOGRAMS: dict[str, dict[str, Any]] = {
    "counts": {"bins": [2, 3]}, "one": {"bins": 4}, "range": {"bins": 3, "range": [0, 1, 0, 0.5]},
    "density": {"bins": [3, 2], "density": True}}


@pytest.mark.parametrize("name", HISTOGRAMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(name: str, weighted: bool) -> None:
    rng = np.random.default_rng(6)
    data, weight = rng.random((40, 2)), rng.random(40)
    made = []
    for lib in (lehr, torch):
        words = dict(HISTOGRAMS[name], weight=lib.from_numpy(weight.copy()) if weighted else None)
        made.append(lib.histogramdd(lib.from_numpy(data.copy()), **words))
    np.testing.assert_allclose(made[0].hist.numpy(), made[1].hist.numpy(), rtol=1e-10)
    for have, want in zip(made[0].bin_edges, made[1].bin_edges, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-12)

"""L D L^T of symmetric and Hermitian matrices: pivots of LAPACK, solutions, what is refused."""

import numpy as np
import pytest

import lehr


def matrices(kind, n, *batch):
    random = np.random.default_rng(n)
    x = random.standard_normal((*batch, n, n))
    if kind != "real":
        x = x + 1j * random.standard_normal((*batch, n, n))
    other = x.swapaxes(-1, -2)
    x = x + (other.conj() if kind == "hermitian" else other)
    if n > 1:
        x[..., 0, 0] = 0  # a block of two rows, at the latest
    return x


@pytest.mark.parametrize("kind", ["real", "symmetric", "hermitian"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
def test_solutions(kind, n):
    a, b = matrices(kind, n, 3), np.random.default_rng(1).standard_normal((3, n, 2))
    b = b.astype(a.dtype)
    hermitian = kind == "hermitian"
    ld, pivots = lehr.linalg.ldl_factor(lehr.from_numpy(a), hermitian=hermitian)
    x = lehr.linalg.ldl_solve(ld, pivots, lehr.from_numpy(b), hermitian=hermitian)
    np.testing.assert_allclose(a @ x.numpy(), b, 1e-9, 1e-9 * np.abs(x.numpy()).max())
    assert n < 3 or (pivots < 0).any()


@pytest.mark.parametrize("kind", ["real", "symmetric", "hermitian"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factors_and_pivots_are_those_of_lapack(kind, dtype):
    torch = pytest.importorskip("torch")
    exact = np.float64 if dtype == "float64" else np.float32
    for n in (1, 2, 4, 9, 30):
        a = matrices(kind, n, 2).astype(np.result_type(exact, np.complex64 if kind != "real"
                                                       else exact))
        hermitian = kind == "hermitian"
        have = lehr.linalg.ldl_factor_ex(lehr.from_numpy(a), hermitian=hermitian)
        want = torch.linalg.ldl_factor_ex(torch.from_numpy(a), hermitian=hermitian)
        np.testing.assert_array_equal(have.pivots.numpy(), want.pivots.numpy())
        np.testing.assert_array_equal(have.info.numpy(), want.info.numpy())
        limit = 1e-8 if dtype == "float64" else 2e-2
        np.testing.assert_allclose(have.LD.numpy(), want.LD.numpy(), limit, limit)


def test_a_singular_matrix_is_told():
    a = lehr.zeros(3, 3)
    assert int(lehr.linalg.ldl_factor_ex(a).info) == 1
    with pytest.raises(RuntimeError, match="element 1 .* is 0"):
        lehr.linalg.ldl_factor(a)


def test_there_is_no_derivative():
    a = lehr.eye(3).requires_grad_()
    with pytest.raises(NotImplementedError, match="linalg.solve has one"):
        lehr.linalg.ldl_factor(a).LD.sum().backward()


def test_pivots_out_of_range_are_refused():
    with pytest.raises(RuntimeError, match="within 1 and 2"):
        lehr.linalg.ldl_solve(lehr.eye(2), lehr.tensor([1, 5], dtype=lehr.int32), lehr.ones(2, 1))

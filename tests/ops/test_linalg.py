"""Derivatives of functions of symmetric matrices, and reconstructions from factors."""

import numpy as np
import pytest

from lehr.ops import execute, factor, families, registry

assert families.FAMILIES
F = execute.FUNCTIONS


def run(name, *args, **kwargs):
    op = registry.get(name)
    return execute.run(op, op.signature.bind(args, kwargs))


def symmetric(random, n=4):
    a = random.standard_normal((n, n))
    return a @ a.T + np.diag(np.arange(1.0, n + 1))


# What does not depend on signs of vectors: losses of the eigenvectors' squares and of projections.
LOSSES = {
    "linalg_cholesky": lambda out, w: (out * w).sum(),
    "linalg_eigh": lambda out, w: (out[0] * w[0]).sum() + (out[1] ** 2 * w).sum(),
}
GRADS = {
    "linalg_cholesky": lambda out, w: w,
    "linalg_eigh": lambda out, w: (w[0], 2 * out[1] * w),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(5))
def test_slopes_along_symmetric_directions(name, seed):
    random = np.random.default_rng(seed)
    a, w, d = symmetric(random), random.standard_normal((4, 4)), random.standard_normal((4, 4))
    d = d + d.T
    op = registry.get(name)
    bound = op.signature.bind((a,), {})
    out = run(name, a)
    g = GRADS[name](out, w)
    made = execute.unwrap(op.vjp(F, execute.wrap(g), execute.wrap(out), *map(execute.wrap, bound)))
    assert np.allclose(made, made.T) or name == "linalg_eigh"
    ends = [LOSSES[name](run(name, a + side * 1e-6 * d), w) for side in (1, -1)]
    np.testing.assert_allclose((made * d).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 4, 3)])
def test_slopes_of_singular_vectors(shape):
    """A loss of |U|, S and |Vh|, whose derivative is that of the vectors up to sign."""
    random = np.random.default_rng(0)
    a, d = random.standard_normal(shape), random.standard_normal(shape)
    out = run("linalg_svd", a, False)
    w = [random.standard_normal(o.shape) for o in out]

    def loss(x):
        u, s, vh = run("linalg_svd", x, False)
        return (u * u * w[0]).sum() + (s * w[1]).sum() + (vh * vh * w[2]).sum()
    g = (2 * out[0] * w[0], w[1], 2 * out[2] * w[2])
    op = registry.get("linalg_svd")
    made = execute.unwrap(op.vjp(F, execute.wrap(g), execute.wrap(tuple(out)), execute.wrap(a),
                                 False, None))
    want = (loss(a + 1e-6 * d) - loss(a - 1e-6 * d)) / 2e-6
    np.testing.assert_allclose((made * d).sum(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 3, 3)])
def test_factors_give_the_matrix_back(shape):
    a = np.random.default_rng(0).standard_normal(shape)
    q, r = run("linalg_qr", a)
    u, s, vh = run("linalg_svd", a, False)
    p, low, up = run("linalg_lu", a)
    for made in (q @ r, (u * s[..., None, :]) @ vh, p @ low @ up):
        np.testing.assert_allclose(made, a, atol=1e-12)
    assert np.all(np.abs(low) <= 1 + 1e-12)  # partial pivoting
    pinv = run("linalg_pinv", a)
    np.testing.assert_allclose(a @ pinv @ a, a, atol=1e-12)


def test_unsupported_derivatives_say_so():  # of complex matrices
    for name in ("linalg_qr", "linalg_lu", "linalg_lu_factor", "linalg_cholesky"):
        op = registry.get(name)
        bound = op.signature.bind((np.eye(3, dtype=np.complex128),), {})
        with pytest.raises(NotImplementedError, match="derivative"):
            op.vjp(F, (None, None), (None, None), *map(execute.wrap, bound))
    assert issubclass(factor.LinAlgError, RuntimeError)


def test_singular_matrices_raise():
    for name, args in (("linalg_inv", ()), ("linalg_solve", (np.ones(3),)),
                       ("linalg_cholesky", ())):
        with pytest.raises(factor.LinAlgError):
            run(name, -np.ones((3, 3)), *args)

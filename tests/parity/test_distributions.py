"""Distributions against torch's: densities, moments, entropies, divergences, draws, errors."""

from __future__ import annotations

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")


def f(*shape, low=0.2, high=2.0, seed=0):
    return np.random.RandomState(seed).uniform(low, high, shape).astype(np.float32)


def simplex(*shape):
    p = f(*shape)
    return p / p.sum(-1, keepdims=True)


TRIL = np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]])).astype(np.float32)
# name -> (parameters, values with a density, what is compared)
USUAL = ("mean", "variance", "entropy", "mode")
CASES = {
    "Normal": ({"loc": f(3), "scale": f(3, seed=1)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "HalfNormal": ({"scale": f(3)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "LogNormal": ({"loc": f(3), "scale": f(3, seed=1)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "MultivariateNormal": ({"loc": f(3, 2), "scale_tril": TRIL}, f(4, 3, 2), USUAL),
    "Bernoulli": ({"probs": f(3, high=0.9)}, np.array([[0, 1, 1], [1, 0, 0.0]], np.float32),
                  ("mean", "variance", "entropy", "mode")),
    "Categorical": ({"logits": f(3, 5)}, np.array([[0, 4, 2], [1, 1, 3]]), ("entropy", "mode")),
    "OneHotCategorical": ({"probs": simplex(3, 4)}, np.eye(4, dtype=np.float32)[[0, 3, 1]], USUAL),
    "Geometric": ({"probs": f(3, high=0.9)}, np.array([0, 2, 5.0], np.float32), USUAL),
    "Poisson": ({"rate": f(3)}, np.array([0, 2, 5.0], np.float32), ("mean", "variance", "mode")),
    "Binomial": ({"total_count": 7, "probs": f(3, high=0.9)}, np.array([0, 2, 7.0], np.float32),
                 ("mean", "variance", "mode")),
    "Multinomial": ({"total_count": 4, "probs": simplex(3)}, np.array([1, 2, 1.0], np.float32),
                    ("mean", "variance")),
    "RelaxedBernoulli": ({"temperature": np.float32(0.7) * np.ones(1, np.float32),
                              "probs": f(3, high=0.9)}, f(4, 3, high=0.9), ()),
    "RelaxedOneHotCategorical": ({"temperature": np.float32(0.7) * np.ones(1, np.float32),
                                      "probs": simplex(3)}, simplex(4, 3), ()),
    "Uniform": ({"low": f(3), "high": f(3) + 1}, f(3) + 0.5,
                ("mean", "variance", "entropy", "cdf", "icdf")),
    "Exponential": ({"rate": f(3)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "Gamma": ({"concentration": f(3), "rate": f(3, seed=1)}, f(4, 3), USUAL),
    "Chi2": ({"df": f(3) + 2}, f(4, 3), ("mean", "variance", "entropy")),
    "Dirichlet": ({"concentration": f(2, 3) + 1}, simplex(2, 3), USUAL),
    "Beta": ({"concentration1": f(3) + 1, "concentration0": f(3, seed=1) + 1}, f(4, 3, high=0.9),
             USUAL),
    "Laplace": ({"loc": f(3), "scale": f(3, seed=1)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "Cauchy": ({"loc": f(3), "scale": f(3, seed=1)}, f(4, 3), (*USUAL, "cdf", "icdf")),
    "Gumbel": ({"loc": f(3), "scale": f(3, seed=1)}, f(4, 3), USUAL),
    "StudentT": ({"df": f(3) + 3, "loc": f(3), "scale": f(3, seed=1)}, f(4, 3), USUAL),
    "Pareto": ({"scale": f(3), "alpha": f(3, seed=1) + 2}, f(4, 3) + 2, USUAL),
    "Weibull": ({"scale": f(3), "concentration": f(3, seed=1) + 1}, f(4, 3), USUAL),
}
PAIRS = ("Normal", "LogNormal", "HalfNormal", "MultivariateNormal", "Bernoulli", "Categorical",
         "OneHotCategorical", "Binomial", "Geometric", "Poisson", "Exponential", "Gamma",
         "Dirichlet", "Beta", "Laplace", "Gumbel", "Cauchy")


def made(lib, name, change=0.0):
    tensor = lib.from_numpy
    given = {k: tensor(v.copy()) if isinstance(v, np.ndarray) else v
             for k, v in CASES[name][0].items()}
    if change:
        for k, v in given.items():
            if not isinstance(v, int) and k != "scale_tril":
                given[k] = v / (1 + change)
                if name == "OneHotCategorical":
                    given[k] = given[k].flip(-1) / given[k].sum(-1, keepdim=True)
    return getattr(lib.distributions, name)(**given)


def close(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_densities_and_moments(name):
    ours, theirs = made(lehr, name), made(torch, name)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    if repr(theirs) != f"{name}()":  # torch's distributions made of others show nothing
        assert repr(ours) == repr(theirs)
    value = CASES[name][1]
    close(ours.log_prob(lehr.from_numpy(value)), theirs.log_prob(torch.from_numpy(value)))
    for what in CASES[name][2]:
        if what in ("cdf", "icdf"):
            v = value if what == "cdf" else f(4, 3, low=0.1, high=0.9)
            close(getattr(ours, what)(lehr.from_numpy(v)),
                  getattr(theirs, what)(torch.from_numpy(v)))
        else:
            a, b = getattr(ours, what), getattr(theirs, what)
            close(a() if callable(a) else a, b() if callable(b) else b)


@pytest.mark.parametrize("name", PAIRS)
def test_divergences(name):
    a = lehr.distributions.kl_divergence(made(lehr, name), made(lehr, name, 0.3))
    b = torch.distributions.kl_divergence(made(torch, name), made(torch, name, 0.3))
    close(a, b)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("Cauchy", "Categorical", "Pareto")
                                  and "Relaxed" not in n])
def test_draws_have_the_moments(name):
    lehr.manual_seed(1)
    d = made(lehr, name)
    x = d.sample((20000,))
    assert tuple(x.shape) == (20000, *d.batch_shape, *d.event_shape)
    spread = d.variance.sqrt().numpy()
    gap = np.abs(x.mean(0).numpy() - d.mean.numpy())
    assert (gap < 5 * spread / 20000 ** 0.5 + 1e-6).all()
    if name not in ("StudentT", "LogNormal"):
        np.testing.assert_allclose(x.var(0).numpy(), spread ** 2, rtol=0.15, atol=1e-4)


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "Dirichlet", "StudentT", "Uniform",
                                  "Exponential", "RelaxedOneHotCategorical", "Laplace", "Gumbel",
                                  "MultivariateNormal"])
def test_draws_carry_gradients(name):
    lehr.manual_seed(0)
    given = {k: lehr.from_numpy(v.copy()).requires_grad_() if isinstance(v, np.ndarray) else v
             for k, v in CASES[name][0].items()}
    d = getattr(lehr.distributions, name)(**given)
    assert d.has_rsample and not d.sample().requires_grad
    d.rsample((5,)).square().sum().backward()
    for k, v in given.items():
        assert v.grad is not None and bool((v.grad != 0).any()), k


def test_gamma_gradient_is_the_implicit_one():
    from lehr.distributions.draw import implicit
    for shape in (0.3, 1.0, 2.5, 30.0, 280.0, 320.0):
        a = torch.full((200,), shape, dtype=torch.float64)
        x = torch._standard_gamma(a)
        want = torch.ops.aten._standard_gamma_grad(a, x).numpy()
        got = implicit(a.numpy(), x.numpy(), torch.digamma(a).numpy())
        np.testing.assert_allclose(got, want, rtol=5e-3, atol=2e-3 * np.abs(want).max())


def test_transformed_and_independent_and_mixture():
    for lib in (lehr, torch):
        D = lib.distributions
        x = lib.from_numpy(f(4, 3, high=0.9))
        base = D.Normal(lib.zeros(3), lib.ones(3))
        t = D.TransformedDistribution(base, [D.AffineTransform(1.0, 2.0), D.SigmoidTransform()])
        logit = D.TransformedDistribution(D.Uniform(lib.zeros(3), lib.ones(3)),
                                          D.SigmoidTransform().inv)
        mixed = D.MixtureSameFamily(D.Categorical(lib.from_numpy(simplex(3))), base)
        got = [t.log_prob(x), t.cdf(x), logit.log_prob(x), D.Independent(base, 1).log_prob(x),
               mixed.log_prob(x[:, 0]), mixed.mean, mixed.variance,
               D.kl_divergence(D.Independent(base, 1), D.Independent(D.Normal(x[0], x[1]), 1))]
        if lib is lehr:
            ours = got
    for a, b in zip(ours, got, strict=True):
        close(a, b)


@pytest.mark.parametrize("make", [
    lambda D, t: D.Normal(t([0.0]), t([-1.0])),
    lambda D, t: D.Categorical(probs=t([-1.0, 2.0])),
    lambda D, t: D.Bernoulli(t([0.1]), t([0.1])),
    lambda D, t: D.Bernoulli(t([2.0])),
    lambda D, t: D.Uniform(t([2.0]), t([1.0])),
    lambda D, t: D.Categorical(logits=t([0.0, 1.0])).log_prob(t(2)),
    lambda D, t: D.Normal(t([0.0]), t([1.0])).log_prob(t([float("nan")])),
    lambda D, t: D.Beta(t([1.0]), t([1.0])).log_prob(t([2.0])),
])
def test_wrong_arguments_raise_the_same_words(make):
    words = []
    for lib in (lehr, torch):
        with pytest.raises(ValueError) as caught:
            make(lib.distributions, lib.tensor)
        words.append(str(caught.value).replace("Beta(concentration1: tensor([1.]), "
                                               "concentration0: tensor([1.]))", "Beta()"))
    assert words[0] == words[1]

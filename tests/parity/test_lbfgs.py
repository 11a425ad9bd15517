"""L-BFGS against torch, as far as its steps are determined.

Where it converges, the curvature is a quotient of differences near the rounding error: torch's own
steps then change as much when one weight changes by its last bit. So these compare float64, and
the plain rule only for as many steps as stay above that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")


def steps(lib: Any, many: int, words: dict[str, Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = ((4, 3), (4,), (2, 4), (6, 3), (6, 2))
    w, b, v, x, y = (lib.from_numpy(rng.standard_normal(s)) for s in shapes)
    params = [p.requires_grad_() for p in (w, b, v)]
    optimizer = lib.optim.LBFGS(params, **words)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((lib.tanh(x @ w.t() + b) @ v.t() - y) ** 2).mean()
        loss.backward()
        return loss
    trail = []
    for _ in range(many):
        optimizer.step(closure)
        trail.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return trail


@pytest.mark.parametrize(("words", "many"), [
    ({}, 1), ({"max_iter": 4}, 3), ({"lr": 0.01}, 5), ({"line_search_fn": "strong_wolfe"}, 2),
    ({"history_size": 3, "max_iter": 6}, 2), ({"tolerance_grad": 1e-2}, 2)])
def test_steps(words: dict[str, Any], many: int) -> None:
    for have, want in zip(steps(lehr, many, words), steps(torch, many, words), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-8)


def conditioned(lib: Any, many: int, words: dict[str, Any]) -> list[np.ndarray]:
    """Steps on a convex function whose curvature lies between 1 and 4 everywhere."""
    x = lib.from_numpy(np.random.default_rng(2).uniform(1, 3, 12)).requires_grad_()
    slope = lib.from_numpy(np.linspace(1, 3, 12))
    optimizer = lib.optim.LBFGS([x], max_iter=2, **words)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (slope * x * x / 2 + lib.log(lib.cosh(x - 1))).sum()
        loss.backward()
        return loss
    trail = []
    for _ in range(many):
        optimizer.step(closure)
        trail.append(x.detach().numpy().copy())
    return trail


@pytest.mark.parametrize("words", [{}, {"lr": 0.5}, {"history_size": 3},
                                   {"line_search_fn": "strong_wolfe"}], ids=str)
def test_five_steps_where_rounding_does_not_grow(words: dict[str, Any]) -> None:
    both = conditioned(lehr, 5, words), conditioned(torch, 5, words)
    assert np.abs(both[0][-1] - both[0][0]).max() > 0.1
    for have, want in zip(*both, strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("lib", [lehr, torch], ids=["lehr", "torch"])
def test_sparse_adam(lib: Any) -> None:
    """Dense gradients are refused at the step."""
    weight = lib.ones(2, 2).requires_grad_()
    weight.sum().backward()
    with pytest.raises(RuntimeError, match="dense"):
        lib.optim.SparseAdam([weight]).step()

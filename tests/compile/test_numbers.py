"""Numbers that a compiled step gets as inputs (`param_groups`) are computed with as Python does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.compiler.counters import stats
from tests.compile import loops

assert loops
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "dampening": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {}), ("Adamax", {}), ("NAdam", {}),
    ("RAdam", {}), ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {}), ("Rprop", {}), ("ASGD", {}),
    ("Adafactor", {}), ("Muon", {})]


def states(name: str, options: dict[str, Any], backend: str | None) -> list[Any]:
    """The parameter and its optimizer's state after some steps."""
    p = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = getattr(torch.optim, name)([p], **{"lr": 0.013, **options})

    def step() -> None:
        optimizer.step()
    run = step if backend is None else torch.compile(step, backend=backend)
    for i in range(12):
        p.grad = torch.tensor([[1.476, 0.3], [0.01, -0.2], [0.7, 3.3]]) * (1 + 0.1 * i)
        run()
    return [p.detach().numpy(), *(v.numpy() if isinstance(v, torch.Tensor) else v
                                  for v in optimizer.state[p].values())]


@pytest.mark.parametrize("backend", ["loops", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda x: str(x))
def test_steps_of_optimizers_are_eager_ones_to_the_last_digits(name, options, backend):
    """1 - beta2 in single precision is off by 1e-5, and RAdam's 2 / (1 - beta2) - 1 by far more."""
    before = stats()["graphs"]
    have = states(name, options, backend)
    assert stats()["graphs"] > before
    for a, b in zip(have, states(name, options, None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=0)


def test_a_factor_of_zero_ignores_nan():
    def f(group: dict[str, Any], x: Any, a: Any) -> Any:
        return torch.addmm(x, a, a, beta=group["beta"], alpha=group["alpha"])
    compiled = torch.compile(f, backend="loops", fullgraph=True)
    a, x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, float("nan")]])
    for beta in (2.0, 0.5, 0.0, 0.0, 1.0):      # from the second on an input of the graph
        group = {"beta": beta, "alpha": beta + 1}
        np.testing.assert_array_equal(compiled(group, x, a).numpy(), f(group, x, a).numpy())
    assert f({"beta": 0.0, "alpha": 1.0}, x, a).tolist() == [[7.0, 10.0], [15.0, 22.0]]

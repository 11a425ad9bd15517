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


CHANGES: dict[str, Any] = {
    "scaled": lambda g: g.update(lr=g["lr"] * 0.5),
    "constant": lambda g: g.update(lr=0.25),
    "tensor": lambda g: g.update(lr=torch.tensor(0.013) * 0.5),
    "flag": lambda g: g.update({k: True for k in ("amsgrad", "centered", "nesterov") if k in g}),
    "accumulator": lambda g: g.update(initial_accumulator_value=0.5),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda x: str(x))
def test_first_steps_with_groups_that_the_program_changes(
        name: str, options: dict[str, Any], change: str) -> None:
    """Seed 12000744. State that a first step makes depends on what the group is by then."""
    def first(compiled: bool) -> list[Any]:
        p = torch.nn.Parameter(torch.ones(3, 2))
        optimizer = getattr(torch.optim, name)([p], **{"lr": 0.013, **options})

        def step() -> None:
            for group in optimizer.param_groups:
                CHANGES[change](group)
            optimizer.step()
        run = torch.compile(step, backend="loops") if compiled else step
        for _ in range(2):
            p.grad = torch.tensor([[1.476, 0.3], [0.01, -0.2], [0.7, 3.3]])
            run()
        return [p.detach().numpy(), {k: v.numpy() if isinstance(v, torch.Tensor) else v
                                     for k, v in optimizer.state[p].items()}]
    have, want = first(True), first(False)
    np.testing.assert_allclose(have[0], want[0], rtol=1e-6)
    assert have[1].keys() == want[1].keys()
    for key, value in want[1].items():
        np.testing.assert_allclose(have[1][key], value, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("backend", ["loops", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda x: str(x))
def test_steps_of_optimizers_are_eager_ones_to_the_last_digits(name, options, backend):
    """1 - beta2 in single precision is off by 1e-5, and RAdam's 2 / (1 - beta2) - 1 by far more."""
    before = stats()["graphs"]
    have = states(name, options, backend)
    assert stats()["graphs"] > before
    for a, b in zip(have, states(name, options, None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=0)


def numpy_numbers(x: Any, i: Any, s: Any) -> list[Any]:
    a, b, c, d = np.float32(2), np.int64(3), np.float64(1.5), np.float16(s)
    return [a * x, x * a, b + i, i + b, c * i, i - c, x / d, d + x, a + b, a * s, b // 2, b % -2,
            x < a, a >= x, x == a, b % i, i % b, a ** x, x ** a, torch.add(x, x, alpha=b),
            torch.tensor([a, c]), x.clamp(a, 3), torch.full((2,), a), x[b - 3], [1, 2, 3, 4][b],
            float(a), int(b), b.item(), c.is_integer(), f"{a} {b:03d}", max(a, 1), isinstance(
                c, float), type(d), np.uint8(100) + np.uint8(100), np.complex64(1j) * x, s + 1, s]


def test_numbers_of_numpy():
    """They act as Python's beside tensors, and keep their own types among themselves."""
    compiled = torch.compile(numpy_numbers, backend="loops", fullgraph=True)
    x, i = torch.tensor([1.5, 2.5]), torch.tensor([1, 2])
    for s in (np.float32(2), np.float32(3), np.int32(4)):
        for a, b in zip(compiled(x, i, s), numpy_numbers(x, i, s), strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                assert a.dtype is b.dtype
                np.testing.assert_array_equal(a.numpy(), b.numpy())
            else:
                assert a == b


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_numbers_of_numpy_that_change(kind):
    """Few graphs serve them: the limit is not reached."""
    def f(x: Any, s: Any) -> Any:
        return x * s, s + kind(1)
    compiled, x, before = torch.compile(f, backend="loops"), torch.tensor([1.5, 2.5]), stats()
    for n in range(12):
        a, b = compiled(x, kind(n))
        assert a.tolist() == [1.5 * n, 2.5 * n] and type(b) is kind and b == n + 1
    assert stats()["graphs"] - before["graphs"] <= 5


def test_a_factor_of_zero_ignores_nan():
    def f(group: dict[str, Any], x: Any, a: Any) -> Any:
        return torch.addmm(x, a, a, beta=group["beta"], alpha=group["alpha"])
    compiled = torch.compile(f, backend="loops", fullgraph=True)
    a, x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, float("nan")]])
    for beta in (2.0, 0.5, 0.0, 0.0, 1.0):      # from the second on an input of the graph
        group = {"beta": beta, "alpha": beta + 1}
        np.testing.assert_array_equal(compiled(group, x, a).numpy(), f(group, x, a).numpy())
    assert f({"beta": 0.0, "alpha": 1.0}, x, a).tolist() == [[7.0, 10.0], [15.0, 22.0]]


@pytest.mark.parametrize("f", [
    lambda n: n / 3, lambda n: n * 0.1 + 0.2, lambda n: n ** 0.5, lambda n: 1 / n + 2.0 ** n,
    lambda n: (n / 7) ** 2 - n // 0.3 + n % 0.7, lambda n: n * (1 - 0.999 ** n)])
def test_whole_numbers_that_vary_are_computed_with_in_double_precision(f):
    """`n / 3` was a quotient of single precision, as one of tensors is."""
    def g(n: int) -> Any:
        return (torch.zeros(2, dtype=torch.float64) + f(n), torch.tensor(f(n), dtype=torch.float64),
                torch.tensor([[0.1, f(n)], [n, 2]], dtype=torch.float64))
    compiled = torch.compile(g, backend="reference", fullgraph=True)
    for n in (1, 2, 4, 7):
        for a, b in zip(compiled(n), g(n), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-15)


def test_numbers_that_vary_inside_lists():
    def f(n: int) -> Any:
        return torch.tensor([1.0, n]), torch.asarray([1, n]), torch.tensor([n, 2.7],
                                                                           dtype=torch.int32)
    compiled = torch.compile(f, backend="reference", fullgraph=True)
    for n in (1, 2, 3):
        for a, b in zip(compiled(n), f(n), strict=True):
            assert a.dtype is b.dtype and a.tolist() == b.tolist()


@pytest.mark.parametrize("text", [
    "n ** -1", "(n * 1.5) ** -2", "1 / (n * 1.0)", "1 / float(n)", "5 % (n % 2)", "abs(n) ** -1",
    "n / 0 if n == 0 else n", "(n + 0.5) % 0", "n // 0", "(n * 1e200) ** 2", "float(n) ** 1000",
    "10.0 ** (n * 60)", "(-n * 1.0) ** 0.5", "float(-n) ** 0.5", "2 ** (n * 40)", "1 << -n",
    "1 / (n - 5)", "1.0 / (n * 1.0 - 5)", "1 / (n / 2 - 2.5)", "7 // (n - 5)", "n % (n - 5)",
    "7.0 % (n - 5)", "(n - 5.0) ** -1.0", "0.0 ** (3 - n)", "0.5 ** (n - 3)"])
@pytest.mark.parametrize("size", [False, True])
def test_what_python_refuses_of_numbers_that_vary(text: str, size: bool) -> None:
    """Seed 21009851, and the kind: powers of numbers that vary were the graph's, with infinities
    and NaN for the errors and complex numbers of Python; an error while capturing lost the effects
    before it."""
    space: dict[str, Any] = {}
    exec("def f(a, seen, n):\n    n = n if type(n) is int else n.shape[0]\n    seen.append(n)\n"
         f"    return a * ({text})", space)
    f = space["f"]
    compiled = torch.compile(f, backend="reference")
    for n in (2, 3, 4, 0, 5, 0, 1, 7, *(() if size else (-1, -2))):
        found = []
        for g in (f, compiled):
            seen: list[int] = []
            try:
                made = str(g(torch.ones(2).double(), seen, torch.ones(n) if size else n))
            except (ArithmeticError, ValueError) as error:
                made = repr(error)
            found.append((made, seen))
        assert found[0] == found[1], n


@pytest.mark.parametrize("text", ["1 / rate", "rate ** -1", "7 // rate", "0.5 ** -(rate * 1e5)"])
def test_what_python_refuses_of_settings(text: str) -> None:
    """Numbers of `param_groups` are the graph's from the first call on, but for what Python refuses
    of other values."""
    space: dict[str, Any] = {}
    exec(f"def f(a, opt):\n    rate = opt.param_groups[0]['lr']\n    return a * ({text})", space)
    f = space["f"]
    compiled = torch.compile(f, backend="reference")
    opt = torch.optim.SGD([torch.ones(1)], lr=0.1)
    for rate in (0.001, 0.002, 0.0, 0.003, 0.5):
        opt.param_groups[0]["lr"] = rate
        found = []
        for g in (f, compiled):
            try:
                found.append(str(g(torch.ones(2).double(), opt)))
            except ArithmeticError as error:
                found.append(repr(error))
        assert found[0] == found[1], rate

"""Every break that concerns tensors: a program that has it, and that is right all the same.

`test_breaks` has those of the language.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lehr as torch
from lehr.compiler.capture.breaks import REGISTRY
from tests.capture import test_breaks

ARRAY = np.ones(2, np.float32)


def tensor_change(x: Any) -> Any:
    return (x * 2).clone().resize_(1, 2) + 1


def data_dependent(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x


def data_dependent_size(x: Any) -> Any:
    return x[x > 1] + 1


def native_argument(x: Any) -> Any:
    return x + torch.from_numpy(ARRAY)


def outside_history(x: Any) -> Any:
    (x * 3).sum().backward()
    return x * 1


def mutated_leaf(x: Any) -> Any:
    x.mul_(2)
    return x + 1


@torch.compiler.disable
def eager(x: Any) -> Any:
    return x * 5


def disabled(x: Any) -> Any:
    return eager(x) + 1


def requested(x: Any) -> Any:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def process_setting(x: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2) + x
    finally:
        torch.set_default_dtype(torch.float32)


def late(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: print(end=""))
    return y


def plain() -> Any:
    return torch.tensor([1.0, 2.0])


def history() -> Any:
    return torch.tensor([1.0, 2.0], requires_grad=True) * 2


def leaf() -> Any:
    return torch.tensor([1.0, 2.0], requires_grad=True)


CASES = {
    "tensor-change": (tensor_change, plain), "data-dependent": (data_dependent, plain),
    "data-dependent-size": (data_dependent_size, plain),
    "native-argument": (native_argument, plain), "outside-history": (outside_history, history),
    "mutated-leaf": (mutated_leaf, history), "disabled": (disabled, plain),
    "requested": (requested, plain), "late": (late, leaf),
    "process-setting": (process_setting, plain)}


@pytest.mark.parametrize("code", CASES)
def test_break(code: str) -> None:
    f, inputs = CASES[code]
    report = torch.compiler.explain(f)(inputs())
    assert code in {b.code for b in report.breaks}
    assert torch.compile(f)(inputs()).tolist() == f(inputs()).tolist()


def test_changing_values_break_in_the_end() -> None:
    def f(x: Any, word: str) -> Any:
        return x * len(word)
    fast = torch.compile(f)
    for n in range(1, 12):
        assert fast(plain(), "a" * n).tolist() == [n, 2.0 * n]


ELSEWHERE = {"changing-value", "halt", "sparse-tensor"}     # here above, in every break, in parity


def test_every_code_has_a_program() -> None:
    known = {*CASES, *test_breaks.TRIGGERS, *test_breaks.DIRECT, *ELSEWHERE}
    assert set(REGISTRY) <= known

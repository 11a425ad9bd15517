"""Gradients through complex numbers, in PyTorch's convention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lehr.ops import execute, families, registry
from lehr.tensor import dispatch
from tests.ops import oracle, tape
from tests.ops.test_tensor import laid

assert families.FAMILIES
pytestmark = [pytest.mark.parity,
              pytest.mark.skipif(oracle.torch is None, reason="torch is not installed")]

# name -> (program over F or torch, kinds of its operands: "z" complex, "x" real)
PROGRAMS: dict[str, tuple[Any, str]] = {
    "mul": (lambda F, a, b: F.mul(a, b), "zz"),
    "mixed": (lambda F, a, b: F.mul(a, b), "zx"),
    "div": (lambda F, a, b: F.div(a, b), "zz"),
    "exp": (lambda F, a: F.exp(a), "z"),
    "log": (lambda F, a: F.log(F.add(a, 5)), "z"),
    "sin": (lambda F, a: F.sin(F.mul(a, a)), "z"),
    "square": (lambda F, a: F.square(a), "z"),
    "abs": (lambda F, a: F.abs(a), "z"),
    "angle": (lambda F, a: F.angle(a), "z"),
    "sgn": (lambda F, a: F.sgn(a), "z"),
    "sum": (lambda F, a: F.sum(a, 0), "z"),
    "mean": (lambda F, a: F.mean(F.mul(a, a), 1), "z"),
    "conj": (lambda F, a, b: F.mul(F.conj(a), b), "zz"),
    "sub": (lambda F, a, b: F.sub(a, b, alpha=2), "zz"),
    "parts": (lambda F, a: F.mul(F.real(a), F.imag(a)), "z"),
    "polar": (lambda F, x, y: F.polar(x, y), "xx"),
    "complex": (lambda F, x, y: F.complex(x, y), "xx"),
    "rotary": (lambda F, x, y: F.view_as_real(
        F.mul(F.view_as_complex(x), F.polar(F.ones_like(F.select(y, -1, 0)), F.select(y, -1, 1)))),
        "xx"),
    "where": (lambda F, a, b: F.where(F.gt(F.real(a), 0), a, b), "zz"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradient(name: str) -> None:
    program, kinds = PROGRAMS[name]
    random = np.random.default_rng(0)
    operands = []
    for kind in kinds:
        x = random.uniform(0.3, 2, (3, 2)) * random.choice([-1, 1], (3, 2))
        operands.append(x + 1j * random.uniform(0.3, 2, (3, 2)) if kind == "z" else x)
    torch = oracle.torch
    theirs = [torch.from_numpy(a).requires_grad_() for a in operands]
    want = program(torch, *theirs)
    weight = random.uniform(0.5, 1.5, want.shape)
    if want.is_complex():
        weight = weight + 1j * random.uniform(0.5, 1.5, want.shape)
    expected = torch.autograd.grad(want, theirs, torch.from_numpy(weight))
    mine = [tape.Tracked(a) for a in operands]
    have = program(tape.F, *mine)
    assert not oracle.agree(have.array, oracle.from_torch(want), 1e-11, 1e-12)
    grads = tape.gradients([(have, tape.Tracked(weight))], mine)
    for g, e in zip(grads, expected, strict=True):
        assert not oracle.agree(g.array, oracle.from_torch(e), 1e-9, 1e-10)


@pytest.mark.parametrize("name", ["real", "imag", "view_as_real", "view_as_complex"])
def test_views(name: str) -> None:
    """The parts share memory: strides as torch's, and writes reach the base, also as `inverse` has
    it."""
    random = np.random.default_rng(1)
    base = random.uniform(-1, 1, (3, 4, 2))
    base = base if name == "view_as_complex" else base.view(np.complex128)[..., 0].T
    op = registry.get(name)
    mine, theirs = laid(base), oracle.torch.from_numpy(base.copy(order="K"))
    have, want = dispatch.call(op, (mine,)), oracle.lookup(name)(theirs)
    assert have._strides == want.stride() and have._offset == want.storage_offset()
    assert not oracle.agree(have._array, oracle.from_torch(want), 0, 0)
    value = random.uniform(-1, 1, want.shape).astype(have.dtype.np)
    want.copy_(oracle.torch.from_numpy(value))
    dispatch.assign(have, laid(value))
    assert not oracle.agree(mine._array, oracle.from_torch(theirs), 0, 0)
    made = op.inverse(execute.FUNCTIONS, execute.wrap(base), execute.wrap(value))
    assert not oracle.agree(execute.unwrap(made), mine._array, 0, 0)


def test_view_as_complex_needs_pairs() -> None:
    op = registry.get("view_as_complex")
    with pytest.raises(RuntimeError, match="stride 1"):
        dispatch.call(op, (laid(np.zeros((2, 3)).T),))

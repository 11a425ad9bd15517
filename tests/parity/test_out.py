"""`out=`: what may be written where, against torch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import lehr
from lehr.base import dtype as dt
from lehr.ops.registry import Op
from lehr.ops.sample import Sample, samples_of
from tests.ops import oracle
from tests.ops.test_generated import OPS
from tests.ops.test_tensor import tensors

torch = pytest.importorskip("torch")


def public(op: Op) -> Any:
    found: Any = lehr
    for name in op.places[0].split("."):
        found = getattr(found, name, None)
    return found


def first(op: Op) -> Sample | None:
    """A call that torch knows and that has one tensor as its result."""
    if "function" not in op.where.split() or oracle.function(op) is None or public(op) is None:
        return None
    good = (s for s in samples_of(op, dt.float32) if s.error is None and s.parity)
    sample = next(good, None)
    if sample is None or outcome(lambda: oracle.call(op, sample)) != "ok":
        return None
    return sample if isinstance(oracle.call(op, sample), torch.Tensor) else None


def outcome(call: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return type(error).__name__
    return "ok"


def theirs(op: Op, s: Sample, out: Any) -> Any:
    words = {k: oracle.to_torch(v) for k, v in s.kwargs.items()}
    return oracle.function(op)(*oracle.to_torch(list(s.args)), **words, out=out)


def ours(op: Op, s: Sample, out: Any) -> Any:
    return public(op)(*map(tensors, s.args), **{k: tensors(v) for k, v in s.kwargs.items()},
                      out=out)


def word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [o for o in OPS if "function" in o.where.split()],
                         ids=lambda op: op.name)
def test_dtypes(op: Op) -> None:
    """A wider and a narrower dtype of `out` are taken or refused as by torch."""
    sample = first(op)
    if sample is None:
        pytest.skip("torch has no such function")
    want = oracle.call(op, sample)
    if outcome(lambda: theirs(op, sample, torch.empty_like(want))) != "ok":
        pytest.skip("torch's has no out")
    if op.name == "nonzero":
        pytest.skip("a function of views, without out")
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    inexact = want.dtype.is_floating_point or want.dtype.is_complex
    for kind in (wider.get(want.dtype, torch.float32), torch.int8 if inexact else torch.bool):
        if kind is want.dtype:
            continue
        refused = outcome(lambda k=kind: theirs(op, sample, torch.empty(want.shape, dtype=k)))
        mine = lehr.empty(tuple(want.shape), dtype=getattr(lehr, word(kind)))
        got = outcome(lambda m=mine: ours(op, sample, m))
        assert (got == "ok") == (refused == "ok"), f"{kind}: {got}, torch: {refused}"


def overlaps(lib: Any) -> dict[str, Any]:
    """Calls whose `out` shares memory with an input."""
    x, i = lib.arange(6.), lib.tensor([1, 0, 2])
    m = lib.arange(9.).reshape(3, 3)
    return {
        "shifted": lambda: lib.add(x[:3], 1, out=x[1:4]),
        "same": lambda: lib.add(x, 1, out=x),
        "strided": lambda: lib.add(x[::2], 1, out=x[:3]),
        "take": lambda: lib.take(x, i, out=x[:3]),
        "gather": lambda: lib.gather(x, 0, lib.arange(6), out=x),
        "cat": lambda: lib.cat([x[:3], x[3:]], out=x),
        "row": lambda: lib.sum(m, 0, out=m[0]),
        "product": lambda: lib.mm(m, m, out=m),
        "running": lambda: lib.cumsum(x, 0, out=x),
        "rows": lambda: lib.index_select(x, 0, i, out=x[:3]),
        "masked": lambda: lib.masked_select(x, x > 1, out=x),
        "triangle": lambda: lib.tril(m, out=m),
        "scattered": lambda: lib.scatter(x, 0, i, x[:3], out=x),
        "expanded": lambda: lib.add(m, 1, out=lib.zeros(1).expand(3, 3)),
    }


@pytest.mark.parametrize("name", overlaps(lehr))
def test_overlap(name: str) -> None:
    assert outcome(overlaps(lehr)[name]) == outcome(overlaps(torch)[name])


@pytest.mark.parametrize("lib", [lehr, torch], ids=["lehr", "torch"])
def test_resized(lib: Any) -> None:
    out = lib.zeros(4)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        made = lib.add(lib.ones(2, 3), 1, out=out)
    assert made is out and tuple(out.shape) == (2, 3) and out.sum().item() == 12
    empty = lib.zeros(0)
    assert tuple(lib.add(lib.ones(2), 1, out=empty).shape) == (2,)


@pytest.mark.parametrize("lib", [lehr, torch], ids=["lehr", "torch"])
def test_several(lib: Any) -> None:
    """Results with names keep them."""
    values, places = lib.zeros(3), lib.zeros(3, dtype=lib.int64)
    made = lib.sort(lib.tensor([3., 1., 2.]), out=(values, places))
    assert made.values is values and made.indices is places
    assert values.tolist() == [1, 2, 3] and places.tolist() == [1, 2, 0]
    with pytest.raises(RuntimeError):
        lib.sort(lib.ones(3), out=(values, lib.zeros(3)))


def numbers(lib: Any) -> dict[str, Any]:
    """Calls with numbers in the place of tensors."""
    x = lib.tensor([1, 2, 3])
    return {"eq": lambda: lib.eq(2, x), "maximum": lambda: lib.maximum(x, 2),
            "fmax": lambda: lib.fmax(2, x), "copysign": lambda: lib.copysign(2, x),
            "pow": lambda: lib.pow(2, 3), "pow_tensor": lambda: lib.pow(2, x),
            "bitwise_and": lambda: lib.bitwise_and(2, 3), "xlogy": lambda: lib.xlogy(2, x),
            "rsub": lambda: lib.rsub(2, x), "radd": lambda: lib.Tensor.__radd__(2, x),
            "exp": lambda: lib.exp(2), "add": lambda: lib.add(2, x),
            "where": lambda: lib.where(x > 1, 1, 2), "lcm": lambda: x.lcm(2)}


@pytest.mark.parametrize("name", numbers(lehr))
def test_numbers(name: str) -> None:
    """Numbers are operands where torch takes them, a TypeError elsewhere."""
    assert outcome(numbers(lehr)[name]) == outcome(numbers(torch)[name])

"""Every op's samples through `lehr.compile` with the native back end: what eager gives.

Many calls are one compiled function (`batch`). The quick tests take some samples of every op, of
every dtype in turn; the slow ones take them all, and have the C compiled without optimisation:
what they look for is in the source, and gcc would take three quarters of their time.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lehr
from lehr.base import dtype as dt
from lehr.compiler.counters import stats
from lehr.compiler.site import Unsupported
from lehr.ops import registry
from lehr.ops.registry import HOST, VIEW, Op
from lehr.ops.sample import Sample, dtypes_of, samples_of, variants
from tests.compile import batch
from tests.compile.batch import Failure
from tests.ops.test_generated import OPS

DTYPES = (dt.float32, dt.float64, dt.bfloat16, dt.float16, dt.int64, dt.int32, dt.uint8, dt.bool_)
CAPTURED = [op for op in OPS if not op.breaks]
BREAKING = [op for op in OPS if op.breaks]
DIFFERENTIABLE = [op for op in CAPTURED if op.nondiff is not True]
# Calls that make one function, and ops that make one test.
SIZE, OPS_A_TEST = 100, 16


def chunks(ops: list[Op]) -> list[object]:
    parts = [ops[i:i + OPS_A_TEST] for i in range(0, len(ops), OPS_A_TEST)]
    return [pytest.param(p, id=f"{p[0].name}-{p[-1].name}") for p in parts]


def good(op: Op, dtype: dt.DType) -> list[Sample]:
    return [s for s in samples_of(op, dtype) if s.error is None] if dtype in dtypes_of(op) else []


def every(op: Op, dtypes: tuple[dt.DType, ...]) -> Iterator[Sample]:
    for dtype in dtypes:
        samples = good(op, dtype)
        yield from samples
        for s in samples:
            yield from variants(op, s)


def some(op: Op, dtypes: tuple[dt.DType, ...]) -> Iterator[Sample]:
    """Three samples of the first dtype, and one of four others; the op's name picks which."""
    pick = zlib.crc32(op.name.encode())
    derived = [v for s in good(op, dtypes[0]) for v in variants(op, s)]
    yield from itertools.islice(good(op, dtypes[0]), 2)
    yield from derived[pick % max(len(derived), 1):][:1]
    for i in range(min(4, len(dtypes) - 1)):
        dtype = dtypes[1 + (pick + i) % (len(dtypes) - 1)]
        found = good(op, dtype)
        if found:
            sample = found[pick % len(found)]
            yield sample if i % 2 else next(variants(op, sample), sample)


def run(ops: list[Op], choose: Callable[..., Iterator[Sample]], dtypes: tuple[dt.DType, ...],
        grad: bool = False, **options: Any) -> None:
    calls = []
    for op in ops:
        for sample in choose(op, dtypes):
            call, error = batch.call_of(op, sample, grad)
            if error is None and (not grad or call.leaves):
                calls.append(call)
    failures: list[Failure] = []
    check = batch.gradients if grad else batch.values
    for i in range(0, len(calls), SIZE):
        failures += check(calls[i:i + SIZE], **options)
    assert not failures, "\n".join(map(str, failures[:40]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(CAPTURED))
def test_values(ops: list[Op]) -> None:
    run(ops, some, DTYPES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(DIFFERENTIABLE))
def test_gradients(ops: list[Op]) -> None:
    run(ops, some, DTYPES[:2], grad=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(CAPTURED))
def test_every_value(ops: list[Op]) -> None:
    run(ops, every, DTYPES, optimize=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(DIFFERENTIABLE))
def test_every_gradient(ops: list[Op]) -> None:
    run(ops, every, DTYPES[:2], grad=True, optimize=0)


@pytest.mark.parametrize("op", BREAKING, ids=lambda op: op.name)
def test_breaks(op: Op) -> None:
    """A result whose size depends on data is an error in a full graph, which names it."""
    call = next(c for s in every(op, DTYPES) for c, error in (batch.call_of(op, s),) if not error)
    with pytest.raises(Unsupported, match=op.breaks):
        batch.compiled([call], "inductor")


@pytest.mark.filterwarnings("ignore")
def test_host_ops_are_counted() -> None:
    """An op that no kernel computes is one host call of the program, and says so; views of an
    input are made without any call."""
    calls = []
    for op in CAPTURED:
        if op.host and op.kind != VIEW or op.kind == HOST:
            found = (batch.call_of(op, s) for s in good(op, dt.float64))
            calls += [c for c, error in found if error is None][:1]
    assert len(calls) > 40
    before = stats()["host_calls"]
    batch.compiled(calls, "inductor")
    assert stats()["host_calls"] - before >= len(calls)


def test_differences_are_found() -> None:
    """The comparison sees another value, dtype, layout and storage."""
    op = registry.get("add")
    x, y = lehr.zeros(2, 3), lehr.zeros(2, 3)
    assert batch.different(x, y, op, []) == ""
    for other in (x + 1, x.double(), x.t().contiguous().t(), x.t(), x.reshape(3, 2),
                  lehr.zeros(2, 3).requires_grad_()):
        assert batch.different(other, y, op, [])
    assert "storage" in batch.different(x, y, op, [x])
    assert batch.different([x], (y,), op, []) and batch.different(1, 1.0, op, [])

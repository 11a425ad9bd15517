"""What an op gives does not depend on what it is fused with; infinities, NaN, zeros of both signs
and numbers at the ends of the range give what they give eagerly. Generated from the op table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lehr
from lehr.base import dtype as dt
from lehr.ops import registry
from lehr.ops.registry import HOST, POINTWISE, RANDOM, REDUCE, SCAN, Op
from lehr.ops.sample import Sample
from lehr.tensor import dispatch
from lehr.tensor.tensor import Tensor
from tests.compile import batch
from tests.compile.batch import Call
from tests.compile.test_ops import CAPTURED, chunks, good

F = dispatch.F
PURE = [op for op in CAPTURED if not op.host and op.kind not in (HOST, RANDOM)]
NUMERIC = [op for op in PURE if op.kind in (POINTWISE, REDUCE, SCAN)]


def calls_of(op: Op, samples: Iterator[Sample]) -> Iterator[Call]:
    for sample in samples:
        call, error = batch.call_of(op, sample)
        if error is None:
            yield call


def bits(t: Tensor) -> Any:
    """The numbers of a tensor as they are in memory; all NaN are one."""
    a = np.ascontiguousarray(t.detach()._array)
    if t.dtype.is_floating_point or t.dtype.is_complex:
        a = np.where(a != a, np.zeros((), a.dtype), a)
    return np.frombuffer(a.tobytes(), np.uint8), np.frombuffer(
        np.ascontiguousarray(t._array != t._array).tobytes(), np.uint8)


YES = lehr.tensor(True)


def fed(x: Tensor) -> Tensor:
    """The same numbers, from a kernel that may be fused with what reads them."""
    return F.where(YES, x, x.new_zeros(())) if x.dtype.is_floating_point else x


def read(made: Any) -> list[Any]:
    """Something that reads the results, to be fused with what makes them."""
    return [F.abs(F.add(F.mul(t, 0.5), 1.0)) for t in batch.tensors_in(made)
            if t.dtype.is_floating_point]


def surrounded(calls: list[Call], before: bool, after: bool) -> list[Any]:
    """The results of calls with such neighbours."""
    function, inputs = batch.function_of(calls, fed if before else None, read if after else None)
    found: list[Any] = lehr.compile(function, fullgraph=True)(inputs)
    return found[:len(calls)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(PURE))
def test_neighbours_change_nothing(ops: list[Op]) -> None:
    calls = [c for op in ops for c in itertools.islice(
        calls_of(op, iter(good(op, dt.float32) or good(op, dt.int64))), 1)]
    if not calls:
        return
    alone = [surrounded([c], False, False)[0] for c in calls]
    wrong = []
    for before, after in ((True, False), (False, True), (True, True)):
        for call, a, b in zip(calls, alone, surrounded(calls, before, after), strict=True):
            for x, y in zip(batch.tensors_in(a), batch.tensors_in(b), strict=True):
                if not all(map(np.array_equal, bits(x), bits(y))):
                    wrong.append(f"{call}: with {'what it reads' * before} "
                                 f"{'what reads it' * after}: {y}, alone {x}")
    assert not wrong, "\n".join(wrong)


SPECIAL = {
    dt.float32: [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.2e-38, 1e-45,
                 -1e-45, 0.5, 88.8, -104.5, 1e10, 16777217.0, -2.5],
    dt.float64: [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 2.3e-308, 5e-324,
                 0.5, 709.9, -745.5, 1e200, 9007199254740993.0, -2.5, 1e-200]}


def special(sample: Sample, dtype: dt.DType, turn: int) -> Sample:
    """The sample with such numbers in its arrays; each begins somewhere else in the list."""
    count = 0

    def filled(a: Any) -> Any:
        nonlocal count
        if isinstance(a, np.ndarray) and a.dtype == dtype.np:
            start = turn + 5 * count
            count += 1
            return np.resize(np.roll(np.array(SPECIAL[dtype], dtype.np), -start), a.shape)
        return type(a)([filled(x) for x in a]) if type(a) in (list, tuple) else a
    return sample._replace(args=tuple(filled(a) for a in sample.args))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", SPECIAL, ids=lambda d: d.name)
@pytest.mark.parametrize("ops", chunks(NUMERIC))
def test_the_ends_of_the_range(ops: list[Op], dtype: dt.DType) -> None:
    calls = [c for op in ops for sample in good(op, dtype)[:2] for turn in (0, 3, 7)
             for c in calls_of(op, iter([special(sample, dtype, turn)]))]
    failures = batch.values(calls) if calls else []
    assert not failures, "\n".join(map(str, failures))


def test_differences_are_seen() -> None:
    x = lehr.tensor([1.0, float("nan"), -0.0])
    assert all(map(np.array_equal, bits(x), bits(x.clone())))
    for y in ([1.0, 2.0, -0.0], [1.0, float("nan"), 0.0], [1.0000001, float("nan"), -0.0]):
        assert not all(map(np.array_equal, bits(x), bits(lehr.tensor(y))))
    assert registry.get("add") in PURE

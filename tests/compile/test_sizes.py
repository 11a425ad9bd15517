"""Compiled once with symbols for all sizes, ops are called with smaller ones, down to 0: values and
gradients are eager mode's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lehr
from lehr.base import dtype as dt
from lehr.ops.registry import Op
from lehr.ops.sample import STORAGE, Sample, dtypes_of, samples_of
from lehr.tensor import dispatch
from tests.compile import batch, loops
from tests.compile.test_ops import CAPTURED, chunks

assert loops
# Those that programs can name; what ops are made of is told sizes by these.
NAMED = [op for op in CAPTURED if op.where and op.name not in STORAGE]


def cuts(op: Op) -> Iterator[tuple[Sample, int, list[int]]]:
    """A sample, an axis of its largest arrays, the sizes to call it with."""
    own = dtypes_of(op)
    for sample in samples_of(op, dt.float32 if dt.float32 in own else own[0])[:2]:
        sizes = [a.shape for a in sample.arrays() if a.ndim]
        if sample.error is None and sizes:
            for axis in (0, -1):
                most = max(s[axis] for s in sizes)
                if most > 2:
                    yield sample, axis, [most, 2, 1, 0, most - 1]


def cut(sample: Sample, axis: int, size: int) -> Sample:
    """Arrays as long as the longest along an axis, shorter there."""
    most = max(a.shape[axis] for a in sample.arrays() if a.ndim)

    def one(a: np.ndarray) -> np.ndarray:
        if not a.ndim or a.shape[axis] != most:
            return a
        return np.ascontiguousarray(a[:size] if axis == 0 else a[..., :size])
    return sample.mapped(one, f"{size} of {axis}")


def tried(run: Any) -> Any:
    lehr.manual_seed(batch.SEED)
    try:
        return run()
    except Exception as error:
        return error


def gradients(result: Any, inputs: list[Any]) -> Any:
    leaves = [t for t in inputs if t.requires_grad]
    outs = [t for t in batch.tensors_in(result) if t.requires_grad and t.grad_fn is not None]
    if not leaves or not outs:
        return []
    return lehr.autograd.grad([t.sum() * 2 for t in outs], leaves, allow_unused=True)


def apart(op: Op, have: Any, want: Any, inputs: list[Any]) -> str:
    """What is wrong with a compiled call's results or gradients; empty where nothing is."""
    for a, b, same in ((have, want, lambda a, b: batch.different(a, b, op, inputs)),
                       (tried(lambda: gradients(have, inputs)),
                        tried(lambda: gradients(want, inputs)), near)):
        if isinstance(b, Exception):
            return "" if type(a) is type(b) else f"{a!r:.200}, not {b!r:.200}"
        text = f"{a!r:.200}" if isinstance(a, Exception) else same(a, b)
        if text:
            return text
    return ""


def near(have: Any, want: Any) -> str:
    for a, b in zip(have, want, strict=True):
        if (a is None) != (b is None):
            return f"gradient {a}, expected {b}"
        if a is not None and not np.allclose(a._array, b._array, 1e-3, 1e-4, equal_nan=True):
            return f"gradient {a}, expected {b}"
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(NAMED))
def test_sizes_that_shrink(ops: list[Op]) -> None:
    failures = []
    for op in ops:
        for sample, axis, sizes in cuts(op):
            compiled: Any = None
            for size in sizes:
                smaller = cut(sample, axis, size)
                call = batch.Call(op, smaller, tuple(
                    batch.tensors(a, op.nondiff is not True) for a in smaller.bind(op)))
                function, inputs = batch.function_of([call])
                compiled = compiled or lehr.compile(function, dynamic=True, backend="loops")
                want = tried(lambda call=call: dispatch.call(call.op, call.bound))
                have = tried(lambda inputs=inputs, run=compiled: run(inputs)[0])
                text = apart(op, have, want, inputs)
                if text:
                    failures.append(f"{call}: {text}")
    assert not failures, "\n".join(failures[:40])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(NAMED))
def test_results_without_elements_are_read(ops: list[Op]) -> None:
    """Ops of a loop program that have no elements, read by others, scattered into, summed (seed
    19008980: `repeat` of nothing divided by a size of 0)."""
    failures = []
    for op in ops:
        for sample, axis, _ in cuts(op):
            none = cut(sample, axis, 0)
            call = tried(lambda none=none, op=op: batch.Call(op, none, tuple(
                batch.tensors(a, False) for a in none.bind(op))))
            if isinstance(call, Exception):
                continue
            function, inputs = batch.function_of([call])

            def read(*inputs: Any, function: Any = function) -> list[Any]:
                found = [t for t in batch.tensors_in(function(*inputs)) if t.numel() == 0]
                return [x for t in found for x in (t * 2, t.sum(), lehr.as_strided_scatter(
                    t, lehr.ones(t.shape, dtype=t.dtype), t.shape, lehr.empty(t.shape).stride()))]
            want = tried(lambda inputs=inputs, read=read: read(*inputs))
            have = tried(lambda inputs=inputs, read=read: lehr.compile(
                read, backend="loops", options={"suppress_errors": False})(*inputs))
            text = apart(op, have, want, [])
            if text:
                failures.append(f"{call}: {text}")
    assert not failures, "\n".join(failures[:40])

"""Ops with operands of dtypes that their samples leave out: compiled calls do what eager ones do.

numpy has rules of its own for such operands (a sum of booleans is a number, an exponential of whole
numbers does not fit its result); a kernel has none. What is not refused has to be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.ops.registry import Op
from lehr.ops.sample import Sample, dtypes_of, samples_of
from tests.compile import batch, loops
from tests.compile.test_ops import CAPTURED, chunks
from tests.ops.test_generated import show

assert loops
OTHERS = (dt.bool_, dt.uint8, dt.int64, dt.float16, dt.float64)
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def recast(sample: Sample, place: int | None, dtype: dt.DType) -> Sample:
    """The sample with the arrays of its own dtype, or the one at a place, of another."""
    own, seen = next(a for a in sample.arrays()).dtype, iter(range(99))
    def one(a: np.ndarray) -> np.ndarray:
        wanted = a.dtype == own if place is None else next(seen) == place
        return a.astype(dtype.np) if wanted else a
    return sample.mapped(one, f"{dtype.name}{'' if place is None else place}")


def undeclared(op: Op) -> Iterator[Sample]:
    """Calls with dtypes that the op's samples leave out, and with mixed ones."""
    own = dtypes_of(op)
    source = dt.float32 if dt.float32 in own else own[0]
    for i, sample in enumerate(samples_of(op, source)):
        if sample.error is not None or not sample.arrays():
            continue
        for dtype in OTHERS:
            if dtype not in own:
                yield recast(sample, None, dtype)
        for place in range(len(sample.arrays()) if len(sample.arrays()) > 1 and i < 3 else 0):
            yield recast(sample, place, OTHERS[(i + place) % len(OTHERS)])


def outcome(run: Any) -> tuple[Any, Exception | None]:
    try:
        return run(), None
    except Exception as error:
        return None, error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ops", chunks(CAPTURED))
def test_what_eager_mode_makes_of_them(ops: list[Op]) -> None:
    failures = []
    for op in ops:
        for sample in undeclared(op):
            call = batch.Call(op, sample, tuple(batch.tensors(a, False) for a in sample.bind(op)))
            want, refusal = outcome(lambda call=call: batch.eager([call])[0])
            have, error = outcome(lambda call=call: batch.compiled([call], "loops")[0])
            if refusal is not None and type(refusal) not in REFUSALS:
                failures.append(f"{op.name}: {show(sample)}: eager mode raises {refusal!r}")
            elif refusal is not None or error is not None:
                if type(refusal) is not type(error):
                    failures.append(f"{op.name}: {show(sample)}: {error!r}, not {refusal!r}")
            else:
                text = batch.different(have, want, op, batch.tensors_in(call.bound))
                if text:
                    failures.append(f"{op.name}: {show(sample)}: {text}")
    assert not failures, "\n".join(failures[:60])

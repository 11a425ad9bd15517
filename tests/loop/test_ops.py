"""Every op's samples, lowered: the program's results are those of the eager kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lehr.ops import execute, families, registry
from lehr.ops.sample import dtypes_of, samples_of, variants
from tests.loop import route
from tests.ops.test_generated import differences, show

assert families.FAMILIES
DTYPES = ("float32", "bfloat16", "int64", "bool")
OPS = [op for op in registry.OPS.values() if op.samples is not None and not op.breaks]
CASES = [pytest.param(op, d, id=f"{op.name}-{d.name}")
         for op in OPS for d in dtypes_of(op) if d.name in DTYPES]
# Samples of one op and dtype: the declared ones, and as many derived ones.
LIMIT = 12


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op, dtype", CASES)
def test_lowered(op, dtype):
    good = [s for s in samples_of(op, dtype) if s.error is None]
    derived = itertools.islice((v for s in good for v in variants(op, s)), LIMIT)
    for sample in [*good[:LIMIT], *derived]:
        bound = sample.bind(op)
        if any(a.dtype.kind == "c" for a in sample.arrays()):
            continue
        try:
            want = execute.run(op, bound)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # a derived call that the op refuses
        if want is None or not all(isinstance(w, np.ndarray) for w in
                                   (want if isinstance(want, (tuple, list)) else [want])):
            continue
        try:
            have, program = route.through(op, bound)
        except Exception as error:
            error.add_note(show(sample))
            raise
        want = list(want) if isinstance(want, (tuple, list)) else [want]
        if any(w.dtype.kind == "c" for w in want):
            continue
        found = differences(op, list(have), want)
        assert not found, f"{show(sample)}: {found}\n{program}"

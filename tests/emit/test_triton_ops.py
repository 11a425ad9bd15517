"""Every op's samples in Triton: what the loop interpreter gives for the same program, which
`tests/loop/test_ops.py` compares with the eager kernels."""

import itertools

import numpy as np
import pytest

from lehr.compiler.emit import triton
from lehr.compiler.loop import interp
from lehr.compiler.loop.element import Unlowered
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import HostCall
from lehr.compiler.loop.lower import lower
from lehr.compiler.passes import pipeline
from lehr.ops import execute, families, registry
from lehr.ops.sample import dtypes_of, samples_of, variants
from tests.emit.test_triton import pytestmark, runner, running
from tests.loop import route
from tests.ops.test_generated import differences, show

assert families.FAMILIES and pytestmark and runner
DTYPES = ("float32", "bfloat16", "int64", "bool")
CASES = [pytest.param(op, d, id=f"{op.name}-{d.name}") for op in registry.OPS.values()
         if op.samples is not None and not op.breaks for d in dtypes_of(op) if d.name in DTYPES]
# Samples of an op and dtype, and derived ones, by where they run: the interpreter is slow.
LIMIT = {"interpreter": (1, 0), "gpu": (4, 2)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op, dtype", CASES)
def test_samples(op, dtype, runner):
    good = [s for s in samples_of(op, dtype) if s.error is None]
    few, more = LIMIT[runner]
    derived = itertools.islice((v for s in good for v in variants(op, s)), more)
    for sample in [*good[:few], *derived]:
        bound = sample.bind(op)
        try:
            made = execute.run(op, bound)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # a derived call that the op refuses
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        if any(getattr(a, "dtype", np.dtype("c8")).kind == "c" for a in
               (*sample.arrays(), *made)):
            continue
        graph, arrays = route.graph_of(op, bound)
        try:
            program = fuse(lower(pipeline.run(graph), supports=triton.supports))
        except Unlowered:
            continue
        if any(isinstance(step, HostCall) for step in program.steps):
            continue
        want = interp.run(program, [np.copy(a) for a in arrays])
        code = triton.emit(program)
        try:
            have = running["here"].run(code, [np.copy(a) for a in arrays])
        except Exception as error:
            error.add_note(f"{show(sample)}\n{code.source}")
            raise
        found = differences(op, have, list(want))
        assert not found, f"{show(sample)}: {found}\n{code.source}"

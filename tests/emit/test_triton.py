"""Kernels in Triton against the loop interpreter, in Triton's own interpreter."""

import functools
import importlib.util

import numpy as np
import pytest
from tests.emit import test_kernel as kernels
from tests.emit import test_spelling as spelling
from tests.emit.harness import read
from tests.emit.interpreter import Worker

from lehr.compiler.emit import triton
from lehr.compiler.loop.ir import Program
from lehr.compiler.loop.verify import verify

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason=(
    'the package triton is not installed: pip install "lehr[triton]"'))


@functools.cache
def worker():
    return Worker()


@pytest.fixture(scope="module", autouse=True)
def stopped():
    yield
    if worker.cache_info().currsize:
        worker().close()
        worker.cache_clear()


class Interpreted:
    """A program and its Triton."""

    def __init__(self, program, plan=None):
        self.program = verify(program if isinstance(program, Program) else read(program))
        self.code = triton.emit(self.program, plan)

    def __call__(self, *args):
        args = [a if isinstance(a, np.ndarray) and a.dtype == b.dtype.np else
                np.asarray(a, b.dtype.np) for a, b in zip(args, self.program.params, strict=True)]
        return worker().run(self.code, args)


# Tests of kernels that say nothing of C.
SHARED = [
    (kernels.test_rows_staged_and_ref,), (kernels.test_columns, (5, 3)),
    (kernels.test_columns, (30, 70)), (kernels.test_columns, (700, 65)),
    (kernels.test_norm, (7, 96)), (kernels.test_norm, (3, 33)), (kernels.test_norm, (2, 5000)),
    (kernels.test_whole, (3, 5)), (kernels.test_whole, (300, 70)),
    (kernels.test_whole, (40, 10007)), (kernels.test_scatter_gather_masks,),
    (kernels.test_empty_table,), *((kernels.test_combining, *case) for case in (
        ("add", "f32"), ("mul", "f64"), ("mul", "f32"), ("max", "i32"), ("max", "f32"),
        ("min", "bf16"), ("add", "b1"), ("add", "i8"), ("add", "i64"))),
    (kernels.test_scans,), (kernels.test_sizes_casts_and_half,),
    (kernels.test_empty_and_zero_size,), (kernels.test_padding_masks,),
    (kernels.test_products_of_small_things,), (kernels.test_old_and_new_values,),
    (kernels.test_shared_memory,)]


@pytest.mark.parametrize("test, case", [(t, case) for t, *case in SHARED])
def test_kernels(monkeypatch, test, case):
    monkeypatch.setattr(kernels, "Compiled", Interpreted)
    test(*case)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", spelling.DTYPES, ids=lambda d: d.name)
def test_ops(monkeypatch, dtype):
    """Every primitive op, over all pairs of special values."""
    monkeypatch.setattr(spelling, "Compiled", Interpreted)
    spelling.test_ops(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", spelling.ALL, ids=lambda d: d.name)
def test_casts(monkeypatch, source):
    """Every conversion, of a twentieth of the numbers that C is tested with."""
    monkeypatch.setattr(spelling, "Compiled", Interpreted)
    some = spelling.numbers(source)
    some = np.concatenate([some[:2000:10], some[::max(1, len(some) // 4000)], some[-20:]])
    monkeypatch.setattr(spelling, "numbers", lambda _: some)
    spelling.test_casts(source)

"""Every op on every dtype of its samples: eager against torch, every back end against eager,
errors.

`pytest tests/ops/test_generated.py -k "softplus"` runs one op.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lehr.ops import execute, families, registry
from lehr.ops.registry import Op
from lehr.ops.sample import Sample, dtypes_of, samples_of, variants
from tests.ops import oracle
from tests.ops.backends import BACKENDS

OPS = [op for op in registry.OPS.values() if op.samples is not None]
# Derived variants of every sample for these dtypes; the others run the declared samples only.
VARIED = ("float32", "int64", "bool", "bfloat16")
CASES = [pytest.param(op, d, id=f"{op.name}-{d.name}") for op in OPS for d in dtypes_of(op)]

assert families.FAMILIES


def eager(op: Op, sample: Sample) -> Any:
    return execute.run(op, sample.bind(op))


def calls(op: Op, dtype: Any) -> list[Sample]:
    """Good calls, declared and derived."""
    good = [s for s in samples_of(op, dtype) if s.error is None]
    derived = [v for s in good for v in variants(op, s)] if dtype.name in VARIED else []
    return good + derived


def results(out: Any) -> list[np.ndarray]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def differences(op: Op, have: Any, want: Any, table: Any = oracle.STRICT) -> str:
    have, want = results(have), results(want)
    if len(have) != len(want):
        return f"{len(have)} results, expected {len(want)}"
    for i, (a, b) in enumerate(zip(have, want, strict=True)):
        made = execute.dt.of_numpy(np.asarray(a).dtype)
        found = oracle.agree(a, b, *oracle.tolerance(op, made, table))
        if found:
            return f"result {i}: {found}"
    return ""


def show(sample: Sample) -> str:
    parts = [*map(_brief, sample.args), *(f"{k}={_brief(v)}" for k, v in sample.kwargs.items())]
    return f"{sample.name} ({', '.join(parts)})"


def _brief(a: Any) -> str:
    if isinstance(a, np.ndarray):
        return f"{a.dtype}{list(a.shape)}"
    return f"[{', '.join(map(_brief, a))}]" if isinstance(a, list) else repr(a)


def outcome(fn: Any, *args: Any) -> tuple[Any, Exception | None]:
    try:
        return fn(*args), None
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return None, error


@pytest.mark.parity
@pytest.mark.skipif(oracle.torch is None, reason="torch is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_parity(op: Op, dtype: Any) -> None:
    """What torch computes, lehr computes: values, dtypes, shapes. What torch rejects it may
    accept."""
    if oracle.function(op) is None:
        pytest.skip(f"torch has no {op.name}")
    for sample in calls(op, dtype):
        if not sample.parity:
            continue
        have, error = outcome(eager, op, sample)
        want, refusal = outcome(oracle.call, op, sample)
        if refusal is None:
            assert error is None, f"{show(sample)}: torch accepts this"
            found = differences(op, have, oracle.from_torch(want),
                                oracle.TOLERANCE)
            assert not found, f"{show(sample)}: {found}"
        elif error is None and not sample.name:
            unready = "not implemented" in str(refusal) or "not support" in str(refusal)
            assert unready or isinstance(refusal, NotImplementedError), (
                f"{show(sample)}: torch raises {refusal!r}")


@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_backends(op: Op, dtype: Any) -> None:
    """Every back end agrees with eager; eager does not depend on the layout of its operands."""
    for sample in calls(op, dtype):
        bound = sample.bind(op)
        want, error = outcome(execute.run, op, bound)
        if error is not None:
            continue
        plain = sample.mapped(np.ascontiguousarray) if sample.name == "strided" else None
        if plain is not None and op.kind not in (registry.RANDOM, registry.CREATE):
            found = differences(op, want, eager(op, plain.mapped(
                lambda a, s=iter(sample.arrays()): a.reshape(next(s).shape))))
            assert not found, f"{show(sample)}: contiguous operands give another result: {found}"
        for name, backend in BACKENDS.items():
            have = backend(op, bound)
            found = "" if have is None else differences(op, have, want)
            assert not found, f"{name}: {show(sample)}: {found}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_errors(op: Op) -> None:
    """Error samples raise the type they name, and torch's call raises it too."""
    for dtype in dtypes_of(op):
        for sample in samples_of(op, dtype):
            if sample.error is None:
                continue
            with pytest.raises(sample.error) as caught:
                eager(op, sample)
            assert sample.match in str(caught.value)
            if oracle.torch is None or not sample.parity or oracle.function(op) is None:
                continue
            with pytest.raises(sample.error):
                oracle.call(op, sample)

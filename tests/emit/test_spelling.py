"""Every primitive op's C spelling, and every conversion, against its numpy kernel."""

import ml_dtypes
import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.graph.ir import TensorType
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import Buffer, Expr, Kernel, Program, Store, axis
from lehr.ops import execute, registry
from tests.emit.harness import Compiled

DTYPES = (dt.bool_, dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64, dt.float32, dt.float64)
SPELLED = [op for op in registry.OPS.values() if op.c is not None]
# The prelude's tests say how far functions may be off; here numpy's own single precision is beside.
CLOSE = {"float32": {"rtol": 1e-6, "atol": 1e-44}, "float64": {"rtol": 1e-13, "atol": 1e-320}}
# Of two zeros of different signs either will do; lgamma(1) is 0 only in theory.
UNSIGNED_ZERO = ("maximum", "minimum", "clamp_min", "clamp_max", "lgamma")


def values(dtype, which):
    """All pairs of interesting numbers: argument 0 or 1."""
    if dtype.category == dt.FLOAT:
        some = [0, -0.0, 1, -1, 0.5, -2.5, 3.5, 7.25, 1e-3, 100.5, -88, 1e30, np.inf, -np.inf,
                np.nan, 2, 0.3, -0.7]
    elif dtype is dt.bool_:
        some = [False, True]
    else:
        info = np.iinfo(dtype.np)
        some = [0, 1, 2, 3, 7, 63, 100, info.max, info.max - 1, info.min, info.min + 1]
        some += [-1, -3, -100] if info.min else []
    some = np.array(some, object).astype(dtype.np)
    return np.meshgrid(some, some)[which].ravel()


def computed(op, dtype):
    """The dtype that the op computes in (None: it refuses the dtype)."""
    kinds = [TensorType((), dt.bool_ if p.name == "condition" else dtype) if p.is_tensor
             else p.default for p in op.params]
    try:
        return (op.rule(*kinds).compute or dtype).wide
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def elements(op, dtype, loads):
    """The tensor arguments of the op as elements."""
    made = computed(op, dtype)
    given, rest = [], [expr.cast(e, made) for e in loads]
    for p in op.params:
        if p.is_tensor and op.name == "where" and p.name == "condition":
            given.append(expr.alu("gt", loads[1], expr.const(0, dtype)))
        elif p.is_tensor:
            given.append(rest.pop(0))
    return given


def program(dtype, ops):
    """One kernel an op, y_op[i] = op(a[i], b[i]); ops whose rule refuses the dtype are left out."""
    n = len(values(dtype, 0))
    params = [Buffer(name, dtype, (n,), (1,), "param") for name in "ab"]
    outputs, steps, done = [], [], []
    for op in ops:
        i = axis("i0", n)
        loads = [Expr("Load", dtype, b, (i.var,), None, None) for b in params]
        made = computed(op, dtype)
        if made is None or (isinstance(op.c, dict) and made.category not in op.c):
            continue
        value = expr.alu(op.name, *elements(op, dtype, loads))
        out = Buffer(f"y_{op.name}", value.dtype, (n,), (1,), "output")
        outputs.append(out)
        steps.append(Kernel(op.name, (i,), (Store(out, (i.var,), value),)))
        done.append(op)
    return Program("p", tuple(params), tuple(outputs), tuple(steps), tuple(outputs)), done


def wanted(op, dtype, arrays):
    """The op's eager kernel; where it refuses a zero divisor, another one stands in."""
    given, rest = [], [execute.cast(a, computed(op, dtype)) for a in arrays]
    for p in op.params:
        if p.is_tensor and op.name == "where" and p.name == "condition":
            given.append(arrays[1] > 0)
        else:
            given.append(rest.pop(0) if p.is_tensor else p.default)
    with np.errstate(all="ignore"):
        return np.asarray(op.eager(np, *given))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_ops(dtype):
    p, done = program(dtype, SPELLED)
    a, b = values(dtype, 0), values(dtype, 1)
    if dtype.category == dt.INT:
        b = np.where(b == 0, b.dtype.type(5), b)
    results = Compiled(p)(a, b)
    assert len(done) > (10 if dtype is dt.bool_ else 25)
    for op, have, out in zip(done, results, p.results, strict=True):
        want = wanted(op, dtype, (a, b)).astype(out.dtype.np)
        close = CLOSE.get(out.dtype.name, {"rtol": 0})
        if op.name == "lgamma":  # the eager kernel is the less exact one around its zeros
            close = {"rtol": 1e-6 if out.dtype is dt.float32 else 1e-12, "atol": 1e-14}
        np.testing.assert_allclose(have, want, err_msg=op.name, **close)
        if out.dtype.category == dt.FLOAT and op.name not in UNSIGNED_ZERO:
            zeros = want == 0
            np.testing.assert_array_equal(np.signbit(have[zeros]), np.signbit(want[zeros]),
                                          err_msg=op.name)


def test_zero_divisors():
    """An integer division by zero stops the call, with the user's line."""
    text = """program p(a: param i32[8], b: param i32[8]) {
  y: output i32[8]
  kernel k(i0: 8) {
    # model.py:3 | y = a // b
    y[i0] = floor_divide.i32(a[i0], b[i0])
  }
  return y
}"""
    f = Compiled(text)
    a, b = np.arange(8, dtype=np.int32), np.full(8, -3, np.int32)
    np.testing.assert_array_equal(f(a, b)[0], a // b)
    b[5] = 0
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError \(at model.py:3\)"):
        f(a, b)
    b[5] = 1
    np.testing.assert_array_equal(f(a, b)[0], a // b)


# Conversions

ALL = (*DTYPES, dt.float16, dt.bfloat16)


def numbers(dtype):
    if dtype.category == dt.FLOAT:
        bits = np.arange(1 << 16, dtype=np.uint16)
        if dtype.itemsize == 2:
            return bits.view(dtype.np)
        half = np.concatenate([bits.view(np.float16).astype(dtype.np),
                               bits.view(ml_dtypes.bfloat16).astype(dtype.np)])
        # Halfway between neighbours of half precision, and beside it.
        near = np.concatenate([half * dtype.np.type(f) for f in
                               (1, 1 + 2.0 ** -12, 1 + 2.0 ** -11, 1 + 3 * 2.0 ** -12,
                                1 + 2.0 ** -9, 1 + 2.0 ** -8, 1 + 2.0 ** -20)])
        ends = np.array([2.0 ** 31, 2.0 ** 32, 2.0 ** 63, 2.0 ** 64, 1e30, 255.9, -0.9, 65519.99,
                         65520, 3.39e38], dtype.np)
        return np.concatenate([near, ends, -ends])
    if dtype is dt.bool_:
        return np.array([False, True])
    info = np.iinfo(dtype.np)
    rng = np.random.default_rng(0)
    edges = [v for v in (0, 1, 255, 256, 2049, 2050, 2051, 65504, 65519, 65520, 16777217, 33554435,
                         info.max, info.min, info.max - 1) if info.min <= v <= info.max]
    return np.concatenate([np.array(edges, dtype.np),
                           rng.integers(info.min, info.max, 3000, dtype.np),
                           rng.integers(info.min // 2 ** 40, info.max // 2 ** 40 + 1, 3000,
                                        dtype.np)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", ALL, ids=lambda d: d.name)
def test_casts(source):
    x = numbers(source)
    n = len(x)
    a = Buffer("a", source, (n,), (1,), "param")
    outputs, steps = [], []
    for target in ALL:
        if target is source:
            continue
        i = axis("i0", n)
        out = Buffer(f"to_{target.name}", target, (n,), (1,), "output")
        value = Expr("Cast", target, Expr("Load", source, a, (i.var,), None, None))
        outputs.append(out)
        steps.append(Kernel(target.name, (i,), (Store(out, (i.var,), value),)))
    for out, have in zip(outputs, Compiled(Program("p", (a,), tuple(outputs), tuple(steps),
                                                   tuple(outputs)))(x), strict=True):
        with np.errstate(all="ignore"):
            want = execute.cast(x, out.dtype)
        if out.dtype.category == dt.FLOAT:
            have, want = have.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(have, want, err_msg=out.name)


def test_unsupported():
    """A dtype without C, and an op whose arguments have to be decomposed first, are named."""
    i = axis("i0", 4)
    a = Buffer("a", dt.complex64, (4,), (1,), "param")
    y = Buffer("y", dt.complex64, (4,), (1,), "output")
    load = Expr("Load", dt.complex64, a, (i.var,), None, None)
    p = Program("p", (a,), (y,), (Kernel("k", (i,), (Store(y, (i.var,), load),)),), (y,))
    with pytest.raises(Unsupported, match="complex64"):
        Compiled(p)
    b = Buffer("b", dt.float32, (4,), (1,), "param")
    z = Buffer("z", dt.float32, (4,), (1,), "output")
    load = Expr("Load", dt.float32, b, (i.var,), None, None)
    scaled = Expr("Alu", dt.float32, registry.get("add"), load, load,
                  Expr("Const", dt.float32, 2.0))
    p = Program("p", (b,), (z,), (Kernel("k", (i,), (Store(z, (i.var,), scaled),)),), (z,))
    with pytest.raises(Unsupported, match="alpha = 2.0"):
        Compiled(p)

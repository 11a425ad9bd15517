"""Matrix products: layouts, dtypes, batches, epilogues, threads."""

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.compiler.emit import c
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.loop import interp
from lehr.compiler.loop.text import row_major
from lehr.compiler.run import pool
from tests.emit.harness import Compiled, text

RNG = np.random.default_rng(3)
CLOSE = {"f32": 1e-5, "f64": 1e-13, "f16": 2e-3, "bf16": 1e-2}


def sizes(values):
    return "[" + ",".join(map(str, values)) + "]"


def program(a, b, short="f32", out=None, strides=None, epilogue="", params="", results="q",
            offset=0):
    """x @ w; `a`, `b` are (shape, strides)."""
    shape = [*a[0][:-1], b[0][-1]]
    strides = strides or row_major(tuple(shape))
    out = out or short
    made = "None" if out == short else f"!{out}"
    span = 1 + offset + sum((n - 1) * s for n, s in zip(*a, strict=True))
    views = f"view(x, {{{offset}}}, {sizes(a[0])}, {sizes(a[1])}), " \
            f"view(w, {{0}}, {sizes(b[0])}, {sizes(b[1])})"
    return text(
        f"x: param {short}[{max(span, 1)}], w: param {short}{sizes(b[0])} strides {sizes(b[1])}"
        + params, [f"q: output {out}{sizes(shape)} strides {sizes(strides)}",
                   *([f"y: output {out}{sizes(shape)}"] if "y" in results else [])],
        f"  extern mm: matmul(in(0), in(1), {made}) of ({views}) -> "
        f"view(q, {{0}}, {sizes(shape)}, {sizes(strides)}){epilogue}", results)


def numbers(shape, short):
    kind = dt.BY_SHORT[short]
    if kind.category == dt.INT:
        return RNG.integers(-5 if kind.signed else 0, 6, shape).astype(kind.np)
    return RNG.standard_normal(shape).astype(kind.np)


def check(text_, a, b, short="f32", more=(), out=None, offset=0):
    compiled = Compiled(text_)
    span = 1 + offset + sum((n - 1) * s for n, s in zip(*a, strict=True))
    args = [numbers(max(span, 1), short), numbers(b[0], short), *more]
    have, want = compiled(*args), interp.run(compiled.program, args)
    rtol = CLOSE.get(out or short, 0)
    for h, w in zip(have, want, strict=True):
        assert h.dtype == w.dtype
        scale = np.abs(w.astype(np.float64)).max(initial=1)
        np.testing.assert_allclose(h.astype(np.float64), w.astype(np.float64), rtol, rtol * scale)
    return compiled


PLAIN = ([40, 30], [30, 1]), ([30, 50], [50, 1])
LAYOUTS = {
    "plain": PLAIN,
    "left": (([40, 30], [1, 40]), PLAIN[1]),
    "right": (PLAIN[0], ([30, 50], [1, 30])),
    "both": (([40, 30], [1, 40]), ([30, 50], [1, 30])),
    "rows apart": (([40, 30], [37, 1]), ([30, 50], [64, 1])),
    "strided": (([40, 30], [60, 2]), PLAIN[1]),
    "repeated": (PLAIN[0], ([30, 50], [0, 1])),
    "row": (([1, 7], [1, 1]), ([7, 5], [5, 1])),
    "column": (([9, 7], [7, 1]), ([7, 1], [1, 1])),
    "dot": (([1, 7], [7, 1]), ([7, 1], [1, 7])),
    "outer": (([9, 1], [1, 9]), ([1, 6], [6, 1])),
    "no rows": (([0, 30], [30, 1]), PLAIN[1]),
    "no sum": (([4, 0], [1, 1]), ([0, 5], [5, 1])),
    "batch": (([6, 40, 30], [1200, 30, 1]), ([6, 30, 50], [1500, 50, 1])),
    "shared": (([6, 40, 30], [1200, 30, 1]), ([6, 30, 50], [0, 1, 30])),
    "heads": (([2, 3, 40, 30], [3600, 30, 90, 1]), ([2, 3, 30, 50], [4500, 1500, 1, 30])),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    a, b = LAYOUTS[layout]
    check(program(a, b), a, b)


def test_transposed_result_and_offset():
    a, b = PLAIN
    check(program(a, b, strides=[1, 40]), a, b)
    check(program(a, b, strides=[100, 2]), a, b)
    check(program(a, b, offset=17), a, b, offset=17)


@pytest.mark.parametrize("short", ["f64", "f16", "bf16", "i64", "i32", "i8", "u8"])
@pytest.mark.parametrize("layout", ["plain", "both", "shared"])
def test_dtypes(short, layout):
    a, b = LAYOUTS[layout]
    check(program(a, b, short), a, b, short)


@pytest.mark.parametrize("short", ["f16", "bf16"])
def test_unrounded(short):
    """Half precision asked for in float32: the sums are not rounded."""
    a, b = PLAIN
    check(program(a, b, short, "f32"), a, b, short, out="f32")


BIAS = """ with (i0: 400, i1: 50; k0: 1) {
    y[i0,i1] = maximum.f32(add.f32(q[i0,i1], b[i1]), f32(0.0))
  }"""


@pytest.mark.parametrize("strides", [[50, 1], [1, 400]])
@pytest.mark.parametrize("threads", [1, 3])
def test_epilogue(strides, threads):
    a, b = ([400, 30], [30, 1]), ([30, 50], [1, 30])
    before = pool.get_num_threads()
    pool.set_num_threads(threads)
    try:
        check(program(a, b, strides=strides, epilogue=BIAS.replace("; k0: 1", ""),
                      params=", b: param f32[50]", results="q, y"), a, b,
              more=[numbers(50, "f32")])
    finally:
        pool.set_num_threads(before)


def test_epilogue_of_halves():
    a, b = ([3, 40, 30], [1200, 30, 1]), ([3, 30, 50], [0, 1, 30])
    epilogue = """ with (i0: 3, i1: 40, i2: 50) {
    y[i0,i1,i2] = cast.bf16(add.f32(cast.f32(q[i0,i1,i2]), b[i2]))
  }"""
    check(program(a, b, "bf16", epilogue=epilogue, params=", b: param f32[50]", results="q, y"),
          a, b, "bf16", more=[numbers(50, "f32")])


def test_epilogue_of_integers():
    a, b = PLAIN
    epilogue = """ with (i0: 40, i1: 50) {
    y[i0,i1] = add.i32(q[i0,i1], i32(7))
  }"""
    check(program(a, b, "i32", epilogue=epilogue, results="q, y"), a, b, "i32")


def test_large_on_threads():
    """Blocks of rows, blocks of columns, batches: all cut into tasks."""
    before = pool.get_num_threads()
    try:
        pool.set_num_threads(3)
        for a, b in ((([700, 300], [300, 1]), ([300, 200], [200, 1])),
                     (([20, 300], [300, 1]), ([300, 3000], [1, 300])),
                     (([9, 130, 64], [8320, 64, 1]), ([9, 64, 130], [8320, 1, 64]))):
            check(program(a, b), a, b)
    finally:
        pool.set_num_threads(before)


@pytest.mark.parametrize(("m", "n"), [(700, 130), (130, 700), (197, 197)])
def test_threads_do_not_matter(m, n):
    """Blocks are cut by the number of threads, sums are not."""
    before, made = pool.get_num_threads(), []
    epilogue = BIAS.replace("400", str(m)).replace("50", str(n)).replace("; k0: 1", "")
    compiled = Compiled(program(([m, 420], [420, 1]), ([420, n], [1, 420]), epilogue=epilogue,
                                params=f", b: param f32[{n}]", results="q, y"))
    x, w, b = numbers(m * 420, "f32"), numbers([n, 420], "f32").T, numbers(n, "f32")
    try:
        for threads in (1, 2, 5):
            pool.set_num_threads(threads)
            made.append(compiled(x, w, b))
    finally:
        pool.set_num_threads(before)
    for other in made[1:]:
        for one, same in zip(made[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    product = x.reshape(m, 420).astype(np.float64) @ w
    np.testing.assert_allclose(made[0][1], np.maximum(product + b, 0), 1e-4, 1e-4)


@pytest.mark.parametrize("bad", [np.inf, np.nan, 3e38, 1e-42])
def test_numbers_at_the_ends_of_the_range(bad):
    """Whoever multiplies: rows with such numbers come out as IEEE says, others as ever."""
    x, w = numbers([200, 64], "f32"), numbers([64, 200], "f32")
    x[7, 5] = bad
    (have,) = Compiled(program(([200, 64], [64, 1]), ([64, 200], [200, 1])))(x.reshape(-1), w)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64) @ w).astype(np.float32)
    np.testing.assert_allclose(have, want, 1e-5, 1e-5)


def test_symbolic_sizes():
    compiled = Compiled("""program p<s: 1..900>(x: param f32[s,64], w: param f32[32,64]) {
  q: output f32[s,32]
  y: output f32[s,32]
  extern mm: matmul(in(0), in(1), None) of (view(x, {0}, [s,64], [64,1]), \
view(w, {0}, [64,32], [1,64])) -> view(q, {0}, [s,32], [32,1]) with (i0: s, i1: 32) {
    y[i0,i1] = neg.f32(q[i0,i1])
  }
  return q, y
}""")
    for n in (1, 17, 900):
        x, w = numbers((n, 64), "f32"), numbers((32, 64), "f32")
        q, y = compiled(x, w)
        np.testing.assert_allclose(q, x @ w.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(y, -q)


def test_what_is_not_supported():
    compiled = Compiled(program(*PLAIN))
    step = compiled.program.steps[0]
    assert c.supports(step)
    other = step._replace(op=interp.execute.registry.get("linear"))
    assert not c.supports(other)
    with pytest.raises(Unsupported, match="extern mm: linear of float32"):
        c.emit(compiled.program._replace(steps=(other,)))

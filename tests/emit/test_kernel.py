"""Kernels in C against the loop interpreter: rows, columns, whole reductions, hazards, gathers."""

import re

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.compiler.emit import c
from lehr.compiler.loop import interp
from tests.emit.harness import Compiled, read, text

RNG = np.random.default_rng(1)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(program, *args, rtol=2e-6, atol=2e-6, plan=None):
    """The compiled program and the interpreter agree on results and on what they write."""
    compiled = Compiled(program, plan)
    ours, theirs = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
                    for _ in range(2))
    have, want = compiled(*ours), interp.run(compiled.program, theirs)
    for h, w in zip([*have, *ours], [*want, *theirs], strict=True):
        h, w = np.asarray(h), np.asarray(w)
        assert h.dtype == w.dtype and h.shape == w.shape
        np.testing.assert_allclose(h.astype(np.float64), w.astype(np.float64), rtol, atol)
    return compiled


ROWS = text(
    "x: param f32[8,4], w: ref f32[8,4]", ["m: local f32[]", "e: local f32[4]",
                                           "y: output f32[8,4]"], """
  kernel rows(i0: 8; i1: 4, k0: 4) {
    m[] = max.f32[k0](x[i0,k0])
    e[i1] for (i1) = sub.f32(x[i0,i1], m[], f32(1.0))
    y[i0,i1] for (i1) = div.f32(e[i1], sum.f32[k0](e[k0]), None)
    w[i0,i1] for (i1) = add.f32(w[i0,i1], y[i0,3 - i1], f32(1.0))
  }""", "y")
SOFTMAX = text("x: param f32[R,C]", ["y: output f32[R,C]"], """
  kernel softmax(i0: R; i1: C, k0: C, k1: C) {
    let %m = max.f32[k0](x[i0,k0])
    let %s = sum.f32[k1](exp.f32(sub.f32(x[i0,k1], %m)))
    y[i0,i1] for (i1) = div.f32(exp.f32(sub.f32(x[i0,i1], %m)), %s, None)
  }""", "y")
COLUMNS = text("x: param f32[R,C]", ["y: output f32[R,C]", "z: output f32[C]"], """
  kernel softmax(i0: C; i1: R, k0: R, k1: R, k2: R) {
    let %m = max.f32[k0](x[k0,i0])
    let %s = sum.f32[k1](exp.f32(sub.f32(x[k1,i0], %m)))
    y[i1,i0] for (i1) = div.f32(exp.f32(sub.f32(x[i1,i0], %m)), %s, None)
    z[i0] = sum.f32[k2](x[k2,i0])
  }""", "y, z")
NORM = text(
    "x: param f32[R,C], r: param f32[R,C], w: param f32[C], b: param f32[C]",
    ["y: output f32[R,C]"], """
  kernel norm(i0: R; i1: C, k0: C, k1: C) {
    let %m = div.f32(sum.f32[k0](x[i0,k0]), f32(C.0), None)
    let %d = sub.f32(x[i0,k1], %m)
    let %v = div.f32(sum.f32[k1](mul.f32(%d, %d)), f32(C.0), None)
    let %q = div.f32(f32(1.0), sqrt.f32(add.f32(%v, f32(1e-5))), None)
    let %t = add.f32(mul.f32(mul.f32(sub.f32(x[i0,i1], %m), %q), w[i1]), b[i1])
    let %g = mul.f32(mul.f32(f32(0.5), %t), add.f32(f32(1.0), erf.f32(mul.f32(%t, f32(0.7071)))))
    y[i0,i1] for (i1) = add.f32(%g, r[i0,i1])
  }""", "y")


def sized(program, **sizes):
    for name, n in sizes.items():
        program = program.replace(f"[{name},", f"[{n},").replace(f",{name}]", f",{n}]").replace(
            f"[{name}]", f"[{n}]").replace(f": {name}", f": {n}").replace(f"({name}.0", f"({n}.0")
    return program


def test_rows_staged_and_ref():
    check(ROWS, f32(8, 4), f32(8, 4))


def soft(x, axis):
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("shape", [(5, 3), (3, 64), (2, 70), (40, 257), (1, 1)])
def test_softmax(shape):
    compiled = check(sized(SOFTMAX, R=shape[0], C=shape[1]), f32(*shape), rtol=1e-5)
    if 64 <= shape[1] < 1000:  # each exponential once, kept for the division
        assert compiled.function("k_softmax").count("lehr_exp_f32") == 1 + (shape[1] % 32 != 0)


@pytest.mark.parametrize(("rows", "times"), [(100, 0), (400, 2)], ids=["small", "large"])
def test_large_rows_are_asked_for_ahead(rows, times):
    """By the loop that reads them first, a line of the cache each; not what a cache holds."""
    compiled = check(sized(SOFTMAX, R=rows, C=1024), f32(rows, 1024), rtol=1e-5)
    assert compiled.function("k_softmax").count("LEHR_AHEAD(x") == times


@pytest.mark.parametrize("shape", [(5, 3), (30, 70), (3, 1000), (300, 65)])
def test_columns(shape):
    check(sized(COLUMNS, R=shape[0], C=shape[1]), f32(*shape), rtol=2e-5, atol=1e-4)


def test_few_units_of_much_work():
    """Loops are split themselves, and partial results combined."""
    x = f32(2, 100000)
    compiled = Compiled(sized(SOFTMAX, R=2, C=100000))
    assert "rt->parallel" in compiled.function("k_softmax")
    np.testing.assert_allclose(compiled(x)[0], soft(x, 1), rtol=1e-5)
    x = f32(100000, 24)
    compiled = Compiled(sized(COLUMNS, R=100000, C=24))
    assert "rt->parallel" in compiled.function("k_softmax")
    y, z = compiled(x)
    np.testing.assert_allclose(y, soft(x, 0), rtol=1e-5)
    np.testing.assert_allclose(z, x.sum(0, dtype=np.float64), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("shape", [(7, 96), (3, 33), (2, 700)])
def test_norm(shape):
    check(sized(NORM, R=shape[0], C=shape[1]), f32(*shape), f32(*shape), f32(shape[1]),
          f32(shape[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5), (300, 70), (40, 100003)])
def test_whole(shape):
    r, k = shape
    program = text(f"x: param f32[{r},{k}]", ["y: output f32[]", "z: output i64[]"], f"""
  kernel s(; k0: {r}, k1: {k}) {{
    y[] = sum.f32[k0,k1](mul.f32(x[k0,k1], x[k0,k1]))
    z[] = argmax.i64.1[k0,k1](x[k0,k1], index({{k0*{k} + k1}}))
  }}""", "y, z")
    check(program, f32(*shape))


def test_whole_then_rows():
    """A reduction of everything, then its use: both run on all threads."""
    n = 1 << 21
    program = text(f"x: param f32[{n}]", [f"y: output f32[{n}]", "m: output f32[]"], f"""
  kernel s(; i1: {n}, k0: {n}, k1: {n}) {{
    let %m = div.f32(sum.f32[k0](x[k0]), f32({n}.0), None)
    m[] = max.f32[k1](abs.f32(sub.f32(x[k1], %m)))
    y[i1] for (i1) = sub.f32(x[i1], %m)
  }}""", "y, m")
    x, compiled = f32(n), Compiled(program)
    assert "rt->parallel" in compiled.function("k_s")
    y, m = compiled(x)
    want = x - x.mean(dtype=np.float64)
    np.testing.assert_allclose(y, want, atol=1e-6)
    np.testing.assert_allclose(m, np.abs(want).max(), rtol=1e-6)


def test_sums_are_exact_enough():
    """Long float32 sums do not lose what a single accumulator would."""
    n = 1 << 24
    x = np.full(n, 0.1, np.float32)
    exact = float(np.float32(0.1)) * n
    row = text(f"x: param f32[1,{n}]", ["y: output f32[1]"], f"""
  kernel s(i0: 1; k0: {n}) {{
    y[i0] = sum.f32[k0](x[i0,k0])
  }}""", "y")
    column = text(f"x: param f32[{n // 4},4]", ["y: output f32[4]"], f"""
  kernel s(i0: 4; k0: {n // 4}) {{
    y[i0] = sum.f32[k0](x[k0,i0])
  }}""", "y")
    (y,) = Compiled(row)(x.reshape(1, n))
    assert abs(y[0] - exact) < 1e-5 * exact
    (y,) = Compiled(column)(x.reshape(-1, 4))
    assert np.all(np.abs(y - exact / 4) < 1e-5 * exact)


def test_threads_do_not_matter():
    """Results are the same bits for every number of threads."""
    from lehr.compiler.run import pool

    before = pool.get_num_threads()
    programs = [(sized(COLUMNS, R=20000, C=24), (20000, 24)),
                (sized(SOFTMAX, R=50, C=900), (50, 900))]
    n = 3_000_000
    programs.append((text(f"x: param f32[{n}]", ["y: output f32[]"], f"""
  kernel s(; k0: {n}) {{
    y[] = sum.f32[k0](x[k0])
  }}""", "y"), (n,)))
    try:
        for program, shape in programs:
            x, compiled, made = f32(*shape), Compiled(program), []
            for threads in (1, 2, 5):
                pool.set_num_threads(threads)
                made.append(compiled(x))
            for other in made[1:]:
                for a, b in zip(made[0], other, strict=True):
                    np.testing.assert_array_equal(a, b)
    finally:
        pool.set_num_threads(before)


SCATTER = text("x: param f32[6], t: param i64[6]", ["z: output f32[4]", "y: output f32[6]"], """
  kernel zero(i0: 4) {
    z[i0] = f32(0.0)
  }
  kernel k(i0: 6) {
    # model.py:7
    bind g0 below {4} wrap = t[i0] if ne.b1(t[i0], i64(9))
    z[g0] add = x[i0] if ne.b1(t[i0], i64(9))
  }
  kernel back(i0: 6) {
    # model.py:9
    bind g0 below {4} wrap = t[i0] if ne.b1(t[i0], i64(9))
    y[i0] = load(z[g0], ne.b1(t[i0], i64(9)), f32(-1.0))
  }""", "z, y")


def test_scatter_gather_masks():
    x = f32(6)
    compiled = check(SCATTER, x, np.array([0, -1, 2, 9, 0, 3]))
    for wrong in (4, -5, 1 << 40):
        with pytest.raises(IndexError, match=rf"index {wrong} is out of bounds for a dimension of "
                           r"size 4 \(at model.py:7\)"):
            compiled(x, np.array([0, 1, 2, wrong, 0, 3]))
    compiled(x, np.array([0, -1, 2, 9, 0, 3]))  # the fault is forgotten


def test_empty_table():
    """An index into nothing is out of bounds and is not followed; a masked one is not looked at."""
    program = text("x: param f32[s,3], t: param i64[2]", ["y: output f32[2,3]"], """
  kernel k(i0: 2, i1: 3) {
    bind g0 below {s} = t[i0] if ge.b1(t[i0], i64(0))
    y[i0,i1] = load(x[g0,i1], ge.b1(t[i0], i64(0)), f32(-1.0))
  }""", "y").replace("program p(", "program p<s: 0..9>(")
    compiled = Compiled(program)
    np.testing.assert_array_equal(compiled(np.zeros((0, 3)), np.array([-1, -2]))[0], -1)
    with pytest.raises(IndexError, match="index 5 is out of bounds for a dimension of size 0"):
        compiled(np.zeros((0, 3)), np.array([-1, 5]))


@pytest.mark.parametrize("mode, dtype", [("add", "f32"), ("mul", "f64"), ("max", "i32"),
                                         ("min", "bf16"), ("add", "b1"), ("add", "i8")])
def test_combining(mode, dtype):
    """Rows of a table, combined where indices are equal; columns may run on several threads."""
    kind = dt.BY_SHORT[dtype]
    start = {"add": 0, "mul": 1, "max": -5, "min": 7}[mode]
    start = f"{float(start)}" if kind.category == dt.FLOAT else str(
        bool(start) if kind is dt.bool_ else start)
    program = text(f"t: param i64[50], g: param {dtype}[50,70]", [f"w: output {dtype}[7,70]"], f"""
  kernel zero(i0: 7, i1: 70) {{
    w[i0,i1] = {dtype}({start})
  }}
  kernel s(i0: 50, i1: 70) {{
    bind g0 below {{7}} = t[i0]
    w[g0,i1] {mode} = g[i0,i1]
  }}""", "w")
    g = RNG.integers(-3, 4, (50, 70)).astype(kind.np)
    check(program, RNG.integers(0, 7, 50), g)


def test_scans():
    program = text(
        "x: param f32[30,70]",
        ["y: output f32[30,70]", "z: output i64[30,70]", "u: output f32[30,70]",
         "v: output f32[30,70]"], """
  kernel a(i0: 70; i1: 30) {
    y[i1,i0] for (i1 scan) = scan.max.f32[i1](x[i1,i0])
  }
  kernel b(i0: 70; i1: 30) {
    z[i1,i0] for (i1 scan) = scan.argmax.i64.1[i1](x[i1,i0], index({i1}))
  }
  kernel c(i0: 30; i1: 70) {
    u[i0,i1] for (i1 scan) = exp.f32(scan.sum.f32[i1](mul.f32(x[i0,i1], f32(0.01))))
  }
  kernel d(i0: 70, i1: 30) {
    v[i1,i0] = add.f32(scan.sum.f32[i1](x[i1,i0]), scan.prod.f32[i1](x[i1,i0]))
  }""", "y, z, u, v")
    check(program, f32(30, 70), rtol=1e-5)


@pytest.mark.parametrize("index", ["i0", "i0//2*2", "i0*2 + 1", "i0*4 + 3", "i0*7", "i0%100"])
def test_random_words(index):
    program = text("key: scalar i64[]", ["y: output i64[4002]", "z: output i64[4002]"], f"""
  kernel n(i0: 4002) {{
    y[i0] = random(key[], i64(3), {{{index}}})
    z[i0] = random(i64(-2), i64(1099511627776), {{{index}}})
  }}""", "y, z")
    compiled = check(program, 11)
    assert ("lehr_words" in compiled.text) == ("7" not in index and "%" not in index)


def test_sizes_casts_and_half():
    program = """program p<s: 1..9>(x: param bf16[s,2], a: scalar f64[]) {
  y: output bf16[s*2]
  i: output i32[s*2]
  kernel k(i0: s*2) {
    let %0 = cast.f32(x[i0//2,i0%2])
    y[i0] = cast.bf16(mul.f32(%0, cast.f32(a[])))
    i[i0] = cast.i32(index({max(i0, 2)}))
  }
  return y, i
}"""
    check(program, f32(3, 2).astype(dt.bfloat16.np), 1.5)


def test_symbolic_sizes():
    """Rows, columns and whole reductions whose extents are only known at run time."""
    program = """program p<s: 0..9000, t: 0..9000>(x: param f32[s,t], w: param f32[t]) {
  m: arena f32[s]
  y: output f32[s,t]
  z: output f32[t]
  u: output f32[]
  kernel rows(i0: s; k0: t) {
    m[i0] = max.f32[k0](x[i0,k0])
  }
  kernel soft(i0: s; i1: t, k0: t) {
    let %s = sum.f32[k0](exp.f32(sub.f32(x[i0,k0], m[i0])))
    y[i0,i1] for (i1) = mul.f32(div.f32(exp.f32(sub.f32(x[i0,i1], m[i0])), %s, None), w[i1])
  }
  kernel columns(i0: t; k0: s) {
    z[i0] = sum.f32[k0](x[k0,i0])
  }
  kernel whole(; k0: s, k1: t) {
    u[] = sum.f32[k0,k1](x[k0,k1])
  }
  return y, z, u
}"""
    compiled = Compiled(program)
    for shape in ((3, 5), (0, 4), (4, 0), (70, 300), (60, 70)):
        x, w = f32(*shape), f32(shape[1])
        have, want = compiled(x, w), interp.run(compiled.program, [x, w])
        for h, v in zip(have, want, strict=True):
            np.testing.assert_allclose(h, v, 1e-4, 1e-3)


def test_empty_and_zero_size():
    program = """program p<s: 0..9>(x: param f32[s,3]) {
  y: output f32[3]
  z: output f32[s]
  kernel k(i0: 3; k0: s) {
    y[i0] = max.f32[k0](x[k0,i0])
  }
  kernel n(i0: s) {
    z[i0] = x[i0,0]
  }
  return y, z
}"""
    check(program, np.zeros((0, 3), np.float32))


def test_turned():
    """Where memory runs along different axes, tiles are moved."""
    program = text("x: param f32[100,70], b: param f32[100]",
                   ["y: output f32[70,100]", "z: output f32[3,70,100]"], """
  kernel s(i0: 70, i1: 100) {
    y[i0,i1] = mul.f32(x[i1,i0], b[i1])
  }
  kernel t(i0: 3, i1: 70, i2: 100) {
    z[i0,i1,i2] = x[i2,i1]
  }""", "y, z")
    compiled = check(program, f32(100, 70), f32(100))
    assert "tile_end" in compiled.function("k_s")


def test_reshapes_divide_axes():
    """Divisions in indices become loops of their own."""
    program = text("x: param f32[4,6,10]", ["y: output f32[6,40]", "z: output f32[24,10]"], """
  kernel s(i0: 6, i1: 40) {
    y[i0,i1] = x[i1//10,i0,i1%10]
  }
  kernel t(i0: 24, i1: 10) {
    z[i0,i1] = x[i0//6,i0%6,i1]
  }""", "y, z")
    compiled = check(program, f32(4, 6, 10))
    assert "/ 10" not in compiled.function("k_s").split("for (int64_t c")[1]
    assert "%" not in compiled.function("k_t")


def test_padding_masks():
    program = text("x: param f32[10]", ["y: output f32[14]"], """
  kernel s(i0: 14) {
    let %in = bitwise_and.b1(ge.b1(index({i0}), i64(2)), lt.b1(index({i0}), i64(12)))
    y[i0] = load(x[i0 - 2], %in, f32(7.5))
  }""", "y")
    check(program, f32(10))


def test_products_of_small_things():
    program = text("x: param f32[5,40], w: param f32[40,33]",
                   ["y: output f32[5,33]", "z: output f32[5,33]"], """
  kernel s(i0: 5; i1: 33, k0: 40) {
    y[i0,i1] for (i1) = sum.f32[k0](mul.f32(x[i0,k0], w[k0,i1]))
  }
  kernel t(i0: 5; i1: 33, k0: 40, k1: 33) {
    let %m = max.f32[k1](w[i0,k1])
    z[i0,i1] for (i1) = sub.f32(sum.f32[k0](mul.f32(x[i0,k0], w[k0,i1])), %m)
  }""", "y, z")
    check(program, f32(5, 40), f32(40, 33), rtol=1e-5, atol=1e-5)


def test_old_and_new_values():
    """Loads see the stores before them in the kernel, and no later ones."""
    program = text("w: ref f32[6,8], v: ref f32[6,8]",
                   ["y: output f32[6,8]", "z: output f32[6]", "u: output f32[6,8]"], """
  kernel s(i0: 6; i1: 8, k0: 8, k1: 8) {
    y[i0,i1] for (i1) = w[i0,i1]
    w[i0,i1] for (i1) = mul.f32(w[i0,i1], f32(2.0))
    z[i0] = sum.f32[k0](w[i0,k0])
    v[i0,i1] for (i1) = add.f32(w[i0,7 - i1], v[i0,i1])
    u[i0,i1] for (i1) = sub.f32(v[i0,7 - i1], max.f32[k1](w[i0,k1]))
  }""", "y, z, u")
    check(program, f32(6, 8), f32(6, 8))


def test_shared_memory():
    """Buffers that the plan puts in one place: what is read is read before it is replaced."""
    program = read(text("x: param f32[5,64]", [
        "a: arena f32[5,64]", "b: arena f32[5,64]", "q: arena i32[5,64]", "y: output f32[5,64]",
        "z: output f32[5]"], """
  kernel first(i0: 5, i1: 64) {
    a[i0,i1] = mul.f32(x[i0,i1], f32(3.0))
  }
  kernel second(i0: 5; i1: 64, k0: 64) {
    z[i0] = sum.f32[k0](a[i0,k0])
    b[i0,i1] for (i1) = add.f32(a[i0,i1], f32(1.0))
  }
  kernel third(i0: 5, i1: 64) {
    q[i0,i1] = cast.i32(b[i0,i1])
  }
  kernel fourth(i0: 5, i1: 64) {
    y[i0,i1] = cast.f32(q[i0,i1])
  }""", "y, z"))
    arena = [b for b in program.buffers if b.role == "arena"]
    check(program, f32(5, 64), plan=c.Layout(dict.fromkeys(arena, 0), 5 * 64 * 4))


def test_group_and_equal_kernels():
    """Independent kernels run at once; those of one text are one function."""
    many = 20
    params = ", ".join(f"p{n}: ref f32[{100 if n else 7}], g{n}: param f32[{100 if n else 7}]"
                       for n in range(many))
    kernels = "\n".join(f"""    kernel step(i0: {100 if n else 7}) {{
      p{n}[i0] = sub.f32(p{n}[i0], mul.f32(g{n}[i0], f32(0.5)))
    }}""" for n in range(many))
    program = text(params, [], f"  group steps {{\n{kernels}\n  }}", "")
    args = [f32(100 if n else 7) for n in range(many) for _ in range(2)]
    compiled = check(program, *args)
    assert compiled.text.count("static void k_step") == 2


def test_many_sources():
    """Many functions are compiled as several sources."""
    kernels = "\n".join(f"""  kernel k{n}(i0: {n + 2}) {{
    y{n}[i0] = add.f32(x[i0], f32({n}.5))
  }}""" for n in range(40))
    program = text("x: param f32[50]", [f"y{n}: output f32[{n + 2}]" for n in range(40)], kernels,
                   ", ".join(f"y{n}" for n in range(40)))
    assert len(check(program, f32(50)).code.sources) > 2


def sizes(shapes: list[tuple[int, int]], head: str, body: str) -> tuple[str, list]:
    """A kernel at several sizes R, C in one program that gives sums y[S], and its arguments."""
    def at(n, text):
        r, c = shapes[n]
        names = {"R": r, "C": c, "x": f"x{n}", "y": f"y{n}"}
        return re.sub(r"\b[RCxy]\b", lambda m: str(names[m[0]]), text)
    kernels = [f"  kernel k{n}({at(n, head)}) {{\n    {at(n, body)}\n  }}"
               for n in range(len(shapes))]
    params = ", ".join(f"x{n}: param f32[{r},{c}]" for n, (r, c) in enumerate(shapes))
    outputs = [at(n, f"y: output f32[{head[4]}]") for n in range(len(shapes))]
    program = text(params, outputs, "\n".join(kernels),
                   ", ".join(f"y{n}" for n in range(len(shapes))))
    return program, [f32(*shape) for shape in shapes]


def test_sizes_of_one_kernel():
    """Kernels alike but for numbers are one function, whose numbers are handed to it."""
    program, args = sizes([(7, 100), (9, 260), (300, 68), (70, 300)], "i0: R; k0: C",
                          "y[i0] = div.f32(sum.f32[k0](x[i0,k0]), f32(C.0), None)")
    made = check(program, *args, rtol=1e-5, atol=1e-6)
    assert made.text.count("k_k0_any(p, from, to, &numbers)") == 4
    program, args = sizes([(9000, 64), (20000, 64)], "i0: C; k0: R",
                          "y[i0] = sum.f32[k0](x[k0,i0])")
    made = check(program, *args, rtol=1e-4, atol=1e-3)
    assert "args = {p, share, numbers, " in made.text      # the numbers of tasks, too


def test_places_of_one_kernel():
    """Steps of a sequence differ by where they read and write alone."""
    program = text("x: param f32[1000]", ["y: output f32[900]"], """
  kernel one(i0: 300) {
    y[i0 + 100] = exp.f32(x[i0 + 200])
  }
  kernel two(i0: 300) {
    y[i0 + 500] = exp.f32(x[i0 + 600])
  }""", "y")
    assert Compiled(program).text.count("_any(p, from, to, &numbers)") == 2


def test_sizes_that_stay_constants():
    """What a C compiler makes use of is no variable: short loops, lengths of arrays, divisors."""
    program, args = sizes([(70, 3), (70, 5)], "i0: R; k0: C", "y[i0] = sum.f32[k0](x[i0,k0])")
    assert "_any(" not in check(program, *args, rtol=1e-5, atol=1e-6).text


def test_text_is_readable():
    """The user's line stands above the kernel; names are the buffers' own."""
    compiled = Compiled(text("x: param f32[9], for: param f32[9]", ["u0: output f32[9]"], """
  kernel half(i0: 9) {
    # model.py:12 | y = x + for
    u0[i0] = add.f32(x[i0], for[i0])
  }""", "u0"))
    assert "/* model.py:12: y = x + for */\nstatic void k_half(" in compiled.text
    body = compiled.function("k_half")
    assert "const float *restrict x = p[0];" in body and "for_b" in body
    assert "u0_b[" in body
    have = compiled(f32(9), f32(9))
    assert have[0].shape == (9,)


GROUPS = text("x: param f32[4,8,16,50], w: param f32[128]", ["t: local f32[8]",
              "y: output f32[4,128,50]"], """
  kernel groups(i0: 4; i1: 8, i2: 128, i3: 50, k0: 16, k1: 50) {
    t[i1] for (i1) = sum.f32[k0,k1](mul.f32(x[i0,i1,k0,k1], w[i1*16 + k0]))
    y[i0,i2,i3] for (i2,i3) = sub.f32(mul.f32(x[i0,i2//16,i2%16,i3], w[i2]), t[i2//16], f32(1.0))
  }""", "y")


def test_reductions_of_a_group_are_made_once():
    """What a group of rows shares is not computed by each of its rows, nor by each element."""
    made = check(GROUPS, f32(4, 8, 16, 50), f32(128), rtol=1e-5, atol=1e-5)
    body = made.function("k_groups")
    sums = body.index("w[")
    loops = [line for line in body[:sums].splitlines() if "for (int64_t" in line]
    assert len(loops) == 3, "a unit, its groups, rows of a group"

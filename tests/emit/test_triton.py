"""Kernels in Triton against the loop interpreter, in Triton's own interpreter."""

import functools
import importlib.util
import re

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import philox
from lehr.compiler.emit import tile, triton
from lehr.compiler.loop import interp
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import Program
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from tests.emit import device
from tests.emit import test_kernel as kernels
from tests.emit import test_spelling as spelling
from tests.emit.harness import read, text
from tests.emit.interpreter import Worker
from tests.loop import model

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason=(
    'the package triton is not installed: pip install "lehr[triton]"'))


# Where kernels run: in the interpreter, and on a GPU where there is one.
RUNNERS = {"interpreter": Worker} | ({"gpu": device.Device} if device.driver() else {})
running = {}


@pytest.fixture(scope="module", autouse=True, params=RUNNERS)
def runner(request):
    running["here"] = RUNNERS[request.param]()
    yield request.param
    running.pop("here").close()


class Interpreted:
    """A program and its Triton."""

    def __init__(self, program, plan=None):
        self.program = verify(program if isinstance(program, Program) else read(program))
        self.code = triton.emit(self.program, plan)

    def __call__(self, *args):
        args = [a if isinstance(a, np.ndarray) and a.dtype == b.dtype.np else
                np.asarray(a, b.dtype.np) for a, b in zip(args, self.program.params, strict=True)]
        return running["here"].run(self.code, args)


# Tests of kernels that say nothing of C.
SHARED = [
    (kernels.test_rows_staged_and_ref,), (kernels.test_columns, (5, 3)),
    (kernels.test_columns, (30, 70)), (kernels.test_columns, (700, 65)),
    (kernels.test_norm, (7, 96)), (kernels.test_norm, (3, 33)), (kernels.test_norm, (2, 5000)),
    (kernels.test_whole, (3, 5)), (kernels.test_whole, (300, 70)),
    (kernels.test_whole, (3, 10007)), (kernels.test_scatter_gather_masks,),
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
def test_ops(monkeypatch, dtype, runner):
    """Every primitive op, over all pairs of special values."""
    monkeypatch.setattr(spelling, "Compiled", Interpreted)
    if runner == "gpu":  # libdevice's functions: a few last places, no denormal float32 results
        monkeypatch.setattr(spelling, "CLOSE", {"float32": {"rtol": 2e-6, "atol": 2e-38},
                                                "float64": {"rtol": 1e-13, "atol": 1e-320}})
        monkeypatch.setattr(spelling, "SPELLED", [  # lgamma(3.5): 1.1e-6, the test allows 1e-6
            op for op in spelling.SPELLED if op.name != "lgamma"])
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


def check(program, *args, rtol=2e-6, atol=2e-6):
    """Results and written arguments are the interpreter's; returns the emitted code."""
    made = Interpreted(program)
    ours, theirs = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
                    for _ in range(2))
    have, want = made(*ours), interp.run(made.program, theirs)
    for h, w in zip([*have, *ours], [*want, *theirs], strict=True):
        h, w = np.asarray(h), np.asarray(w)
        assert h.dtype == w.dtype and h.shape == w.shape
        np.testing.assert_allclose(h.astype(np.float64), w.astype(np.float64), rtol, atol)
    return made.code


f32 = kernels.f32


def launches(code):
    return [s["launch"] for s in code.record["steps"]]


@pytest.fixture
def short(monkeypatch):
    """Rows of more than 256 elements (four arrays: 128) are too long to be there as a whole."""
    monkeypatch.setattr(tile, "WHOLE", 512)
    monkeypatch.setattr(tile, "POINTS", 256)


def test_rows_in_blocks(short):
    shape = 3, 1500
    code = check(kernels.sized(kernels.SOFTMAX, R=3, C=1500), f32(*shape), rtol=1e-5)
    assert code.source.count("for r0_at in range(0, 1500, RB0)") == 3
    x, r, w, b = f32(*shape), f32(*shape), f32(1500), f32(1500)
    check(kernels.sized(kernels.NORM, R=3, C=1500), x, r, w, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 3), (3, 64), (2, 70), (40, 257), (1, 1), (2, 5000)])
def test_softmax(shape):
    code = check(kernels.sized(kernels.SOFTMAX, R=shape[0], C=shape[1]), f32(*shape), rtol=1e-5)
    if shape[1] > 1:  # each exponential once, kept for the division
        assert code.source.split("def softmax")[1].count("lehr_exp(") == 1
        assert len(launches(code)) == 1


@pytest.mark.parametrize("terms", [8192, 9001])
def test_whole_in_stages(terms):
    """A long fold with one outer point is cut; later folds and stores see the whole of it."""
    program = text(f"x: param f32[{terms}]", [f"y: output f32[{terms}]", "m: output f32[]",
                                              "a: output i64[]", "any: output b1[]"], f"""
  kernel s(; i1: {terms}, k0: {terms}, k1: {terms}, k2: {terms}, k3: {terms}) {{
    let %m = div.f32(sum.f32[k0](x[k0]), f32({terms}.0), None)
    m[] = max.f32[k1](abs.f32(sub.f32(x[k1], %m)))
    a[] = argmax.i64.1[k2](x[k2], index({{k2}}))
    any[] = any.b1[k3](lt.b1(x[k3], f32(-3.0)))
    y[i1] for (i1) = sub.f32(x[i1], %m)
  }}""", "y, m, a, any")
    x = f32(terms)
    code = check(program, x, rtol=1e-5, atol=1e-5)
    assert len(launches(code)) > 2
    x[terms // 2] = np.nan  # a NaN is the largest
    check(program, x, rtol=1e-5, atol=1e-5)


def test_columns_in_stages():
    """Sums over many rows with few columns, whose results a small kernel goes on with."""
    rows, columns = 1000, 24
    program = text(f"x: param f32[{rows},{columns}], w: ref f32[{columns}]",
                   [f"y: output f32[{columns}]"], f"""
  kernel s(i0: {columns}; k0: {rows}, k1: {rows}) {{
    let %s = sum.f32[k0](x[k0,i0])
    y[i0] = max.f32[k1](x[k1,i0])
    w[i0] = sub.f32(w[i0], mul.f32(%s, f32(0.125)))
  }}""", "y")
    code = check(program, f32(rows, columns), f32(columns), rtol=1e-4, atol=1e-4)
    first, last = code.record["steps"]
    assert first["programs"] > 1 and "partial" not in code.source
    assert last["args"][0][0] == "arena"


def test_shared_fold_has_its_own_stage():
    """A fold that all outer points need is not computed by each of them."""
    program = text("x: param f32[300], y: param f32[40,20]", ["z: output f32[40,20]"], """
  kernel s(i0: 40, i1: 20; k0: 300) {
    z[i0,i1] = mul.f32(y[i0,i1], sum.f32[k0](x[k0]))
  }""", "z")
    assert len(launches(check(program, f32(300), f32(40, 20), rtol=1e-5, atol=1e-4))) == 2


def test_random_words():
    program = text("key: scalar i64[]", ["y: output i64[4001]", "z: output i64[4001]"], """
  kernel n(i0: 4001) {
    y[i0] = random(key[], i64(3), {i0})
    z[i0] = random(i64(-2), i64(1099511627776), {i0*7 + 17179869184})
  }""", "y, z")
    made = Interpreted(program)
    y, z = made(np.array(11))
    np.testing.assert_array_equal(y, philox.words(11, 3, 4001))
    want = philox.words(-2 & (1 << 64) - 1, 1 << 40, 4000 * 7 + 1, 1 << 34)[::7]
    np.testing.assert_array_equal(z, want)


def test_products_and_sums_are_rounded_apart():
    """No multiply-add that rounds once: values do not depend on what is fused."""
    program = text("a: param f32[1000], b: param f32[1000], c: param f32[1000]",
                   ["y: output f32[1000]"], """
  kernel k(i0: 1000) {
    y[i0] = add.f32(mul.f32(a[i0], b[i0]), c[i0])
  }""", "y")
    a, b, c = f32(1000), f32(1000), f32(1000)
    np.testing.assert_array_equal(Interpreted(program)(a, b, c)[0], a * b + c)


def test_turned():
    """Where memory runs along different axes, blocks have two positions."""
    program = text("x: param f32[100,70], b: param f32[100]",
                   ["y: output f32[70,100]", "z: output f32[3,70,100]"], """
  kernel s(i0: 70, i1: 100) {
    y[i0,i1] = mul.f32(x[i1,i0], b[i1])
  }
  kernel t(i0: 3, i1: 70, i2: 100) {
    z[i0,i1,i2] = x[i2,i1]
  }""", "y, z")
    code = check(program, f32(100, 70), f32(100))
    assert all({"XB", "YB"} <= f["constants"].keys() for f in code.record["functions"].values())


def test_long_running_values(short):
    """Blocks hand running values on."""
    program = text("x: param f32[2,700]", ["y: output f32[2,700]", "z: output i64[2,700]",
                                            "m: output f32[2,700]"], """
  kernel c(i0: 2; i1: 700) {
    y[i0,i1] for (i1 scan) = exp.f32(mul.f32(f32(0.01), scan.sum.f32[i1](x[i0,i1])))
    z[i0,i1] for (i1 scan) = scan.argmax.i64.1[i1](x[i0,i1], index({i1}))
    m[i0,i1] for (i1 scan) = scan.argmax.f32[i1](x[i0,i1], index({i1}))
  }""", "y, z, m")
    check(program, f32(2, 700), rtol=2e-5)


def test_reversed_row_through_memory():
    """What a program stores and other threads of it load goes through memory, behind a barrier."""
    program = text("x: param f32[6,16]", ["e: local f32[16]", "y: output f32[6,16]"], """
  kernel s(i0: 6; i1: 16, k0: 16) {
    e[i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
    y[i0,i1] for (i1) = sub.f32(e[15 - i1], sum.f32[k0](e[k0]))
  }""", "y")
    code = check(program, f32(6, 16), rtol=1e-5, atol=1e-5)
    assert "tl.debug_barrier()" in code.source
    assert code.record["arena"] >= 6 * 16 * 4


def test_last_of_equal_places_wins():
    program = text("x: param f32[50]", ["y: output f32[7]"], """
  kernel s(; i0: 50) {
    y[i0%7] for (i0) = x[i0]
  }""", "y")
    check(program, f32(50))


def test_bundles():
    """Kernels of a group that run the same function are one launch."""
    sizes = [100, 7, 1000, 64]
    params = ", ".join(f"w{n}: ref f32[{m}], g{n}: param f32[{m}]" for n, m in enumerate(sizes))
    steps = "\n".join(f"""    kernel step(i0: {m}) {{
      w{n}[i0] = sub.f32(w{n}[i0], mul.f32(g{n}[i0], f32(0.5)))
    }}""" for n, m in enumerate(sizes))
    program = text(params, [], f"""  group steps {{
{steps}
    kernel other(i0: 64) {{
      w9[i0] = mul.f32(w9[i0], f32(3.0))
    }}
  }}""".replace("w9", "v"), "").replace("(w0:", "(v: ref f32[64], w0:")
    code = check(program, f32(64), *(f32(m) for m in sizes for _ in range(2)))
    assert len(launches(code)) == 2
    bundle = next(s for s in code.record["steps"] if len(s["args"]) > 8)
    assert bundle["programs"] == 1 + 1 + 8 + 1


def test_joined_pieces_of_different_length():
    """Stores over rows of different lengths are launches of their own."""
    program = text("a: param f32[30], b: param f32[70]", ["y: output f32[100]"], """
  kernel cat(; i0: 30, i1: 70) {
    y[i0] for (i0) = a[i0]
    y[i1 + 30] for (i1) = b[i1]
  }""", "y")
    check(program, f32(30), f32(70))


def test_symbolic_sizes():
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
    made = Interpreted(program)
    for shape in ((0, 4), (4, 0), (9, 1300)):
        x, w = f32(*shape), f32(shape[1])
        have, want = made(x, w), interp.run(made.program, [x, w])
        for h, v in zip(have, want, strict=True):
            np.testing.assert_allclose(h, v, 1e-4, 1e-3)


def test_offsets_of_64_bits():
    """Sizes without a bound: offsets may not fit 32 bits."""
    program = """program p<s: 0..4294967296>(x: param f32[s,3], t: param i64[4]) {
  y: output f32[s,3]
  z: output f32[3]
  u: output f32[4]
  kernel a(i0: s, i1: 3) {
    y[i0,i1] = mul.f32(x[i0,i1], f32(2.0))
  }
  kernel b(i0: 3; k0: s) {
    z[i0] = sum.f32[k0](x[k0,i0])
  }
  kernel c(i0: 4) {
    bind g0 below {s} wrap = t[i0]
    u[i0] = x[g0,1]
  }
  return y, z, u
}"""
    code = check(program, f32(7, 3), np.array([0, 6, -7, -1]), rtol=1e-5)
    assert all("i64" in f["types"] for f in code.record["functions"].values())


PRODUCT = """program p(a: param D[2,M,K], b: param D[2,K,N] strides [S,1,K], c: param f32[N]) {
  y: arena D[2,M,N]
  z: output f32[2,M,N]
  extern mm: matmul(in(0), in(1), None) of (view(a, {0}, [2,M,K], [A,K,1]),
   view(b, {0}, [2,K,N], [S,1,K])) -> view(y, {0}, [2,M,N], [B,N,1])
   with (i0: 2, i1: M, i2: N) {
    z[i0,i1,i2] = add.f32(mul.f32(CAST(y[i0,i1,i2]), f32(0.5)), c[i2])
  }
  return z
}"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (33, 70, 45), (1, 20, 5), (130, 17, 3)])
def test_products(dtype, m, n, k):
    """Blocks at the edges, a transposed operand, an epilogue, one rounding of the product."""
    names = {"M": m, "N": n, "K": k, "S": k * n, "A": m * k, "B": m * n, "D": dtype}
    program = re.sub(r"\n   (?=view|with)", " ", PRODUCT)
    for name, value in names.items():
        program = re.sub(rf"\b{name}\b", str(value), program)
    program = program.replace("CAST(y[i0,i1,i2])", "y[i0,i1,i2]" if dtype == "f32" else
                              "cast.f32(y[i0,i1,i2])")
    kind = dt.BY_SHORT[dtype].np
    a, b, c = f32(2, m, k).astype(kind), f32(2, k, n).astype(kind), f32(n)
    close = {"f32": 1e-5, "f64": 1e-6, "bf16": 2e-2, "f16": 3e-3}[dtype]
    check(program, a, b, c, rtol=close, atol=close)


@pytest.mark.parametrize("graph", [
    functools.partial(model.gpt, 1, 2, 16, 32, 2, 48),
    functools.partial(model.norm_block, 2, 5, 24),
    functools.partial(model.optimizer, 5, (6, 8))], ids=["gpt", "norm", "adamw"])
def test_steps(graph):
    """Whole training steps: losses, gradients, updates."""
    g = graph()
    program = verify(fuse(lower(pipeline.run(g), supports=triton.supports)))
    code = check(program, *model.arguments(g), rtol=1e-4, atol=2e-6)
    assert not any("host" in s for s in code.record["steps"])
    if program.name == "adamw":  # the two shapes of weights are one function, and one launch
        assert sum(len(s["args"]) > 10 for s in code.record["steps"]) == 1

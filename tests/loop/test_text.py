"""Program text: print -> parse -> print is the identity, and parts that are shared get names."""

import pytest

import lehr.ops.contract  # noqa: F401
from lehr.base import dtype as dt
from lehr.compiler.graph.text import TextError
from lehr.compiler.loop.ir import Buffer, Expr, Kernel, Program, Store, axis
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.text import print_expr, print_program, walk
from lehr.ops.registry import get

PROGRAM = """\
program step<s0: 8..1024 / 8>(x: param f32[s0,64], w: ref bf16[64,s0] strides [1,64], \
t: param i64[s0], lr: scalar f64[]) {
  c0: const f32[2,2] = (1.0, -0.0, inf, 2.5)
  c1: const b1[] = (True,)
  m: local f32[]
  e: local f32[64]
  y: output f32[s0,64]
  z: arena f32[10]
  u: output f32[64,s0]
  r: arena i64[4]
  kernel softmax(i0: s0; i1: 64, k0: 64) {
    # model.py:12 | y = F.softmax(x)
    # model.py:13
    m[] = max.f32[k0](x[i0,k0])
    e[i1] for (i1) = neg.f32(sub.f32(x[i0,i1], m[]))
    y[i0,i1] for (i1) = div.f32(e[i1], sum.f32[k0](e[k0]))
  }
  group updates {
    kernel scatter(i0: s0) {
      bind g0 below {10} wrap = t[i0] if lt.b1(index({i0*2 + 1}), i64(7))
      z[g0] add = load(x[i0,3], c1[], f32(-inf)) if ge.b1(t[i0], i64(0))
    }
    kernel bits(i0: 4) {
      r[i0] = random(i64(1), i64(12345678901), {i0%3 + i0//2})
    }
  }
  kernel shared(i0: s0, i1: 64) {
    let %0 = add.f32(x[i0,i1], cast.f32(lr[]))
    let %1 = mul.f32(%0, %0)
    w[i1,i0] = cast.bf16(select.f32(signbit.b1(%1), f32(nan), %1))
    x[i0,i1] max = %1
  }
  kernel scans(i0: s0; i1: 64) {
    y[i0,i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
  }
  extern mm: matmul(in(0), in(1), None) of (view(x, {0}, [s0,64], [64,1]), \
view(w, {3}, [64,s0], [1,64])) -> view(y, {0}, [s0,s0], [s0,1]) with (i0: s0, i1: s0) {
    # model.py:14
    u[i1,i0] = add.f32(y[i0,i1], c0[0,1])
  }
  extern mm2: matmul(in(0), in(1), !f32) of (view(x, {0}, [s0,64], [64,1]), \
view(w, {3}, [64,s0], [1,64])) -> view(y, {0}, [s0,s0], [s0,1])
  host sort: add((view(x, {0}, [s0,64], [64,1]), {s0*2}), number(lr), 1) -> (y, z)
  # model.py:15
  return y, u
}"""


def test_identity():
    program = parse_program(PROGRAM)
    text = print_program(program)
    assert text == PROGRAM
    assert print_program(parse_program(text)) == text


def test_content():
    program = parse_program(PROGRAM)
    kernel = program.steps[0]
    assert [s.buffer.role for s in kernel.stores] == ["local", "local", "output"]
    assert kernel.locations[0].text == "y = F.softmax(x)"
    assert program.params[1].strides == (1, 64) and program.params[0].strides == (64, 1)
    assert program.buffers[0].data.tolist()[1] == [float("inf"), 2.5]
    shared = program.steps[2]
    assert len(list(walk(s.value for s in shared.stores))) == 9
    assert program.steps[4].epilogue[0].buffer.name == "u"
    assert program.steps[1].kernels[0].stores[0].mode == "add"
    assert program.results == (program.buffers[4], program.buffers[6])


def test_equal_names_of_different_axes():
    x = Buffer("x", dt.float32, (8, 4), (4, 1), "param")
    y = Buffer("y", dt.float32, (8, 4), (4, 1), "output")
    a, b, c = axis("i0", 8), axis("i1", 4), axis("i1", 2)
    load = [Expr("Load", dt.float32, x, (a.var, v), None, None) for v in (b.var, c.var)]
    stores = (Store(y, (a.var, b.var), load[0], (b,)), Store(y, (a.var, c.var), load[1], (c,)))
    program = Program("p", (x,), (y,), (Kernel("k", (a,), stores),), (y,))
    text = print_program(program)
    assert "i1: 4, i1_1: 2" in text and "y[i0,i1_1] for (i1_1) = x[i0,i1_1]" in text
    assert print_program(parse_program(text)) == text


def test_expr():
    x = Buffer("x", dt.float32, (), (), "param")
    e = Expr("Load", dt.float32, x, (), None, None)
    for _ in range(40):  # 2**40 leaves as a tree
        e = Expr("Alu", dt.float32, get("add"), e, e)
    lines = print_expr(e).splitlines()
    assert len(lines) == 40 and lines[-1] == "add.f32(%38, %38)"
    assert repr(e) == print_expr(e)


@pytest.mark.parametrize("old, new, wanted", [
    ("m[] = max", "q[] = max", "a buffer that is declared, found 'q'"),
    ("for (i1) = neg", "for (i7) = neg", "an axis of the kernel's header"),
    ("max.f32[k0]", "most.f32[k0]", "a buffer or a reduction"),
    ("let %1 = mul.f32(%0, %0)", "let %1 = mul.f32(%7, %0)", "named by let above"),
    ("kernel scans", "loop scans", "kernel, group, extern, host or return"),
    ("y: output f32", "m: output f32", "two buffers are named m"),
    ("signbit.b1", "no_op.b1", "no_op"),
])
def test_errors(old, new, wanted):
    with pytest.raises((TextError, LookupError), match=wanted):
        parse_program(PROGRAM.replace(old, new))

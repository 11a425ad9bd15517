"""Every rule of the program verifier has a program that breaks it."""

import pytest

from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.verify import LoopError, verify

GOOD = """\
program p<s: 2..64>(x: param f32[8,4], t: param i64[8], h: param bf16[8], w: ref f32[8,4], \
d: param f32[s,s]) {
  m: local f32[]
  e: local f32[4]
  y: output f32[8,4]
  u: arena f32[4]
  v: output f32[s*s]
  z: output f32[8]
  kernel rows(i0: 8; i1: 4, k0: 4) {
    bind g below {4} wrap = t[i0]
    m[] = max.f32[k0](x[i0,k0])
    e[i1] for (i1) = sub.f32(x[i0,i1], m[], f32(1.0))
    y[i0,i1] for (i1) = div.f32(e[i1], sum.f32[k0](e[k0]), None)
    w[i0,i1] for (i1) = add.f32(w[i0,i1], y[i0,g], f32(1.0))
  }
  kernel columns(i0: 4; k0: 8) {
    u[i0] = sum.f32[k0](y[k0,i0])
  }
  group g {
    kernel flat(i0: s, i1: s) {
      v[i0*s + i1] = neg.f32(d[i0,i1])
    }
    kernel spread(i0: 8) {
      bind g below {8} wrap = t[i0] if ge.b1(t[i0], i64(0))
      z[g] add = cast.f32(h[i0]) if ge.b1(t[i0], i64(0))
    }
  }
  extern mm: matmul(in(0), in(1), None) of (view(x, {0}, [8,4], [4,1]), \
view(w, {0}, [4,8], [1,4])) -> view(q, {0}, [8,8], [8,1])
  return y, v, z
}""".replace("  z: output", "  q: arena f32[8,8]\n  z: output")


def test_good():
    assert verify(parse_program(GOOD))


BAD = [
    ("x[i0,k0])", "x[i0,k0 + 1])", "index k0 . 1 of dimension 1 of x is not proven below 4"),
    ("x[i0,k0])", "x[i0 - 1,k0])", "is not proven"),
    ("y[i0,i1] for (i1) = div", "y[i0,0] for (i1) = div", "may write an element twice"),
    ("y[i0,i1] for (i1) = div", "y[i1,i1] for (i1) = div", "may write an element twice"),
    ("y[i0,g], f32(1.0)", "y[i1,g], f32(1.0)", "may be written by another outer point"),
    ("y[i0,g], f32(1.0)", "y[i0//2,g], f32(1.0)", "may be written by another outer point"),
    ("add.f32(w[i0,i1]", "add.f32(w[i0,3 - i1]", "while the same store replaces it"),
    ("u[i0] = sum", "x[i0,0] = sum", "x is a param: not to be written"),
    ("u[i0] = sum.f32[k0](y[k0,i0])", "u[i0] = u[i0]", "loaded before it is stored"),
    ("sum.f32[k0](y[k0,i0])", "sum.f32[k0](q[k0,i0])", "q is read before it is written"),
    ("sub.f32(x[i0,i1], m[]", "sub.f32(x[i0,i1], x[i0,k0]", "k0 is not bound"),
    ("y[i0,i1] for (i1) = div.f32(e[i1], sum.f32[k0](e[k0]), None)",
     "y[i0,i1] for (i1) = sum.f32[i1](e[i1])", "reuses an axis in scope"),
    ("cast.f32(h[i0])", "add.f32(h[i0], h[i0], f32(1.0))", "half precision"),
    ("cast.f32(h[i0])", "cast.f64(h[i0])", "a float64 stored into z"),
    ("neg.f32(d[i0,i1])", "neg.f32(d[i0,i1], d[i0,i1])", "takes 1 arguments"),
    ("neg.f32(d[i0,i1])", "cast.f32(lt.b1(d[i0,i1], f32(0)))", "constant holds a int"),
    ("neg.f32(d[i0,i1])", "lt.f32(d[i0,i1], f32(0.0))", "gives bool"),
    ("neg.f32(d[i0,i1])", "select.f32(f32(1.0), d[i0,i1], d[i0,i1])", "dtypes of"),
    ("neg.f32(d[i0,i1])", "load(d[i0,i1], i64(1), f32(1.0))", "mask of load"),
    ("neg.f32(d[i0,i1])", "cast.f32(d[i0,i1])", "its own dtype"),
    ("sum.f32[k0](y[k0,i0])", "sum.f32[k0](y[k0,i0], y[k0,i0])", "no such reduction"),
    ("sum.f32[k0](y[k0,i0])", "sum.f32.1[k0](y[k0,i0])", "no such reduction"),
    ("v[i0*s + i1] = neg.f32(d[i0,i1])", "v[i0*s + i1] = neg.f32(z[0])", "of one group share z"),
    ("v[i0*s + i1] =", "v[i0*s + i0] =", "may write an element twice"),
    ("v[i0*s + i1] =", "v[i0*s + i1 + s*s] =", "not proven below"),
    ("below {8} wrap = t[i0]", "below {8} wrap = cast.f32(h[i0])", "bound to a float32"),
    ("[4,8], [1,4]", "[4,9], [1,4]", "reaches element 35 of 32"),
    ("-> view(q, {0}, [8,8], [8,1])", "-> view(w, {0}, [8,4], [4,1])",
     "reads its own output"),
    ("z: output f32[8]", "z: arena f32[8]", "result z is no output"),
    ("return y, v, z", "return y, v, y", "stands there twice"),
    ("m: local f32[]", "m: heap f32[]", "role 'heap'"),
]


@pytest.mark.parametrize("old, new, wanted", BAD, ids=lambda v: str(v)[:40])
def test_breaches(old, new, wanted):
    assert old in GOOD
    with pytest.raises(LoopError, match=wanted):
        verify(parse_program(GOOD.replace(old, new)))


EPILOGUE = """\
program p(x: param f32[4,6], w: param f32[6,2]) {
  y: output f32[2,2,2]
  q: arena f32[4,2]
  extern mm: matmul(in(0), in(1), None) of (view(x, {0}, [4,6], [6,1]), \
view(w, {0}, [6,2], [2,1])) -> view(q, {0}, [4,2], [2,1]) with (i0: 4, i1: 2) {
    y[i0//2,i0%2,i1] = neg.f32(q[i0,i1])
  }
  return y
}"""


@pytest.mark.parametrize("index, good", [
    ("i0//64,i1//32,i0%64,i1%32", True), ("i0//64,i1//32,i0%64,i1%16", False),
    ("i0//64,i1//32,i0%32,i1%32", False), ("i0//64,i1//32,i0//64,i1%32", False),
    ("i0%4,i1%4,i0//4,i1//4", True),
])
def test_divided_axes_store_into_different_elements(index, good):
    program = parse_program(f"""program p(x: param f32[256,128]) {{
      y: output f32[4,4,64,32]
      kernel k(i0: 256, i1: 128) {{
        y[{index}] = x[i0,i1]
      }}
      return y
    }}""")
    if good:
        assert verify(program)
    else:
        with pytest.raises(LoopError, match="may write an element twice"):
            verify(program)


def test_epilogues():
    assert verify(parse_program(EPILOGUE))
    straight = EPILOGUE.replace("view(q,", "view(y,").replace("q[i0,i1]", "y[i0//2,i0%2,i1]")
    assert verify(parse_program(straight))
    with pytest.raises(LoopError, match="another element of q"):
        verify(parse_program(EPILOGUE.replace("q[i0,i1]", "q[i0,0]")))
    with pytest.raises(LoopError, match="while the same store replaces it"):
        verify(parse_program(straight.replace("y[i0//2,i0%2,i1] =", "y[i0%2,i0//2,i1] =")))
    with pytest.raises(LoopError, match="the output's dimensions"):
        verify(parse_program(EPILOGUE.replace("with (i0: 4, i1: 2)", "with (i0: 2, i1: 2)")))


def test_scan_axis():
    text = """\
program p(x: param f32[8,4]) {
  y: output f32[8,4]
  kernel k(i0: 8; i1: 4) {
    y[i0,i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
  }
  return y
}"""
    assert verify(parse_program(text))
    with pytest.raises(LoopError, match="a scan along an axis|is not bound"):
        verify(parse_program(text.replace("y[i0,i1] for (i1 scan)", "y[i0,0]").replace(
            "x[i0,i1]", "x[i0,0]")))


def test_undeclared():
    program = parse_program(GOOD)
    with pytest.raises(LoopError, match="not declared"):
        verify(program._replace(buffers=program.buffers[1:]))
    with pytest.raises(LoopError, match="listed twice"):
        verify(program._replace(buffers=program.buffers + program.buffers[:1]))

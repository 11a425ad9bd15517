"""Default schedules of typical kernels."""

import pytest

from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.tile import TILE, schedule


def kernel(body, params="x: param f32[512,256]", buffers="y: output f32[512,256]"):
    lines = "\n  ".join(buffers.split("; "))
    text = f"program p({params}) {{\n  {lines}\n{body}\n  return y\n}}"
    return parse_program(text).steps[0]


def named(v):
    return None if v is None else v.name


def test_flat():
    made = schedule(kernel("kernel k(i0: 512, i1: 256) {\n y[i0,i1] = neg.f32(x[i0,i1])\n }"))
    assert list(map(named, made.vector)) == ["i1"] and made.tiles == () and made.split == 1
    assert 1 << 13 <= made.grain <= 1 << 15


def test_rows():
    made = schedule(kernel("""kernel k(i0: 512; i1: 256, k0: 256) {
      m[] = max.f32[k0](x[i0,k0])
      y[i0,i1] for (i1) = exp.f32(sub.f32(x[i0,i1], m[], f32(1.0)))
    }""", buffers="y: output f32[512,256]; m: local f32[]"))
    assert list(map(named, made.vector)) == ["k0", "i1"]
    assert made.grain < 40


def test_columns_run_along_the_columns():
    made = schedule(kernel("kernel k(i0: 256; k0: 512) {\n y[i0] = sum.f32[k0](x[k0,i0])\n }",
                           buffers="y: output f32[256]"))
    assert list(map(named, made.vector)) == ["i0"] and made.split == 1


def test_whole_reductions_are_split():
    made = schedule(kernel("kernel k(; k0: 4096, k1: 256) {\n y[] = sum.f32[k0,k1](x[k0,k1])\n }",
                           "x: param f32[4096,256]", "y: output f32[]"))
    assert made.split == 32 and list(map(named, made.vector)) == ["k1"]


def test_transposes_are_blocked():
    made = schedule(kernel("kernel k(i0: 256, i1: 512) {\n y[i0,i1] = x[i1,i0]\n }",
                           buffers="y: output f32[256,512]"))
    assert {named(v): n for v, n in made.tiles} == {"i0": TILE, "i1": TILE}


@pytest.mark.parametrize("index, wanted", [("i0//256,i0%256", "i0"), ("i0%512,0", "i0")])
def test_divided_axes(index, wanted):
    made = schedule(kernel(f"kernel k(i0: 131072) {{\n y[i0] = x[{index}]\n }}",
                           buffers="y: output f32[131072]"))
    assert named(made.vector[0]) == wanted


def test_scan_has_no_vector_along_itself():
    made = schedule(kernel("""kernel k(i0: 512; i1: 256) {
      y[i0,i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
    }"""))
    assert made.vector == (None,)


def test_records_are_values():
    k = kernel("kernel k(i0: 512, i1: 256) {\n y[i0,i1] = x[i0,i1]\n }")
    assert schedule(k) == schedule(k) and hash(schedule(k)) == hash(schedule(k))

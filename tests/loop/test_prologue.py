"""Operands rounded by the call that reads them: which are, which stay, and that values stay."""

from __future__ import annotations

import numpy as np
import pytest

from lehr.compiler.emit import c, product
from lehr.compiler.loop import interp, prologue
from lehr.compiler.loop.parse import parse_program
from lehr.compiler.loop.text import print_program
from lehr.compiler.loop.verify import verify

TEXT = """program one(x: param f32[5,8], w: ref f32[6,8]) {
  out0: output f32[5,6]
  t1: arena bf16[5,8]
  t2: arena bf16[6,8]
  kernel a(i0: 5, i1: 8) {
    t1[i0,i1] = cast.bf16(x[i0,i1])
  }
  kernel b(i0: 6, i1: 8) {
    t2[i0,i1] = cast.bf16(w[i0,i1])
  }
  extern m: matmul(in(0), in(1), !f32) of (view(t1, {0}, [5,8], [8,1]), \
view(t2, {0}, [8,6], [1,8])) -> view(out0, {0}, [5,6], [6,1])
  return out0
}
"""


def absorbed(text: str) -> str:
    program = prologue.absorb(verify(parse_program(text)), product.supported)
    made = print_program(verify(program))
    assert print_program(parse_program(made)) == made
    return made


def results(program):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(p.shape).astype(np.float32) for p in program.params]
    return interp.run(program, inputs)[0]


def test_roundings_of_both_operands_go():
    made = absorbed(TEXT)
    assert "kernel" not in made and "t1" not in made and "t2" not in made
    assert "view(x, {0}, [5,8], [8,1], as bf16), view(w, {0}, [8,6], [1,8], as bf16)" in made
    assert c.emit(parse_program(made)).record["templates"] == ["half"]


def test_values_stay():
    before, after = results(parse_program(TEXT)), results(parse_program(absorbed(TEXT)))
    np.testing.assert_array_equal(before, after)


def test_kernels_of_a_group_go_one_by_one():
    text = TEXT.replace("  kernel a(", "  group g {\n  kernel a(", 1).replace(
        "  extern", "  }\n  extern", 1)
    assert "group" in text and "kernel" not in absorbed(text)


KEPT = {
    "another reader": ("  return", """  kernel r(i0: 6, i1: 8) {
    w[i0,i1] = cast.f32(t2[i0,i1])
  }
  return"""),
    "the source is written before the call": ("  extern", """  kernel r(i0: 6, i1: 8) {
    w[i0,i1] = f32(1.0)
  }
  extern"""),
    "another layout": ("t2[i0,i1] = cast.bf16(w[i0,i1])", "t2[i0,i1] = cast.bf16(w[5 - i0,i1])"),
    "another value": ("cast.bf16(w[i0,i1])", "cast.bf16(neg.f32(w[i0,i1]))"),
}


@pytest.mark.parametrize("why", KEPT)
def test_what_stays(why):
    made = absorbed(TEXT.replace(*KEPT[why]))
    # Where one operand has to stay, the other may still be read as it is.
    assert "view(t2, {0}, [8,6], [1,8])" in made and "kernel b" in made
    assert "view(x, {0}, [5,8], [8,1], as bf16)" in made


def test_other_calls_keep_theirs():
    """A product of float32 does not read rounded operands, nor does one of float16."""
    text = TEXT.replace("bf16", "f16")
    assert absorbed(text) == print_program(parse_program(text))

"""Kernels of one signature are one C function; where the C differs, the signature does."""

from __future__ import annotations

import pytest

from lehr.compiler.emit import c
from lehr.compiler.emit.signature import signature
from tests.emit.harness import read, text

PAIR = """
  kernel first(i0: 40) {{
    # model.py:1
    bind g0 below {{9}} wrap = t[i0]
    y[i0] = mul.f32(x[g0], f32(2.0))
  }}
  kernel second(i0: {n}) {{
    # model.py:2
    bind g0 below {{9}} {wrap}= t[i0]
    z[i0] = {op}.f32({left}, f32({number}))
  }}"""
SAME = {"n": 40, "wrap": "wrap ", "op": "mul", "left": "w[g0]", "number": "2.0"}


def pair(**changes):
    return read(text("x: param f32[9], w: param f32[9], t: param i64[40]",
                     ["y: output f32[40]", "z: output f32[40]"],
                     PAIR.format(**SAME | changes), "y, z"))


def signatures(program):
    return [signature(k, 0, {})[0] for k in program.steps]


def test_equal_kernels_are_one_function():
    program = pair()
    one, other = signatures(program)
    assert one == other
    code = c.emit(program)
    (source,) = code.sources
    assert source.count("static void k_") == 1
    # Each call has its own pointers and its own place for what fails.
    assert [at for _, at in code.record["faults"]] == ["model.py:1", "model.py:2"]
    assert "{ptr[6], ptr[4], ptr[7], fault, (void *)0LL}" in source
    assert "{ptr[6], ptr[5], ptr[8], fault, (void *)1LL}" in source


@pytest.mark.parametrize("change", [
    {"n": 30}, {"wrap": ""}, {"op": "add"}, {"left": "z[i0]"}, {"number": "-0.0"},
    {"left": "w[0]"}])
def test_others_are_not(change):
    one, other = signatures(pair(**change))
    assert one != other


def test_memory_that_is_shared_counts():
    (k, _) = pair().steps
    _, buffers = signature(k, 0, {})
    assert signature(k, 0, {buffers[-1]: buffers[0]})[0] != signature(k, 0, {})[0]
    assert signature(k, 1, {})[0] != signature(k, 0, {})[0]

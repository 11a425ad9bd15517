"""The reference interpreter: values, Refs in place, write-backs, sizes, numbers."""

import numpy as np
import pytest

from lehr.compiler.graph.interp import run
from lehr.compiler.graph.text import parse_graph

STEP = """\
graph step<s0: 2..64>(%x: f32[s0,3], %w: ref f32[s0,3], %lr: scalar f64) {
  %0 = read(%w) : f32[s0,3]
  %1 = mul(%x, %lr) : f32[s0,3]
  %2 = sub(%0, %1, 1) : f32[s0,3]
  write(%w, %2)
  %3 = read(%w) : f32[s0,3]
  %4 = mul(%3, 2) : f32[s0,3]
  return outputs(%4, %0) saved(%x) grads() writebacks()
}"""


def arrays(rows=4):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((rows, 3)).astype(np.float32) for _ in range(2)]


def test_refs_in_place():
    x, w = arrays()
    before = w.copy()
    out = run(parse_graph(STEP), [x, w, 0.5])
    np.testing.assert_array_equal(w, before - x * np.float32(0.5))
    np.testing.assert_array_equal(out["outputs"][0], w * 2)
    np.testing.assert_array_equal(out["outputs"][1], before)
    assert out["saved"] == (x,) or out["saved"][0] is x


def test_writebacks():
    text = STEP.replace("  write(%w, %2)\n  %3 = read(%w) : f32[s0,3]\n", "")
    text = text.replace("mul(%3, 2)", "mul(%2, 2)").replace("writebacks()", "writebacks(%w <- %2)")
    x, w = arrays()
    x2, w2 = x.copy(), w.copy()
    out = run(parse_graph(text), [x, w, 0.5])
    want = run(parse_graph(STEP), [x2, w2, 0.5])
    np.testing.assert_array_equal(w, w2)
    np.testing.assert_array_equal(out["outputs"][0], want["outputs"][0])


def test_numbers_and_sizes():
    graph = parse_graph("""graph g<n: 0..9>(%x: f32[]) {
      %0 = number(%x) : scalar f64
      %1 = size_value({n*2}) : i64[]
      %2 = mul(%1, %0) : f32[]
      return outputs(%2) saved() grads() writebacks()
    }""")
    out = run(graph, [np.array(1.5, np.float32)], {graph.symbols[0]: 4})
    assert out["outputs"][0] == np.float32(12.0) and out["outputs"][0].dtype == np.float32
    with pytest.raises(TypeError, match="no parameter has the size n"):
        run(graph, [np.array(1.5, np.float32)])


@pytest.mark.parametrize("bad", [np.zeros((4, 2), np.float32), np.zeros((4, 3)), 3.0])
def test_arguments_must_fit(bad):
    _, w = arrays()
    with pytest.raises(TypeError, match="parameter x takes float32"):
        run(parse_graph(STEP), [bad, w, 0.5], {parse_graph(STEP).symbols[0]: 4})


def test_inconsistent_sizes():
    x, w = arrays()
    with pytest.raises(TypeError, match="parameter w takes"):
        run(parse_graph(STEP), [x, w[:2].copy(), 0.5])

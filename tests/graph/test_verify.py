"""Every rule of the verifier has a graph that breaks it."""

import pytest

from lehr.base import dtype as dt
from lehr.compiler.graph.ir import PURE, Effect, Graph, Node, TensorType, Value
from lehr.compiler.graph.text import parse_graph
from lehr.compiler.graph.verify import GraphError, verify

GOOD = """\
graph g(%x: f32[2,3], %w: ref f32[2,3]) {
  %0 = read(%w) : f32[2,3]
  %1 = add(%x, %0, 1) : f32[2,3]
  write(%w, %1)
  return outputs(%1) saved() grads() writebacks()
}"""


def test_good():
    assert verify(parse_graph(GOOD))


@pytest.mark.parametrize("change, wanted", [
    (("add(%x, %0, 1) : f32[2,3]", "add(%x, %0, 1) : f32[2,4]"), "the rule gives f32.2,3."),
    (("add(%x, %0, 1) : f32", "add(%x, %0, 1) : f64"), "the rule gives f32.2,3."),
    (("add(%x, %0, 1)", "add(%x, %w, 1)"), "is a Ref"),
    (("%0 = read(%w)", "%0 = read(%x)"), "read needs a Ref"),
    (("outputs(%1)", "outputs(%w)"), "no tensor or number"),
    (("writebacks()", "writebacks(%x <- %1)"), "%x is no Ref parameter"),
    (("%x: f32[2,3]", "%x: f32[2,3], %w: f32[2]"), "two parameters"),
])
def test_breaches(change, wanted):
    text = GOOD.replace(*change)
    if "two" in wanted:
        text = text.replace("%w: f32[2]", '%"w": f32[2]')
    with pytest.raises(GraphError, match=wanted):
        verify(parse_graph(text))


def test_location_is_named():
    text = GOOD.replace("1) : f32[2,3]", "1) : f32[9]  # net.py:7")
    with pytest.raises(GraphError, match="net.py:7"):
        verify(parse_graph(text))


def test_levels():
    wrong = parse_graph(GOOD.replace("1) : f32[2,3]", "1) : f32[9]"))
    verify(wrong, 1)
    verify(parse_graph(GOOD.replace("add(%x, %0, 1)", "add(%x, %w, 1)")), 0)


def test_rule_refuses():
    with pytest.raises(GraphError, match="must match the size"):
        verify(parse_graph(GOOD.replace("%x: f32[2,3]", "%x: f32[2,5]")))


def test_writeback_type():
    text = GOOD.replace("writebacks()", "writebacks(%w <- %2)").replace(
        "  write", "  %2 = sub(%x, 1.5, 1) : f32[2,3]\n  write").replace("f32[2,3]) {", "f32[3]) {")
    text = text.replace("  write(%w, %1)\n", "").replace("%0 = read(%w) : f32[2,3]",
                                                         "%0 = read(%w) : f32[3]")
    with pytest.raises(GraphError, match="write-back of %2"):
        verify(parse_graph(text))


def test_order_and_ownership():
    graph = parse_graph(GOOD)
    first, second, third = graph.nodes
    with pytest.raises(GraphError, match="is used before"):
        verify(Graph("g", graph.params, (second, first, third), {}))
    odd = Node(second.op, second.args, [second.result.type], None, PURE)
    odd.results = (Value(TensorType((2, 3), dt.float32), second),)
    with pytest.raises(GraphError, match="does not belong"):
        verify(Graph("g", graph.params, (first, odd), {}))


def test_effects():
    graph = parse_graph(GOOD)
    first, second, _ = graph.nodes
    lost = Node(first.op, first.args, [first.result.type], None, PURE)
    with pytest.raises(GraphError, match=r"effects \{\} should be \{read w\}"):
        verify(Graph("g", graph.params, (lost,), {}))
    extra = Node(second.op, (graph.params[0], graph.params[0], 1), [second.result.type], None,
                 frozenset({Effect("comm", "world")}))
    with pytest.raises(GraphError, match=r"\{comm world\} should be \{\}"):
        verify(Graph("g", graph.params, (extra,), {}))


@pytest.mark.parametrize("text, wanted", [
    (GOOD, "no writes"),
    (GOOD.replace("  write(%w, %1)", "  %3 = read(%w) : f32[2,3]"), "second read of %w"),
    (GOOD.replace("  write(%w, %1)\n", "").replace(
        "writebacks()", "writebacks(%w <- %1, %w <- %0)"), "two write-backs into %w"),
])
def test_functional(text, wanted):
    with pytest.raises(GraphError, match=wanted):
        verify(parse_graph(text), functional=True)

"""print -> parse -> print is the identity, for every kind of argument."""

import pytest

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.base.sym import Var
from lehr.compiler.graph.ir import Builder, Graph, Location, RefType, ScalarType, TensorType
from lehr.compiler.graph.text import TextError, parse_graph, print_graph
from lehr.ops.registry import OPS, op
from lehr.ops.rule import Spec

if "test_take_all" not in OPS:
    @op("test_take_all(a: Tensor, b: int) -> named(x=Tensor, y=Tensor)")
    class take_all:
        where = ""

        def rule(a, b):
            return Spec(a.shape, a.dtype, a.device), Spec((), dt.bool_)

STEP = """\
graph step<s0: 8..1024 / 8, s1: 0..>(%x: i64[8,s0], %w: ref f32[4,s0*2 + 1] strides [1,4], \
%"odd name": f32[]@cuda:1, %lr: scalar f64, %"7": scalar b1) {
  %0 = read(%w) : f32[4,s0*2 + 1]
  %1, %2 = test_take_all(%0, 3) : f32[4,s0*2 + 1], b1[]  # model.py:12 | y = f(x)  # twice
  write(%w, %0)  # a dir/model.py:13
  return outputs(%1, %x) saved(%2) grads() writebacks(%w <- %0)
}"""


def test_identity():
    graph = parse_graph(STEP)
    assert print_graph(graph) == STEP
    assert str(parse_graph(print_graph(graph))) == STEP
    assert graph.nodes[1].location == Location("model.py", 12, "y = f(x)  # twice")
    assert graph.nodes[2].location.file == "a dir/model.py"
    w = TensorType((4, graph.symbols[0] * 2 + 1), dt.float32)
    assert graph.params[1].type == RefType(w, (1, 4))
    assert graph.symbols[0] is Var("s0", 8, 1024, 8)
    assert graph.params[2].type.device is Device("cuda:1")


ARGUMENTS = [
    0, -3, 10**20, True, False, None, 1.5, -0.0, 1e-300, 1e20, float("inf"), float("-inf"),
    2 + 0.5j, "tanh", "it's \"# no\" comment, (\n", (), (1,), (1, (2.0, None), ()),
    dt.float32, dt.bool_,
    Device("cuda:0"), Device("cpu"), Var("n", 0, 7) * 4 + 1, (Var("n", 0, 7), 2),
]


@pytest.mark.parametrize("value", ARGUMENTS, ids=repr)
def test_arguments(value):
    b = Builder("g")
    x = b.param("x", TensorType((2,), dt.float32))
    b.symbol(Var("n", 0, 7))
    y = b.call(OPS["test_take_all"], (x, value))
    text = print_graph(b.finish({"outputs": y}))
    again = parse_graph(text)
    assert print_graph(again) == text
    read = again.nodes[0].args[1]
    assert repr(read) == repr(value) and type(read) is type(value)


def test_nan_and_lists():
    b = Builder("g")
    x = b.param("x", TensorType((2,), dt.float32))
    y = b.call(OPS["test_take_all"], (x, [float("nan"), [x, x]]))
    text = print_graph(b.finish({"outputs": y}))
    assert "(nan, (%x, %x))" in text and print_graph(parse_graph(text)) == text


def test_region():
    inner = parse_graph(STEP)
    b = Builder("outer")
    x = b.param("x", TensorType((2,), dt.float32))
    b.call(OPS["test_take_all"], (x, inner))
    text = print_graph(b.finish({}))
    again = parse_graph(text)
    assert isinstance(again.nodes[0].args[1], Graph) and print_graph(again) == text
    assert print_graph(again.nodes[0].args[1]) == STEP


def test_no_spelling():
    b = Builder("g")
    x = b.param("x", ScalarType(dt.FLOAT))
    t = b.param("t", TensorType((2,), dt.float32))
    assert x.type.dtype is dt.float64
    b.call(OPS["test_take_all"], (t, object()))
    with pytest.raises(TypeError, match="object has no text form"):
        print_graph(b.finish({}))


@pytest.mark.parametrize("text, wanted", [
    ("graph g() {\n  return outputs(%x) saved() grads() writebacks()\n}",
     "line 2: expected a value"),
    ("graph g(%x: f33[2]) {", "no dtype 'f33'"),
    ("graph g(%x: f32[q]) {", "unknown variable 'q'"),
    ("graph g(%x: f32[2]) {\n  %0 = test_take_all(%x) : f32[2]", "expected"),
    ("graph g() ~", "cannot read"),
])
def test_errors(text, wanted):
    with pytest.raises((TextError, LookupError), match=wanted):
        parse_graph(text)


def test_unknown_op():
    with pytest.raises(LookupError, match="no_such_op"):
        parse_graph("graph g(%x: f32[2]) {\n  %0 = no_such_op(%x) : f32[2]\n}")

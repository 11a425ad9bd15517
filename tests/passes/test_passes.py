"""functionalize, decompose, simplify and their pipeline: golden texts, and values unchanged."""

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base import log, options
from lehr.compiler.graph.exact import widens
from lehr.compiler.graph.interp import run
from lehr.compiler.graph.ir import Builder, Location, TensorType
from lehr.compiler.graph.text import parse_graph, print_graph
from lehr.compiler.graph.verify import GraphError, verify
from lehr.compiler.passes import pipeline
from lehr.compiler.passes.decompose import Undecomposed, decompose
from lehr.compiler.passes.functionalize import functionalize
from lehr.compiler.passes.simplify import simplify
from lehr.ops.registry import OPS, get, op
from lehr.ops.rule import Spec

RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def body(graph):
    return [line.strip() for line in print_graph(graph).splitlines()[1:-2]]


def simplified(text):
    return body(verify(simplify(verify(parse_graph(text)))))


def graph_of(lines, params="%x: f32[2,3], %i: i64[2,3], %h: bf16[2,3]", results=None):
    lines = [line.strip() for line in lines.strip().splitlines()]
    last = results or lines[-1].split(" = ")[0]
    joined = "\n  ".join(lines)
    return (f"graph g({params}) {{\n  {joined}\n"
            f"  return outputs({last}) saved() grads() writebacks()\n}}")


WRITES = """\
graph step(%x: f32[3], %w: ref f32[3], %v: ref f32[3]) {
  %0 = read(%w) : f32[3]
  %1 = add(%0, %x, 1) : f32[3]
  write(%w, %1)
  %2 = read(%w) : f32[3]
  %3 = mul(%2, %x) : f32[3]
  write(%w, %3)
  %4 = read(%v) : f32[3]
  write(%v, %x)
  write(%v, %4)
  %5 = read(%w) : f32[3]
  return outputs(%5, %2) saved() grads() writebacks()
}"""


def test_functionalize_golden():
    made = verify(functionalize(verify(parse_graph(WRITES))), functional=True)
    assert print_graph(made) == """\
graph step(%x: f32[3], %w: ref f32[3], %v: ref f32[3]) {
  %0 = read(%w) : f32[3]
  %1 = add(%0, %x, 1) : f32[3]
  %2 = mul(%1, %x) : f32[3]
  %3 = read(%v) : f32[3]
  return outputs(%2, %1) saved() grads() writebacks(%w <- %2)
}"""
    assert print_graph(functionalize(made)) == print_graph(made)


def test_functionalize_values():
    graph = parse_graph(WRITES)
    x, w, v = f32(3), f32(3), f32(3)
    w2, v2 = w.copy(), v.copy()
    want = run(graph, [x, w, v])["outputs"]
    got = run(functionalize(graph), [x, w2, v2])["outputs"]
    np.testing.assert_array_equal(want, got)
    np.testing.assert_array_equal([w, v], [w2, v2])


def test_swap_of_two_storages():
    graph = parse_graph("""graph swap(%a: ref f32[2], %b: ref f32[2]) {
      %0 = read(%a) : f32[2]
      %1 = read(%b) : f32[2]
      write(%a, %1)
      write(%b, %0)
      return outputs() saved() grads() writebacks()
    }""")
    made = functionalize(graph)
    assert [t.name for t in made.targets] == ["a", "b"] and not made.nodes[-1].op.name == "write"
    a, b = f32(2), f32(2)
    a2, b2 = b.copy(), a.copy()
    run(made, [a, b])
    np.testing.assert_array_equal([a, b], [a2, b2])


def test_decompose():
    graph = parse_graph(graph_of("""
        %0 = add(%x, %i, 3) : f32[2,3]
        %1 = square(%h) : bf16[2,3]
        %2 = add(%0, %1, 1) : f32[2,3]  # a.py:4
    """))
    made = verify(decompose(verify(graph)))
    names = [n.op.name for n in made.nodes]
    assert "square" not in names and names.count("add") == 2
    assert {n.args[2] for n in made.nodes if n.op.name == "add"} == {1}
    mul = next(n for n in made.nodes if n.op.name == "mul" and n.args[0] is n.args[1])
    assert mul.result.dtype is dt.float32  # bfloat16 is squared in float32 and rounded once
    assert made.nodes[-1].location == Location("a.py", 4)
    import ml_dtypes
    args = [f32(2, 3), np.arange(6).reshape(2, 3), f32(2, 3).astype(ml_dtypes.bfloat16)]
    np.testing.assert_array_equal(run(graph, args)["outputs"], run(made, args)["outputs"])


def test_decompose_whole_and_errors():
    graph = parse_graph(graph_of("%0 = square(%x) : f32[2,3]"))
    assert body(decompose(graph, {"square"})) == ["%0 = square(%x) : f32[2,3]"]
    if "test_nothing" not in OPS:
        @op("test_nothing(input: Tensor) -> Tensor")
        class nothing:
            where = ""

            def rule(x):
                return Spec(tuple(x.shape), x.dtype, x.device)
    b = Builder("g")
    x = b.param("x", TensorType((2,), dt.float32))
    b.location = Location("user.py", 3)
    y = b.call(get("test_nothing"), (x,))
    with pytest.raises(Undecomposed, match=r"test_nothing \(user.py:3\)"):
        decompose(b.finish({"outputs": [y]}))


SIMPLE = [
    ("%0 = mul(%x, 1) : f32[2,3]\n%1 = neg(%0) : f32[2,3]", ["%0 = neg(%x) : f32[2,3]"]),
    ("%0 = neg(%x) : f32[2,3]\n%1 = neg(%0) : f32[2,3]", []),
    ("%0 = add(%x, 0, 1) : f32[2,3]", ["%0 = add(%x, 0, 1) : f32[2,3]"]),
    ("%0 = add(%x, -0.0, 1) : f32[2,3]", []),
    ("%0 = add(%i, 0, 1) : i64[2,3]", []),
    ("%0 = add(%i, 0.0, 1) : f32[2,3]", ["%0 = add(%i, 0.0, 1) : f32[2,3]"]),
    ("%0 = sub(%x, 0, 1) : f32[2,3]", []),
    ("%0 = sub(%x, -0.0, 1) : f32[2,3]", ["%0 = sub(%x, -0.0, 1) : f32[2,3]"]),
    ("%0 = mul(%i, 1.0) : f32[2,3]", ["%0 = mul(%i, 1.0) : f32[2,3]"]),
    ("%0 = mul(%x, True) : f32[2,3]", ["%0 = mul(%x, True) : f32[2,3]"]),
    ("%0 = div(%x, 1, None) : f32[2,3]", []),
    ("%0 = div(%i, 1, None) : f32[2,3]", ["%0 = div(%i, 1, None) : f32[2,3]"]),
    ("%0 = to_dtype(%x, !f32) : f32[2,3]", []),
    ("%0 = to_dtype(%h, !f32) : f32[2,3]\n%1 = to_dtype(%0, !bf16) : bf16[2,3]", []),
    ("%0 = to_dtype(%x, !bf16) : bf16[2,3]\n%1 = to_dtype(%0, !f32) : f32[2,3]",
     ["%0 = to_dtype(%x, !bf16) : bf16[2,3]", "%1 = to_dtype(%0, !f32) : f32[2,3]"]),
    ("%0 = view(%x, (6,)) : f32[6]\n%1 = view(%0, (3, -1)) : f32[3,2]",
     ["%0 = view(%x, (3, 2)) : f32[3,2]"]),
    ("%0 = view(%x, (6,)) : f32[6]\n%1 = view(%0, (2, 3)) : f32[2,3]", []),
    ("%0 = permute(%x, (1, 0)) : f32[3,2]\n%1 = permute(%0, (-1, 0)) : f32[2,3]", []),
    ("%0 = view(%x, (2, 1, 3)) : f32[2,1,3]\n%1 = permute(%0, (1, 0, 2)) : f32[1,2,3]",
     ["%0 = view(%x, (1, 2, 3)) : f32[1,2,3]"]),
    ("%0 = expand(%x, (-1, 3)) : f32[2,3]", []),
    ("%0 = clone(%x, None) : f32[2,3]\n%1 = detach(%0) : f32[2,3]\n%2 = neg(%1) : f32[2,3]",
     ["%0 = neg(%x) : f32[2,3]"]),
    ("%0 = full((2, 3), 2.0, !f32, None) : f32[2,3]\n%1 = full((), 0.5, !f32, None) : f32[]\n"
     "%2 = mul(%0, %1) : f32[2,3]\n%3 = add(%x, %2, 1) : f32[2,3]",
     ["%0 = full((2, 3), 1.0, !f32, @cpu) : f32[2,3]", "%1 = add(%x, %0, 1) : f32[2,3]"]),
    ("%0 = neg(%x) : f32[2,3]\n%1 = neg(%x) : f32[2,3]\n%2 = add(%0, %1, 1) : f32[2,3]\n"
     "%3 = abs(%2) : f32[2,3]\n%4 = neg(%1) : f32[2,3]\n%5 = sub(%2, %4, 1) : f32[2,3]",
     ["%0 = neg(%x) : f32[2,3]", "%1 = add(%0, %0, 1) : f32[2,3]",
      "%2 = sub(%1, %x, 1) : f32[2,3]"]),
    ("%0 = gt(%x, 0) : b1[2,3]\n%1 = where(%0, %x, %x) : f32[2,3]", []),
    ("%0 = add(%x, 1, 1) : f32[2,3]\n%1 = add(%x, 1.0, 1) : f32[2,3]\n"
     "%2 = mul(%0, %1) : f32[2,3]",
     ["%0 = add(%x, 1, 1) : f32[2,3]", "%1 = add(%x, 1.0, 1) : f32[2,3]",
      "%2 = mul(%0, %1) : f32[2,3]"]),
]


@pytest.mark.parametrize("lines, want", SIMPLE, ids=lambda v: str(v)[:50])
def test_simplify(lines, want):
    text = graph_of(lines)
    assert simplified(text) == want
    import ml_dtypes
    x = f32(2, 3)
    x[0] = [-0.0, 0.0, np.nan]
    args = [x, np.arange(6).reshape(2, 3), x.astype(ml_dtypes.bfloat16)]
    graph = parse_graph(text)
    (before,), (after,) = (run(g, args)["outputs"] for g in (graph, simplify(graph)))
    assert before.dtype == after.dtype and before.tobytes() == after.tobytes()


def test_single_batch_product():
    text = graph_of("%0 = matmul(%a, %b, None) : f32[1,2,4]", "%a: f32[1,2,3], %b: f32[1,3,4]")
    assert [line.split(" = ")[1].split("(")[0] for line in simplified(text)] == [
        "view", "view", "matmul", "view"]


def test_old_graph_is_untouched():
    graph = parse_graph(graph_of(SIMPLE[-1][0] + "\n%3 = neg(%x) : f32[2,3]", results="%2"))
    text = print_graph(graph)
    simplify(decompose(functionalize(graph)))
    assert print_graph(graph) == text


def test_random_ops_are_shared_by_counter():
    if "test_bits" not in OPS:
        @op("test_bits(key: int, counter: int) -> Tensor")
        class bits:
            kind, where = "random", ""

            def rule(key, counter):
                return Spec((2,), dt.int64)
    b = Builder("g")
    made = [b.call(get("test_bits"), (1, c)) for c in (4, 4, 5)]
    assert len(simplify(b.finish({"outputs": made})).nodes) == 2


@pytest.mark.parametrize("a, b, want", [
    (dt.bfloat16, dt.float32, True), (dt.float16, dt.bfloat16, False),
    (dt.bfloat16, dt.float16, False),
    (dt.int64, dt.float64, False), (dt.int32, dt.float64, True), (dt.int32, dt.float32, False),
    (dt.uint8, dt.int8, False), (dt.uint8, dt.int16, True), (dt.int8, dt.uint8, False),
    (dt.uint8, dt.bfloat16, True), (dt.int16, dt.bfloat16, False), (dt.bool_, dt.float16, True),
    (dt.float32, dt.int64, False),
])
def test_widens(a, b, want):
    assert widens(a, b) is want
    if a.category == dt.INT and a.itemsize <= 2 and b.category == dt.FLOAT and want:
        low = 0 if not a.signed else -(1 << 8 * a.itemsize - 1)
        values = np.arange(low, low + (1 << 8 * a.itemsize), dtype=a.np)
        np.testing.assert_array_equal(values.astype(b.np).astype(a.np), values)


def test_pipeline(tmp_path):
    graph = parse_graph(WRITES)
    timings = []
    strict = options.Options().replace(strict=True)
    dump = log.Dump(str(tmp_path))
    made = pipeline.run(graph, strict, dump=dump, timings=timings)
    assert [t.name for t in timings] == ["functionalize", "decompose", "simplify", "recompute"]
    assert timings[0].before == 10 and timings[-1].after == len(made.nodes) == 3
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["00-functionalize.txt", "01-decompose.txt", "02-simplify.txt",
                     "03-recompute.txt"]
    assert print_graph(parse_graph((tmp_path / files[-1]).read_text())) == print_graph(made)


def test_pipeline_checks_its_passes():
    def broken(graph):
        text = print_graph(graph).replace("mul(%1, %x) : f32[3]", "mul(%1, %x) : f32[4]")
        return parse_graph(text)
    passes = (*pipeline.PASSES[:1], pipeline.Pass("broken", broken))
    strict = options.Options().replace(strict=True)
    with pytest.raises(GraphError, match="write-back of %2: f32.4. into %w"):
        pipeline.run(parse_graph(WRITES), strict, passes=passes)
    pipeline.run(parse_graph(WRITES), passes=passes)

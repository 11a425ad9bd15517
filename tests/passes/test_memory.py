"""What forward keeps for backward, and what a whole step computes again: by bytes and by order."""

from __future__ import annotations

import numpy as np

import lehr
from lehr import nn
from lehr.compiler.graph import interp
from lehr.compiler.graph.ir import Builder, RefType, TensorType
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.plan import plan
from lehr.compiler.passes import partition, pipeline
from lehr.compiler.passes.recompute import recompute

F32 = lehr.float32
WIDTH, ROWS = 256, 512
LARGE = ROWS * WIDTH * 4


def layers(count: int, split: bool):
    """x -> gelu-like chains of products: the joint graph of `count` layers with the gradients of
    their weights, as results (split) or added to the weights (a whole step)."""
    b = Builder("step")
    x = b.param("x", TensorType((ROWS, WIDTH), F32))
    kind = TensorType((WIDTH, WIDTH), F32)
    refs = [b.param(f"w{i}", kind if split else RefType(kind)) for i in range(count)]
    g = b.param("g", TensorType((ROWS, WIDTH), F32))
    F = b.F
    weights = refs if split else [F.read(r) for r in refs]
    kept, h = [], x
    for w in weights:
        a = F.matmul(h, w)
        kept.append((h, a, w))
        h = a * F.sigmoid(a) + F.exp(-a * a)
    out, grads, d = h, [], g
    for h, a, w in reversed(kept):
        s = F.sigmoid(a)
        d = d * (s + a * s * (1 - s) - 2 * a * F.exp(-a * a))
        grads.append(F.matmul(F.transpose(h, 0, 1), d))
        d = F.matmul(d, F.transpose(w, 0, 1))
    if split:
        return b.finish({"outputs": [out], "grads": grads[::-1]}), g
    total = F.sum(out, [0, 1])
    for r, w, grad in zip(refs, weights, grads[::-1], strict=True):
        F.write(r, w - grad * 0.1)
    return b.finish({"outputs": [total]}), g


def arrays(graph, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for p in graph.params:
        kind = p.type.tensor if isinstance(p.type, RefType) else p.type
        made.append((0.1 * rng.standard_normal(kind.shape)).astype(np.float32))
    return made


def test_forward_keeps_one_value_a_layer():
    """Products; what is made of them is cheap."""
    graph, g = layers(4, split=True)
    tangent = next(p for p in graph.params if p.name == g.name)
    found = partition.split(graph, [tangent])
    assert found.nbytes == 4 * LARGE
    ours = arrays(graph)
    by_name = {p.name: a for p, a in zip(graph.params, ours, strict=True)}
    want = interp.run(graph, ours)
    first = interp.run(found.forward, [by_name[p.name] for p in found.forward.params])
    saved = iter(first["saved"])
    kept = [by_name[v.name] if v.node is None else next(saved) for v in found.kept]
    second = interp.run(found.backward, [*kept, by_name["g"]])
    for a, b in zip(second["grads"], want["grads"], strict=True):
        assert np.array_equal(a, b)


def halves(graph, found, ours):
    """(outputs, gradients) of a split graph."""
    by_name = {p.name: a for p, a in zip(graph.params, ours, strict=True)}
    first = interp.run(found.forward, [by_name[p.name] for p in found.forward.params])
    saved = iter(first["saved"])
    kept = [by_name[v.name] if v.node is None else next(saved) for v in found.kept]
    return first["outputs"], interp.run(found.backward, [*kept, by_name["g"]])["grads"]


def test_budget_bounds_what_is_kept():
    """Half the budget, half the layers' products run again, to the same bits; none is all of
    them."""
    graph, _ = layers(8, split=True)
    tangents = [p for p in graph.params if p.name == "g"]
    ours = arrays(graph)
    want = interp.run(graph, ours)
    shares, found = (1, 0.9, 0.75, 0.5, 0.3, 0.1, 0), []
    for share in shares:
        made = partition.split(graph, tangents, share)
        products = sum(n.op.name == "matmul" for n in made.backward.nodes)
        found.append((made.nbytes // LARGE, products))
        assert made.nbytes <= share * 8 * LARGE
        outputs, grads = halves(graph, made, ours)
        for a, b in zip([*outputs, *grads], [*want["outputs"], *want["grads"]], strict=True):
            assert np.array_equal(a, b)
    assert found == [(8, 16), (7, 17), (6, 18), (4, 20), (2, 22), (0, 24), (0, 24)]


def test_budget_takes_the_cheapest_bytes_first():
    """Of a wide product over few terms and a square one, the former runs again."""
    b = Builder("two")
    x = b.param("x", TensorType((ROWS, 8), F32))
    v = b.param("v", TensorType((8, 512), F32))
    w = b.param("w", TensorType((512, 512), F32))
    g = b.param("g", TensorType((ROWS, 512), F32))
    F = b.F
    first = F.matmul(x, v)
    second = F.matmul(F.exp(first), w)
    graph = b.finish({"outputs": [F.sin(second)],
                      "grads": [g * F.cos(second), F.exp(first) * g]})
    whole, half = (partition.split(graph, [p for p in graph.params if p.name == "g"], share)
                   for share in (1, 0.5))
    assert whole.nbytes == 2 * half.nbytes == 2 * ROWS * 512 * 4
    again = [n.args[1].type.shape for n in half.backward.nodes if n.op.name == "matmul"]
    assert again == [(8, 512)]


def test_backward_computes_again_where_it_is_needed():
    """Not all at its start."""
    graph, g = layers(4, split=True)
    found = partition.split(graph, [p for p in graph.params if p.name == "g"])
    ops = [n.op.name for n in found.backward.nodes]
    assert "exp" in ops[:12] and "exp" in ops[ops.index("matmul") + 1:]
    place = plan(fuse(lower(pipeline.run(found.backward))))
    assert place.nbytes <= 5 * LARGE


def test_whole_step_computes_again():
    """With the same bits; the peak falls by what need not be kept."""
    plain = layers(8, split=False)[0]
    for each in pipeline.PASSES[:-1]:
        plain = each.run(plain)
    made = recompute(plain)
    count = [sum(n.op.name == "exp" for n in g.nodes) for g in (plain, made)]
    assert count[1] > count[0]
    a, b = arrays(plain), arrays(made)
    x, y = interp.run(plain, a), interp.run(made, b)
    assert np.array_equal(x["outputs"][0], y["outputs"][0])
    assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))
    before, after = (plan(fuse(lower(g))).nbytes for g in (plain, made))
    assert after <= 0.55 * before and after <= 20 * LARGE


def test_small_graphs_stay():
    graph = pipeline.run(layers(1, split=False)[0])
    assert recompute(graph) is graph


def test_steps_of_models():
    """A transformer's step, whole and with the model alone compiled: the bytes of its programs."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True,
                                       activation="gelu")
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = lehr.optim.AdamW(model.parameters())
    x = lehr.randn(8, 128, 128)

    def step(x, forward=model):
        forward(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def arena():
        return lehr.compiler.stats()["arena"]

    rows = 8 * 128 * 128 * 4
    before = arena()
    lehr.compile(step)(x)
    whole = arena()
    assert 0 < whole - before <= 58 * rows
    step(x, lehr.compile(model))
    assert 0 < arena() - whole <= 28 * rows

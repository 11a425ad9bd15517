"""Graphs of whole training steps, made without capture: reverse mode over a graph builder, a GPT,
AdamW."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.compiler.graph.ir import Builder, Graph, Location, RefType, ScalarType, TensorType, Value
from lehr.ops import expand, families
from lehr.ops.registry import Op

assert families.FAMILIES
F32 = dt.float32


class Recorder(Builder):
    """A builder that decomposes what has no gradient rule."""

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        if op.vjp is None and op.decomp is not None and not op.nondiff:
            made = expand.decompose(self.F, op, args, op.rule(*args))
            if made is not NotImplemented:
                return made
        return super().call(op, args)


def sum_to(F: Any, g: Value, x: Value) -> Value:
    """Undoes broadcasting and promotion."""
    gap = len(g.shape) - len(x.shape)
    dims = [d for d in range(len(g.shape)) if d < gap or (x.shape[d - gap] != g.shape[d])]
    if dims:
        g = F.sum(g, dims, True)
        g = F.view(g, x.shape) if gap else g
    return g if g.dtype is x.dtype else F.to_dtype(g, x.dtype)


def gradients(b: Builder, loss: Value, wrt: list[Value]) -> list[Value]:
    F = b.F
    grads: dict[Value, Value] = {loss: F.full((), 1.0, dtype=loss.dtype)}
    wanted: set[Value] = set(wrt)
    for node in b.nodes:
        if not wanted.isdisjoint(node.inputs):
            wanted.update(node.results)
    for node in reversed(list(b.nodes)):
        g = tuple(grads.get(v) for v in node.results)
        if all(x is None for x in g) or node.op.nondiff is True or wanted.isdisjoint(node.inputs):
            continue
        b.location = node.location
        single = len(node.results) == 1
        made = expand.pullback(F, node.op, g[0] if single else g,
                               node.results[0] if single else node.results, node.args)
        made = made if isinstance(made, (tuple, list)) else (made,)
        slots = [node.args[i] for i in node.op.signature.tensor_slots]
        for x, part in zip(slots, made, strict=False):
            parts = zip(x, part, strict=True) if isinstance(x, tuple) else ((x, part),)
            for v, p in parts:
                if not isinstance(v, Value) or p is None or v not in wanted:
                    continue
                p = p() if callable(p) else p
                if p is None:
                    continue
                p = sum_to(F, p, v)
                grads[v] = F.add(grads[v], p) if v in grads else p
    return [grads[v] for v in wrt]


class Net:
    """A graph under construction with weights as Refs."""

    def __init__(self, name: str) -> None:
        self.b = Recorder(name)
        self.F = self.b.F
        self.refs: list[Value] = []
        self.weights: list[Value] = []

    def weight(self, name: str, *shape: int, dtype: Any = F32) -> Value:
        ref = self.b.param(name, RefType(TensorType(shape, dtype)))
        self.refs.append(ref)
        self.weights.append(self.F.read(ref))
        return self.weights[-1]

    def input(self, name: str, *shape: int, dtype: Any = F32) -> Value:
        return self.b.param(name, TensorType(shape, dtype))

    def at(self, line: int) -> None:
        self.b.location = Location("model.py", line)

    def linear(self, x: Value, name: str, n: int, bias: bool = True) -> Value:
        w = self.weight(f"{name}.weight", n, x.shape[-1])
        return self.F.linear(x, w, self.weight(f"{name}.bias", n) if bias else None)

    def norm(self, x: Value, name: str) -> Value:
        c = x.shape[-1]
        return self.F.layer_norm(x, (c,), self.weight(f"{name}.weight", c),
                                 self.weight(f"{name}.bias", c))

    def block(self, x: Value, name: str, heads: int) -> Value:
        F = self.F
        b, t, c = x.shape
        self.at(10)
        h = self.norm(x, f"{name}.ln1")
        qkv = self.linear(h, f"{name}.qkv", 3 * c)
        self.at(12)
        q, k, v = (F.permute(F.view(F.slice(qkv, -1, i * c, (i + 1) * c, 1),
                                    (b, t, heads, c // heads)), (0, 2, 1, 3)) for i in range(3))
        self.at(13)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = F.reshape(F.permute(y, (0, 2, 1, 3)), (b, t, c))
        self.at(15)
        x = x + self.linear(y, f"{name}.proj", c)
        self.at(16)
        h = self.norm(x, f"{name}.ln2")
        h = F.gelu(self.linear(h, f"{name}.fc", 4 * c), approximate="tanh")
        return x + self.linear(h, f"{name}.out", c)

    def finish(self, outputs: list[Value], grads: Any = ()) -> Graph:
        return self.b.finish({"outputs": outputs, "grads": grads})


def norm_block(b: int = 8, t: int = 128, c: int = 256) -> Graph:
    """Layer norm forward and backward."""
    net = Net("norm")
    x, g = net.input("x", b, t, c), net.input("g", b, t, c)
    y = net.norm(x, "ln")
    loss = net.F.sum(y * g)
    return net.finish([y], gradients(net.b, loss, [x, *net.weights]))


def block(b: int = 4, t: int = 64, c: int = 128, heads: int = 4) -> Graph:
    """One transformer block forward and backward."""
    net = Net("block")
    x, g = net.input("x", b, t, c), net.input("g", b, t, c)
    y = net.block(x, "h", heads)
    loss = net.F.sum(y * g)
    return net.finish([y], gradients(net.b, loss, [x, *net.weights]))


def adamw(net: Net, grads: list[Value], lr: Value, step: Value) -> None:
    """The update of every weight, with moments of its own."""
    F = net.F
    beta1, beta2 = 0.9, 0.999
    one = F.sub(1.0, F.pow(F.full((), beta1, dtype=dt.float64), step))
    two = F.sub(1.0, F.pow(F.full((), beta2, dtype=dt.float64), step))
    rate = F.to_dtype(F.div(F.to_dtype(F.full((), lr, dtype=dt.float64), dt.float64), one), F32)
    root = F.to_dtype(F.sqrt(two), F32)
    for i, (ref, w, g) in enumerate(zip(list(net.refs), list(net.weights), grads, strict=True)):
        m_ref, v_ref = (net.b.param(f"{kind}{i}", ref.type) for kind in "mv")
        m = F.add(F.mul(F.read(m_ref), beta1), F.mul(g, 1 - beta1))
        v = F.add(F.mul(F.read(v_ref), beta2), F.mul(F.mul(g, g), 1 - beta2))
        w = F.mul(w, F.sub(1.0, F.mul(lr, 0.01)) if False else 1 - 0.01 * 3e-4)
        w = F.sub(w, F.div(F.mul(m, rate), F.add(F.div(F.sqrt(v), root), 1e-8)))
        for r, value in ((m_ref, m), (v_ref, v), (ref, w)):
            F.write(r, value)


def optimizer(count: int = 50, shape: tuple[int, ...] = (64, 48)) -> Graph:
    """AdamW over many weights."""
    net = Net("adamw")
    grads = []
    for i in range(count):
        net.weight(f"w{i}", *(shape if i % 2 else shape[:1]))
        grads.append(net.input(f"g{i}", *(shape if i % 2 else shape[:1])))
    lr = net.b.param("lr", ScalarType(dt.FLOAT))
    step = net.b.param("step", ScalarType(dt.FLOAT))
    adamw(net, grads, lr, step)
    return net.finish([])


def gpt(layers: int = 4, b: int = 4, t: int = 64, c: int = 128, heads: int = 4,
        vocabulary: int = 512, train: bool = True) -> Graph:
    """A language model's training step: loss, gradients, AdamW."""
    net = Net("gpt")
    F = net.F
    ids, target = (net.input(n, b, t, dtype=dt.int64) for n in ("ids", "target"))
    net.at(1)
    x = F.embedding(ids, net.weight("wte", vocabulary, c)) + F.slice(net.weight("wpe", t, c), 0, 0,
                                                                     t, 1)
    for i in range(layers):
        x = net.block(x, f"h{i}", heads)
    net.at(30)
    x = net.norm(x, "ln")
    logits = net.linear(x, "head", vocabulary, False)
    net.at(31)
    loss = F.cross_entropy(F.view(logits, (b * t, vocabulary)), F.view(target, (b * t,)))
    if not train:
        return net.finish([loss], gradients(net.b, loss, net.weights))
    grads = gradients(net.b, loss, net.weights)
    lr = net.b.param("lr", ScalarType(dt.FLOAT))
    step = net.b.param("step", ScalarType(dt.FLOAT))
    net.at(40)
    adamw(net, grads, lr, step)
    return net.finish([loss])


def arguments(graph: Graph, seed: int = 0) -> list[Any]:
    """Arrays for a graph's parameters: weights small, indices in range, moments positive."""
    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for p in graph.params:
        if isinstance(p.type, ScalarType):
            made.append(3.0 if p.name == "step" else 1e-3)
            continue
        t = p.type.tensor if isinstance(p.type, RefType) else p.type
        if t.dtype is dt.int64:
            made.append(rng.integers(0, 7, t.shape))
        else:
            scale = 1 / math.sqrt(t.shape[-1]) if isinstance(p.type, RefType) and t.shape else 1
            a = rng.standard_normal(t.shape) * scale
            made.append((np.abs(a) if p.name[0] in "v" else a).astype(t.dtype.np))
    return made

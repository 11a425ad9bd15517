"""Lowers a functional, decomposed graph to a program: one step for each value that is kept.

Every step here makes one value; `fuse` merges them. What is kept is decided in `realise`, how an
element is computed in `element`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.dtype import DType
from lehr.base.index import linearize
from lehr.compiler.graph.ir import (
    Graph,
    Location,
    Node,
    RefType,
    ScalarType,
    TensorType,
    Value,
    values_in,
)
from lehr.compiler.loop import expr, image, realise
from lehr.compiler.loop.element import Elements, Scatter, Unlowered, begun, fold, nothing, place
from lehr.compiler.loop.ir import (
    MONOIDS,
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    HostCall,
    Input,
    Kernel,
    Operand,
    Program,
    Step,
    Store,
    axis,
)
from lehr.compiler.loop.settle import settle
from lehr.compiler.loop.text import row_major
from lehr.compiler.loop.verify import injective
from lehr.ops import registry
from lehr.ops.rule import dims_of

Strides = tuple[Any, ...] | None

# Locations kept for one step.
LINES = 8


def lower(graph: Graph, *, result_strides: Sequence[Strides] | None = None,
          param_strides: Mapping[str, Strides] | None = None,
          supports: Callable[[Extern], bool] | None = None) -> Program:
    """The program of a graph that has been through `functionalize` and `decompose`.

    `result_strides`: one entry for each returned value (write-backs excluded), None for row-major.
    `param_strides`: layouts of tensor parameters by name, where they are not row-major (a Ref's
    stands in its type). `supports(extern)`: whether the back end has that call; if not, it becomes
    a HostCall. Unlowered names an op that no back end can run, and the user's line.
    """
    return _Lowering(graph, result_strides, param_strides or {}, supports).program()


class _Lowering:
    def __init__(self, graph: Graph, result_strides: Sequence[Strides] | None,
                 param_strides: Mapping[str, Strides],
                 supports: Callable[[Extern], bool] | None) -> None:
        self.graph, self.supports = graph, supports
        self.L = Elements()
        self.kept = realise.kept(graph)
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.inputs):
                self.users.setdefault(v, []).append(node)
        self.images = image.layouts(graph)
        self.steps: list[Step] = []
        self.buffers: list[Buffer] = []
        self.names: set[str] = set()
        self.location: Location | None = None
        self.lines: dict[Value, tuple[Location, ...]] = {}
        self.params = tuple(self.parameter(p, param_strides.get(p.name)) for p in graph.params)
        returned = [v for g in ("outputs", "saved", "grads") for v in graph.results[g]]
        strides = list(result_strides or [None] * len(returned))
        if len(strides) != len(returned):
            raise ValueError(f"{len(strides)} result strides for {len(returned)} results")
        self.results = [self.output(f"out{i}", v, s)
                        for i, (v, s) in enumerate(zip(returned, strides, strict=True))]
        self.home: dict[Value, Buffer] = {}
        self.shadows: dict[Buffer, Buffer] = {}  # stands for a Ref's buffer until `settle`
        self.placed(returned)

    # Buffers

    def name(self, wanted: str) -> str:
        stem = re.sub(r"\W", "_", wanted) or "p"
        stem = stem if not stem[0].isdigit() else f"p{stem}"
        made, n = stem, 1
        while made in self.names:
            made, n = f"{stem}_{n}", n + 1
        self.names.add(made)
        return made

    def parameter(self, p: Value, strides: Strides) -> Buffer:
        t = p.type
        if isinstance(t, ScalarType):
            made = Buffer(self.name(p.name), t.dtype, (), (), "scalar")
        elif isinstance(t, RefType):
            shape = tuple(t.tensor.shape)
            made = Buffer(self.name(p.name), t.tensor.dtype, shape,
                          tuple(t.strides or row_major(shape)), "ref")
        else:
            assert isinstance(t, TensorType), t
            shape = tuple(t.shape)
            made = Buffer(self.name(p.name), t.dtype, shape, tuple(strides or row_major(shape)),
                          "param")
        self.L.buffers[p] = made
        return made

    def buffer(self, name: str, dtype: DType, shape: tuple[Any, ...], strides: Strides = None,
               role: str = "arena") -> Buffer:
        made = Buffer(self.name(name), dtype, shape, tuple(strides or row_major(shape)), role)
        self.buffers.append(made)
        return made

    def output(self, name: str, v: Value, strides: Strides) -> Buffer:
        return self.buffer(name, _dtype(v), _shape(v), strides, "output")

    def placed(self, returned: Sequence[Value]) -> None:
        """Where kept values go: the first result that they are, or their Ref's shadow."""
        for v, b in zip(returned, self.results, strict=True):
            if v in self.kept and v not in self.home:
                self.home[v] = b
        for target, v in zip(self.graph.targets, self.graph.results["writebacks"], strict=True):
            ref = self.L.buffers[target]
            shadow = self.buffer(f"{ref.name}_new", ref.dtype, ref.shape, ref.strides)
            self.shadows[shadow] = ref
            if v in self.kept and v not in self.home:
                self.home[v] = shadow

    def memory_of(self, v: Value, dtype: DType | None = None) -> Buffer:
        """The buffer that a kept value is stored into."""
        home = self.home.get(v)
        if home is None or (dtype is not None and dtype is not home.dtype):
            return self.buffer(f"t{len(self.buffers)}", dtype or _dtype(v), _shape(v),
                               self.images.get(v))
        return home

    # Steps

    def program(self) -> Program:
        graph = self.graph
        returned = [v for g in ("outputs", "saved", "grads") for v in graph.results[g]]
        copies: dict[Value, list[Buffer]] = {}
        for v, b in (*zip(returned, self.results, strict=True),
                     *zip(graph.results["writebacks"], self.shadows, strict=True)):
            if self.home.get(v) is not b:
                copies.setdefault(v, []).append(b)
        for p in graph.params:
            for b in copies.get(p, ()):
                self.copy(p, b)
        for node in graph.nodes:
            self.location = node.location
            try:
                self.node(node)
                for v in node.results:
                    for b in copies.get(v, ()):
                        self.copy(v, b)
            except Unlowered:
                raise
            except Exception as error:
                error.add_note(f"while lowering {node.op.name}{place(node.location)}")
                raise
        self.location = None
        steps, dropped = settle(self.steps, self.shadows, copied)
        buffers = tuple(b for b in self.buffers if b not in dropped)
        return Program(graph.name, self.params, buffers, tuple(steps), tuple(self.results),
                       graph.symbols)

    def read(self, v: Value) -> None:
        if v.node is not None:
            self.L.buffers[v] = self.L.buffers[v.node.args[0]]

    def node(self, node: Node) -> None:
        kind = realise.nature(node)
        if not kind:
            raise Unlowered(f"op {node.op.name} has no lowering{place(node.location)}")
        lines: tuple[Location, ...] = () if node.location is None else (node.location,)
        for x in node.inputs:
            if x not in self.kept:
                lines += self.lines.get(x, ())
        lines = tuple(dict.fromkeys(lines))[:LINES]
        for v in node.results:
            self.lines[v] = lines
        if node.op.name == "read":
            self.read(node.result)
        elif kind not in realise.INLINE or not self.kept.isdisjoint(node.results):
            _NODES[kind](self, node)

    def kernel(self, name: str, axes: tuple[Axis, ...], store: Store,
               lines: tuple[Location, ...] = ()) -> None:
        """Adds a kernel with one store (its binds found); none where there is no point."""
        if empty([a.extent for a in (*axes, *store.axes)]):
            return
        roots = [store.value] + ([store.mask] if store.mask is not None else [])
        binds = binds_of(roots, store.idx, self.L.binds)
        self.steps.append(Kernel(f"{name}{len(self.steps)}", axes, (store,), binds, lines))

    def computed(self, v: Value, buffer: Buffer) -> None:
        """A kernel that computes an elementwise value."""
        idx, axes = grid(_shape(v))
        value = expr.const(0, buffer.dtype) if empty(buffer.shape) else self.L.computed(v, idx)
        assert v.node is not None
        self.kernel(v.node.op.name, axes, Store(buffer, idx, value), self.lines[v])

    def copy(self, v: Value, buffer: Buffer) -> None:
        """A kernel that stores elements of a value as they are."""
        if buffer.dtype.category == dt.COMPLEX:
            self.steps.append(copied(self.L.buffers[v], buffer))
            return
        idx, axes = grid(_shape(v))
        value = expr.const(0, buffer.dtype) if empty(buffer.shape) else self.L.element(v, idx)
        self.kernel("copy", axes, Store(buffer, idx, value), self.lines.get(v, ()))

    def value(self, node: Node) -> None:
        for v in node.results:
            if v in self.kept:
                buffer = self.memory_of(v)
                self.computed(v, buffer)
                self.L.buffers[v] = buffer

    def reduce(self, node: Node) -> None:
        """A monoid over dimensions of one input."""
        op, v = node.op, node.result
        assert op.monoid is not None
        bound = dict(zip((p.name for p in op.params), node.args, strict=True))
        x = bound["input"]
        shape = _shape(x)
        dims = dims_of(bound.get("dim"), len(shape))
        compute = (op.rule(*node.args).compute or _dtype(x)).wide
        many = MONOIDS[op.monoid].arity > 1
        idx, kept = grid(_shape(v))
        left = [i for d, i in enumerate(idx) if d not in dims] if bound.get("keepdim") else [*idx]
        sizes = [shape[d] for d in dims]
        inner, reduced = grid(sizes, "k", "reduce")
        rest, at = iter(left), dict(zip(dims, inner, strict=True))
        full = tuple(at[d] if d in at else next(rest) for d in range(len(shape)))
        buffer = self.memory_of(v)
        if empty(shape):
            value = expr.cast(nothing(op.monoid, compute if not many else dt.int64, int(many)),
                              _dtype(v))
            self.kernel(op.name, kept, Store(buffer, idx, value), self.lines[v])
            self.L.buffers[v] = buffer
            return
        args = [expr.cast(self.L.element(x, full), compute)]
        if many:
            args.append(expr.index(linearize(inner, sizes) if sizes else 0))
        part = len(args) - 1
        value = expr.cast(fold(op.monoid, reduced, tuple(args), part), _dtype(v))
        self.kernel(op.name, kept, Store(buffer, idx, value), self.lines[v])
        self.L.buffers[v] = buffer

    def fold(self, node: Node) -> None:
        """An op whose element is a reduction of its own making."""
        self.value(node)

    def scan(self, node: Node) -> None:
        """A running monoid along one dimension."""
        op, v = node.op, node.result
        assert op.monoid is not None
        bound = dict(zip((p.name for p in op.params), node.args, strict=True))
        shape = _shape(v)
        compute = (op.rule(*node.args).compute or _dtype(v)).wide
        buffer = self.memory_of(v)
        along = dims_of(bound["dim"], len(shape))
        order = [d for d in range(len(shape)) if d not in along] + list(along)
        places, axes = grid([shape[d] for d in order])
        idx = tuple(places[order.index(d)] for d in range(len(shape)))
        x = expr.const(0, compute) if empty(shape) else expr.cast(
            self.L.element(bound["input"], idx), compute)
        running = [a for d in along for a in axes if a.var is idx[d]]
        inner: tuple[Axis, ...] = ()
        if running:
            inner = (running[0]._replace(role="scan"),)
            x = Expr("Scan", x.dtype, op.monoid, inner[0], (x,), 0)
        x = begun(op.monoid, x)
        outer = tuple(a for a in axes if a not in running)
        self.kernel(op.name, outer, Store(buffer, idx, expr.cast(x, _dtype(v)), inner),
                    self.lines[v])
        self.L.buffers[v] = buffer

    def scatter(self, node: Node) -> None:
        """The base's elements, then stores at indices that are data. Half precision is combined in
        float32."""
        v = node.result
        assert node.op.scatter is not None
        made = node.op.scatter(self.L, *node.args)
        assert isinstance(made, Scatter), node.op
        wide = _dtype(v).wide if made.mode != "set" else _dtype(v)
        buffer = self.memory_of(v, wide)
        idx, axes = grid(_shape(v))
        base = made.base if isinstance(made.base, Expr) else self.L.element(made.base, idx)
        base = expr.cast(base, wide)
        self.kernel(f"{node.op.name}_base", axes, Store(buffer, idx, base), self.lines[v])
        k, axes = grid(made.extents)
        at = tuple(made.at(k))
        value = expr.cast(made.value(k), wide)
        data = any(f in self.L.binds for i in at for f in sym.free(i))
        inner: tuple[Axis, ...] = ()
        if made.mode == "set" and not data and not injective(
                buffer, at, frozenset(a.var for a in axes)):
            axes, inner = (), axes  # the last of equal places wins: one point runs them in order
        self.kernel(node.op.name, axes, Store(buffer, at, value, inner, made.mode), self.lines[v])
        self.L.buffers[v] = buffer
        home = self.home.get(v)
        if home is not None and home is not buffer:
            self.copy(v, home)

    def join(self, node: Node) -> None:
        """Concatenation: each piece is stored where it belongs."""
        v = node.result
        bound = dict(zip((p.name for p in node.op.params), node.args, strict=True))
        pieces = [x for x in bound["tensors"]
                  if len(_shape(x)) == len(_shape(v)) and not empty(_shape(x))]
        (d,) = dims_of(bound["dim"], len(_shape(v)))
        buffer = self.memory_of(v)
        if not pieces:
            idx, axes = grid(_shape(v))
            self.kernel("cat", axes, Store(buffer, idx, expr.const(0, buffer.dtype)), self.lines[v])
        start: Any = 0
        for x in pieces:
            idx, axes = grid(_shape(x))
            value = expr.cast(self.L.element(x, idx), _dtype(v))
            at = (*idx[:d], idx[d] + start, *idx[d + 1:])
            self.kernel("cat", axes, Store(buffer, at, value), self.lines[v])
            start = start + _shape(x)[d]
        self.L.buffers[v] = buffer

    def extern(self, node: Node) -> None:
        """A library call; a HostCall where the back end has none."""
        inputs: list[Operand] = []

        def replaced(a: Any) -> Any:
            if isinstance(a, tuple):
                return tuple(map(replaced, a))
            if not isinstance(a, Value):
                return a
            inputs.append(self.operand(a))
            return Input(len(inputs) - 1)

        attrs = tuple(map(replaced, node.args))
        buffers = [self.home.get(v) or self.buffer(f"t{len(self.buffers)}", _dtype(v), _shape(v),
                                                   self.layout(v)) for v in node.results]
        self.L.buffers.update(zip(node.results, buffers, strict=True))
        if all(empty(b.shape) for b in buffers):
            return
        output, *others = (Operand(b, 0, b.shape, b.strides) for b in buffers)
        step = Extern(f"{node.op.name}{len(self.steps)}", node.op, tuple(inputs), output, attrs,
                      locations=self.lines[node.results[0]], others=tuple(others))
        if any(isinstance(x.type, ScalarType) or empty(_shape(x)) for x in values_in(node.args)
               ) or (self.supports is not None and not self.supports(step)):
            self.host(node, buffers)
            return
        self.steps.append(step)

    def layout(self, v: Value) -> Strides:
        """Strides of a call's result: those that make a permutation of it contiguous, so that
        merging its dimensions needs no copy. The last dimension stays innermost."""
        if v in self.images:
            return self.images[v]
        n = len(_shape(v))
        orders = [[d % n for d in u.args[1]] for u in self.users.get(v, ())
                  if u.op.name == "permute"]
        order = next((o for o in orders if o[-1] == n - 1), None)
        if order is None:
            return None
        steps = row_major(tuple(_shape(v)[d] for d in order))
        strides: list[Any] = [0] * n
        for d, step in zip(order, steps, strict=True):
            strides[d] = step
        return tuple(strides)

    def host(self, node: Node, buffers: Sequence[Buffer] = ()) -> None:
        """The op's eager kernel, between two compiled segments."""
        def replaced(a: Any) -> Any:
            if isinstance(a, tuple):
                return tuple(map(replaced, a))
            if not isinstance(a, Value):
                return a
            return self.number(a) if isinstance(a.type, ScalarType) else self.operand(a)

        args = tuple(map(replaced, node.args))
        outputs = tuple(buffers or (self.memory_of(v) for v in node.results))
        self.steps.append(HostCall(f"{node.op.name}{len(self.steps)}", node.op, args, outputs,
                                   self.lines[node.result] if node.results else ()))
        self.L.buffers.update(zip(node.results, outputs, strict=True))

    def number(self, v: Value) -> Buffer:
        """The one-element buffer of a run-time number."""
        e = self.L.element(v, ())
        if e.kind == "Load" and not e.fields[1] and e.fields[0].role == "scalar":
            return e.fields[0]  # type: ignore[no-any-return]
        return self.materialised(v)

    def materialised(self, v: Value) -> Buffer:
        """Memory for a value that so far had none."""
        buffer = self.buffer(f"t{len(self.buffers)}", _dtype(v), _shape(v), self.images.get(v))
        self.copy(v, buffer)
        self.L.buffers[v] = buffer
        return buffer

    def operand(self, v: Value) -> Operand:
        """The value as a strided rectangle of a buffer: of the one its views lead to, or its
        own."""
        shape = _shape(v)
        found = self.rectangle(v, shape)
        if found is not None:
            return found
        buffer = self.materialised(v)
        return Operand(buffer, 0, shape, buffer.strides)

    def rectangle(self, v: Value, shape: tuple[Any, ...]) -> Operand | None:
        known = self.L.buffers.get(v)
        if known is not None and known.dtype is _dtype(v):
            return Operand(known, 0, shape, known.strides)
        if v.node is None or realise.nature(v.node) != "view":
            return None
        idx, axes = grid(shape)
        e = self.L.element(v, idx)
        if e.kind != "Load" or e.fields[2] is not None:
            return None
        buffer, at = e.fields[:2]
        flat = linearize(at, buffer.shape, buffer.strides) if at else 0
        split = sym.affine(flat, [a.var for a in axes])
        if split is None or any(f in self.L.binds for f in sym.free(split[1])):
            return None
        steps = [split[0].get(i, 0) if not isinstance(i, int) else 0 for i in idx]
        return Operand(buffer, split[1], shape, tuple(steps))


def grid(shape: Sequence[Any], letter: str = "i", role: str = "parallel"
         ) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
    """(index, axes) over a shape; dimensions of size 1 have no axis."""
    idx: list[Any] = []
    axes: list[Axis] = []
    for n in shape:
        if isinstance(n, int) and n == 1:
            idx.append(0)
        else:
            axes.append(axis(f"{letter}{len(axes)}", n, role))
            idx.append(axes[-1].var)
    return tuple(idx), tuple(axes)


def copied(source: Buffer, target: Buffer) -> Step:
    """The step that copies one buffer to another of the same shape."""
    name = f"write_{target.name}"
    if target.dtype.category == dt.COMPLEX:
        return HostCall(name, registry.get("clone"),
                        (Operand(source, 0, source.shape, source.strides), None), (target,))
    idx, axes = grid(target.shape)
    return Kernel(name, axes, (Store(target, idx, expr.load(source, idx)),))


def empty(shape: Sequence[Any]) -> bool:
    """Whether there is no element (the indices of none would be meaningless)."""
    return any(isinstance(n, int) and n == 0 for n in shape)


def binds_of(roots: Sequence[Expr], idx: Sequence[Any], binds: Mapping[Any, Bind]
             ) -> tuple[Bind, ...]:
    """The binds that values and an index need, those first that others need. Bind variables inside
    a reduction are free there too, so `Expr.free` finds them all."""
    found: dict[Any, Bind] = {}

    def visit(var: Any) -> None:
        b = binds.get(var)
        if b is None or var in found:
            return
        for v in sorted(b.value.free | (b.mask.free if b.mask else frozenset()), key=_by_name):
            visit(v)
        found[var] = b

    free = frozenset().union(*(e.free for e in roots), *(sym.free(i) for i in idx))
    for v in sorted(free, key=_by_name):
        visit(v)
    return tuple(found.values())


def _by_name(v: Any) -> Any:
    return len(v.name), v.name


def _shape(v: Value) -> tuple[Any, ...]:
    if isinstance(v.type, TensorType):
        return tuple(v.type.shape)
    return () if isinstance(v.type, ScalarType) else tuple(v.type.tensor.shape)


def _dtype(v: Value) -> dt.DType:
    return v.type.dtype if isinstance(v.type, TensorType | ScalarType) else v.type.tensor.dtype


_NODES: dict[str, Callable[[_Lowering, Node], None]] = {
    "value": _Lowering.value, "reduce": _Lowering.reduce, "fold": _Lowering.fold,
    "scan": _Lowering.scan, "scatter": _Lowering.scatter, "join": _Lowering.join,
    "extern": _Lowering.extern, "host": _Lowering.host,
}

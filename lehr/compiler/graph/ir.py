"""The graph IR: params, constants, calls, regions and one return.

Values are logical tensors without strides. Nodes never change: a pass builds a new graph through a
`Builder`, which infers every type from the op's rule. A `Ref` parameter is a *storage* that
outlives the graph (weights, buffers, the RNG counter, mutated inputs); only `read` and `write`
nodes touch it, in order. Everything else about an op is in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.ops import registry
from lehr.ops.operator import Operators
from lehr.ops.registry import Functions, Op
from lehr.ops.rule import PLAIN, Number, Spec


class TensorType(NamedTuple):
    """A logical tensor: sizes are `int` or `Sym`."""

    shape: tuple[Any, ...]
    dtype: DType
    device: Device = CPU


class ScalarType(NamedTuple):
    """A number known only at run time; `category` as in `lehr.base.dtype`."""

    category: int

    @property
    def dtype(self) -> DType:
        """The dtype a run-time number is passed in."""
        return (dt.bool_, dt.int64, dt.float64, dt.complex128)[self.category]


class RefType(NamedTuple):
    """A storage seen as one tensor. `strides` is its boundary layout (None: row-major)."""

    tensor: TensorType
    strides: tuple[Any, ...] | None = None


class FutureType(NamedTuple):
    """What a collective returns until it is waited for."""

    tensor: TensorType


Type = TensorType | ScalarType | RefType | FutureType


class Location(NamedTuple):
    """A place in the user's source. `path`: the whole path of the file, no part of any text."""

    file: str
    line: int
    text: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Value(Operators):
    """One SSA value: a parameter or a result of a node. Identity is equality."""

    __slots__ = ("builder", "index", "name", "node", "type")

    def __init__(self, type: Type, node: Node | None, index: int = 0, name: str = "",
                 builder: Builder | None = None) -> None:
        self.type, self.node, self.index, self.name, self.builder = type, node, index, name, builder

    @property
    def F(self) -> Functions:
        assert self.builder is not None, "the graph of this value is finished"
        return self.builder.F

    @property
    def shape(self) -> tuple[Any, ...]:
        return self._tensor("shape").shape

    @property
    def ndim(self) -> int:
        return len(self._tensor("ndim").shape)

    @property
    def dtype(self) -> DType:
        return self._tensor("dtype").dtype

    @property
    def device(self) -> Device:
        return self._tensor("device").device

    @property
    def scalar_category(self) -> int:
        if isinstance(self.type, ScalarType):
            return self.type.category
        raise AttributeError("scalar_category")

    def _tensor(self, name: str) -> TensorType:
        if isinstance(self.type, TensorType):
            return self.type
        raise AttributeError(f"a value of type {self.type} has no {name}")

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Node:
    """`results = op(*args)`. `args` are the bound arguments: values, tuples of values, or
    constants."""

    __slots__ = ("args", "effects", "location", "op", "results")

    def __init__(self, op: Op, args: tuple[Any, ...], types: Sequence[Type],
                 location: Location | None, effects: frozenset[Effect],
                 builder: Builder | None = None) -> None:
        self.op, self.args, self.location, self.effects = op, args, location, effects
        self.results = tuple(Value(t, self, i, "", builder) for i, t in enumerate(types))

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(values_in(self.args))

    @property
    def result(self) -> Value:
        return self.results[0]

    def __repr__(self) -> str:
        return f"<{self.op.name} -> {', '.join(map(repr, self.results))}>"


class Effect(NamedTuple):
    """What a node does besides computing: kind is "read" | "write" (target: the Ref parameter),
    "comm" (target: the process group's name) or "stop" (data may end the program; no target)."""

    kind: str
    target: Any


PURE: frozenset[Effect] = frozenset()
STOPS = frozenset((Effect("stop", None),))


def values_in(args: Any) -> Iterator[Value]:
    """Every value in (nested) bound arguments, in order."""
    for a in args:
        if isinstance(a, Value):
            yield a
        elif isinstance(a, (tuple, list)):
            yield from values_in(a)


def map_values(args: Any, fn: Callable[[Value], Any]) -> Any:
    """Bound arguments with every value replaced; lists become tuples."""
    kind = type(args)
    if kind is Value:
        return fn(args)
    if kind is tuple or kind is list:
        return tuple([fn(a) if type(a) is Value else a if type(a) in PLAIN
                      else map_values(a, fn) for a in args])
    if isinstance(args, (tuple, list)) and not isinstance(args, (TensorType, Location)):
        return tuple([map_values(a, fn) for a in args])     # a named one, of sizes, say
    return args


GROUPS = ("outputs", "saved", "grads", "writebacks")


class Graph:
    """A finished graph.

    params      values of type TensorType, ScalarType or RefType
    nodes       calls in execution order
    results     group name (GROUPS) -> tuple of values; the i-th of "writebacks" is stored into
    `targets[i]` targets     Ref params of the write-backs, in order (empty before `functionalize`)
    symbols     size variables (Sym leaves) in order of appearance
    name        for dumps
    """

    __slots__ = ("name", "nodes", "params", "results", "symbols", "targets")

    def __init__(self, name: str, params: Sequence[Value], nodes: Sequence[Node],
                 results: dict[str, tuple[Value, ...]], targets: Sequence[Value] = (),
                 symbols: Sequence[Any] = ()) -> None:
        self.name = name
        self.params, self.nodes = tuple(params), tuple(nodes)
        self.results = {g: tuple(results.get(g, ())) for g in GROUPS}
        self.targets, self.symbols = tuple(targets), tuple(symbols)
        self._number()

    def _number(self) -> None:
        for p in self.params:
            p.builder = None
        count = 0
        for node in self.nodes:
            for v in node.results:
                v.name, v.builder = str(count), None
                count += 1

    @property
    def returned(self) -> tuple[Value, ...]:
        """All results, group after group."""
        return tuple(v for g in GROUPS for v in self.results[g])

    def __str__(self) -> str:
        from lehr.compiler.graph.text import print_graph
        return print_graph(self)


class Builder:
    """Builds a graph node by node; `F` interprets ops by adding nodes.

    `location` is copied to every node that is added; a pass sets it from the node it rewrites.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.params: list[Value] = []
        self.nodes: list[Node] = []
        self.symbols: list[Any] = []
        self.location: Location | None = None
        self.F = Functions(self.call)
        self._names: set[str] = set()

    def param(self, name: str, type: Type) -> Value:
        unique, n = name, 1
        while unique in self._names:
            unique, n = f"{name}_{n}", n + 1
        self._names.add(unique)
        value = Value(type, None, len(self.params), unique, self)
        self.params.append(value)
        return value

    def symbol(self, var: Any) -> Any:
        if var not in self.symbols:
            self.symbols.append(var)
        return var

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Adds a node; returns its value, or a tuple where the op has several (or a list of)
        results."""
        specs = op.rule(*args)
        several = type(specs) is tuple
        types = [_type_of(s) for s in (specs if several else (specs,))] if specs is not None else []
        args = map_values(args, lambda v: v)
        node = Node(op, args, types, self.location, infer_effects(op, args), self)
        self.nodes.append(node)
        if specs is None:
            return None
        if not several:
            return node.result
        named = op.signature.named
        return named(*node.results) if named else node.results

    def finish(self, results: Mapping[str, Iterable[Value]],
               targets: Sequence[Value] = ()) -> Graph:
        return Graph(self.name, self.params, self.nodes, {k: tuple(v) for k, v in results.items()},
                     targets, self.symbols)


def _type_of(spec: Any) -> Type:
    if isinstance(spec, Spec):
        return TensorType(tuple(spec.shape), spec.dtype, spec.device)
    if isinstance(spec, Number):
        return ScalarType(spec.category)
    return spec  # type: ignore[no-any-return]  # a rule of this package's own ops


def infer_effects(op: Op, args: tuple[Any, ...]) -> frozenset[Effect]:
    """The effects of a call, from its op and arguments alone (the verifier compares)."""
    if op.name in ("read", "write"):
        return frozenset((Effect(op.name, args[0]),))
    if op.kind == registry.COMM:
        return frozenset((Effect("comm", args[op.signature.index["group"]]),))
    return STOPS if op.stops else PURE


def copy_into(builder: Builder, graph: Graph, known: dict[Value, Any],
              rewrite: Callable[[Builder, Node, tuple[Any, ...]], Any]) -> dict[Value, Any]:
    """The body of every pass: replays `graph` into `builder`.

    `known` maps the graph's params to the builder's values. `rewrite(builder, node, args)` gets the
    arguments already mapped and returns the replacement of the results (a value, a tuple, or None
    for no results).
    """
    for node in graph.nodes:
        builder.location = node.location
        args = map_values(node.args, known.__getitem__)
        made = rewrite(builder, node, args)
        if len(node.results) == 1:
            known[node.results[0]] = made[0] if type(made) is tuple else made
        else:
            for old, new in zip(node.results, made or (), strict=True):
                known[old] = new
    return known


def rebuild(graph: Graph, rewrite: Callable[[Builder, Node, tuple[Any, ...]], Any]) -> Graph:
    """A new graph with the same parameters and result groups, each node passed through
    `rewrite`."""
    builder = Builder(graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params}
    copy_into(builder, graph, known, rewrite)
    return builder.finish({g: [known[v] for v in vs] for g, vs in graph.results.items()},
                          [known[t] for t in graph.targets])


def copy_node(builder: Builder, node: Node, args: tuple[Any, ...]) -> Any:
    """The rewrite that changes nothing."""
    return builder.call(node.op, args)

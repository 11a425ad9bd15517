"""Drops what has no effect and computes nothing twice. Every rule is exact to the last bit.

One walk forward over the live nodes rewrites them by the rules below and numbers values: equal
calls become one, random ops too, since their counters are arguments. What that leaves dead is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.compiler.graph.exact import widens
from lehr.compiler.graph.ir import (
    Builder,
    Graph,
    Node,
    TensorType,
    Value,
    map_values,
    values_in,
)
from lehr.compiler.passes.extent import extent
from lehr.ops import execute, registry
from lehr.ops.registry import Op


def simplify(graph: Graph) -> Graph:
    """An equivalent graph with fewer nodes: no dead ones, no two equal ones."""
    builder = Builder(graph.name)
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params}
    numbers: dict[Any, Any] = {}
    for node in live(graph.nodes, graph.returned):
        builder.location = node.location
        made = _number(builder, node.op, map_values(node.args, known.__getitem__), numbers)
        if len(node.results) == 1:
            made = (made[0] if type(made) is tuple else made,)
        known.update(zip(node.results, made or (), strict=True))
    results = {g: [known[v] for v in vs] for g, vs in graph.results.items()}
    builder.nodes = live(builder.nodes, [v for vs in results.values() for v in vs])
    return builder.finish(results, [known[t] for t in graph.targets])


def live(nodes: Sequence[Node], returned: Iterable[Value]) -> list[Node]:
    """The nodes that a result, a write or a collective needs, in order."""
    needed = set(returned)
    kept: list[Node] = []
    for node in reversed(nodes):
        if (any(e.kind != "read" for e in node.effects) or not node.results
                or not needed.isdisjoint(node.results)):
            kept.append(node)
            needed.update(values_in(node.args))
    kept.reverse()
    return kept


def _number(b: Builder, op: Op, args: tuple[Any, ...], numbers: dict[Any, Any]) -> Any:
    """The value of a call: what a rule makes of it, an equal earlier call, or a new node."""
    for rule in (*RULES.get(op.name, ()), _fold):
        made = rule(b, op, args)
        if isinstance(made, Value):
            return made
        if made is not None:
            return _number(b, made[0], made[1], numbers)
    if op.kind == registry.COMM or op.name == "write":
        return b.call(op, args)
    key = (op, key_of((_elements(args[0]), *args[1:]) if op.name in CHECKS else args))
    found = numbers.get(key)
    if found is None:
        found = numbers[key] = b.call(op, args)
    return found


CHECKS = ("check_index", "check_divisor")     # of elements, whatever their order


def _elements(x: Any) -> Any:
    """The value that has the same elements as one that views make of it."""
    node = _made_by(x, "view", "permute")
    while node is not None:
        x = node.args[0]
        node = _made_by(x, "view", "permute")
    return x


def key_of(a: Any) -> Any:
    """A hashable key that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    if isinstance(a, (tuple, list)):
        return tuple(map(key_of, a))
    return (type(a).__name__, repr(a)) if isinstance(a, (bool, float, complex)) else a


# A rule is (builder, op, args) -> a value; (op, args) to use instead; or None.


def _made_by(v: Any, *names: str) -> Node | None:
    node = v.node if isinstance(v, Value) else None
    return node if node is not None and node.op.name in names else None


def _get(name: str) -> Op:
    return registry.get(name)


def _input(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """Ops that copy or rename: graph values have no layout and no storage."""
    return args[0]


def _plain(name: str) -> Callable[..., Any]:
    """The view instead of its copying twin."""
    return lambda b, op, args: (_get(name), args)


def _same_shape(a: Any, shape: Any) -> bool:
    return len(a) == len(shape) and all(m is n or m == n for m, n in zip(a, shape, strict=True))


def _shape_of(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(op.rule(*args).shape)


def _view(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """A view of a view is one view; to the shape it has, none."""
    x = args[0]
    shape = _shape_of(op, args)
    inner = _made_by(x, "view")
    if inner is not None:
        return op, (inner.args[0], shape)
    if _same_shape(x.shape, shape):
        return x
    return None if key_of(args[1]) == key_of(shape) else (op, (x, shape))


def _permute(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    x, dims = args
    order = tuple(d % len(x.shape) for d in dims)
    if order == tuple(range(len(order))):
        return x
    moved = [d for d in order if not (isinstance(x.shape[d], int) and x.shape[d] == 1)]
    if moved == sorted(moved):
        return _get("view"), (x, tuple(x.shape[d] for d in order))
    inner = _made_by(x, "permute")
    if inner is not None:
        base, first = inner.args
        return op, (base, tuple(first[d] % len(order) for d in order))
    return None if dims == order else (op, (x, order))


def _expand(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    x = args[0]
    shape = _shape_of(op, args)
    if _same_shape(x.shape, shape):
        return x
    inner = _made_by(x, "expand")
    if inner is not None and len(inner.args[0].shape) == len(shape):
        return op, (inner.args[0], shape)
    return None if key_of(args[1]) == key_of(shape) else (op, (x, shape))


def _to_dtype(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    x, dtype = args
    if x.dtype is dtype:
        return x
    inner = _made_by(x, "to_dtype")
    if inner is not None and widens(inner.args[0].dtype, x.dtype):
        return op, (inner.args[0], dtype)
    return None


def _neutral(place: int, numbers: tuple[Any, ...]) -> Callable[..., Any]:
    """`op(x, number)` is x where the result has x's type."""
    def rule(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
        x, other = args[1 - place], _known(args[place])
        if not isinstance(x, Value) or not isinstance(x.type, TensorType):
            return None
        if isinstance(other, bool) or not isinstance(other, (int, float)):
            return None
        if not any(other == n and str(float(other)) == str(float(n)) for n in numbers):
            return None
        if any(a not in (1, None) for a in args[2:]):
            return None
        spec = op.rule(*args)
        return x if spec.dtype is x.dtype and _same_shape(spec.shape, x.shape) else None
    return rule


def _known(a: Any) -> Any:
    """The number that every element of a constant is; other arguments as they are."""
    node = _made_by(a, "full", "expand", "view")
    while node is not None and node.op.name != "full":
        node = _made_by(node.args[0], "full", "expand", "view")
    return a if node is None else node.args[1]


def _integer_zero(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """x + 0 for integers; for floats it turns -0.0 into 0.0."""
    x = args[0]
    if isinstance(x, Value) and isinstance(x.type, TensorType) and x.dtype.category == dt.INT:
        return _neutral(1, (0,))(b, op, args)
    return None


def _twice(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    inner = _made_by(args[0], op.name)
    return inner.args[0] if inner is not None and inner.args[0].dtype is args[0].dtype else None


def _where(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    cond, x, y = args
    if x is y and isinstance(x, Value) and _same_shape(_shape_of(op, args), x.shape):
        return x
    return None


def _single_batch(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """A product of one batch is a product of matrices; a result dtype that says nothing goes."""
    x, y = args[:2]
    if args[2] is x.dtype:
        return op, (x, y, None)
    head = x.shape[:-2]
    if not head or any(not isinstance(n, int) or n != 1 for n in head):
        return None
    flat = [b.F.view(v, v.shape[-2:]) for v in (x, y)]
    return _get("view"), (b.call(op, (*flat, *args[2:])), _shape_of(op, args))


def _piece(v: Any) -> tuple[Any, ...] | None:
    """(sizes, dim, start, end, input) of a contiguous piece put into zeros."""
    node = _made_by(v, "slice_backward")
    if node is None:
        return None
    g, sizes, dim, start, end, step = node.args
    dim %= len(sizes)
    size = sizes[dim]
    first, last = 0 if start is None else start, size if end is None else end
    if step != 1 or not all(isinstance(n, int) and 0 <= n <= size for n in (first, last)
                            if isinstance(size, int)) or not isinstance(size, int):
        return None
    return tuple(sizes), dim, first, last, g


def _pieces(*summands: Any) -> list[tuple[Any, ...]] | None:
    """The pieces that a sum consists of; None where it has another part."""
    parts: list[tuple[Any, ...]] = []
    waiting = list(summands)
    while waiting:
        v = waiting.pop()
        piece, node = _piece(v), _made_by(v, "add")
        if piece is not None:
            parts.append(piece)
        elif node is not None and node.args[2] == 1 and len(parts) < PIECES:
            waiting += node.args[:2]
        else:
            return None
    return parts


PIECES = 64


def _joined(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """A sum of pieces that tile a dimension is their concatenation. Each element is one piece's
    plus zeros, so only -0.0 changes (to 0.0), and adding 0.0 to the pieces does the same."""
    if args[2] != 1:
        return None
    parts = _pieces(args[0], args[1])
    if parts is None or len({(p[0], p[1]) for p in parts}) != 1:
        return None
    parts.sort(key=lambda p: p[2])
    sizes, dim = parts[0][:2]
    ends = [0, *(p[3] for p in parts)]
    if ends[-1] != sizes[dim] or any(p[2] != e for p, e in zip(parts, ends, strict=False)):
        return None
    if len({p[4].dtype for p in parts}) != 1:
        return None
    whole = [b.call(op, (p[4], 0.0 if p[4].dtype.is_floating_point else 0, 1)) for p in parts]
    return _get("cat"), (tuple(whole), dim)


def _certain(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """A check of indices that cannot fail; of indices that are repeated, one of the indices."""
    index, size, wrap = args
    low, high = extent(index)
    if isinstance(size, int) and (-size if wrap else 0) <= low and high < size:
        return _get("full"), ((), high, dt.int64, index.type.device)
    node = _made_by(index, "expand")
    if node is not None and all(isinstance(n, int) and n > 0 for n in index.shape):
        return op, (node.args[0], size, wrap)
    return None


RULES: dict[str, tuple[Callable[..., Any], ...]] = {
    "clone": (_input,), "detach": (_input,), "alias": (_input,), "detach_copy": (_input,),
    "alias_copy": (_input,),
    "view_copy": (_plain("view"),), "permute_copy": (_plain("permute"),),
    "expand_copy": (_plain("expand"),), "slice_copy": (_plain("slice"),),
    "select_copy": (_plain("select"),), "diagonal_copy": (_plain("diagonal"),),
    "unfold_copy": (_plain("unfold"),), "as_strided_copy": (_plain("as_strided"),),
    "view": (_view,), "permute": (_permute,), "expand": (_expand,),
    "to_dtype": (_to_dtype,), "check_index": (_certain,),
    "mul": (_neutral(1, (1,)), _neutral(0, (1,))), "div": (_neutral(1, (1,)),),
    "sub": (_neutral(1, (0,)),), "add": (_neutral(1, (-0.0,)), _integer_zero, _joined),
    "neg": (_twice,), "where": (_where,), "matmul": (_single_batch,),
}

# Ops whose numpy result is the one that every back end gives.
EXACT = frozenset((
    "add", "sub", "mul", "div", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "maximum",
    "minimum", "to_dtype", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_not", "where", "floor_divide", "remainder"))


def _fold(b: Builder, op: Op, args: tuple[Any, ...]) -> Any:
    """An op over constants of one value is such a constant."""
    if op.name not in EXACT:
        return None
    numbers = []
    for a in args:
        node = _made_by(a, "full")
        if node is not None and isinstance(node.args[1], (bool, int, float)):
            made = node.result
            item = np.asarray(execute.number(node.args[1], made.dtype))
            numbers.append(item.reshape((1,) * made.ndim))
        elif isinstance(a, (Value, sym.Sym)):
            return None
        else:
            numbers.append(a)
    if not any(isinstance(a, np.ndarray) for a in numbers):
        return None
    spec = op.rule(*args)
    try:
        value = execute.run(op, tuple(numbers))
    except RuntimeError:  # a division by zero stays where the user wrote it
        return None
    only = value.reshape(()).item()
    return _get("full"), (tuple(spec.shape), only, spec.dtype, spec.device)

"""Expands composite ops until only ops remain that lowering knows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from lehr.base import dtype as dt
from lehr.compiler.graph.ir import (
    Builder,
    Graph,
    ScalarType,
    TensorType,
    Value,
    copy_into,
)
from lehr.ops import expand
from lehr.ops.registry import Op


def _streams(args: tuple[Any, ...]) -> bool:
    """Whether an attention without dropout, in single or half precision, is computed by tiles."""
    types = [a.type for a in args if isinstance(a, Value)]
    tensors = [t for t in types if isinstance(t, TensorType)]
    *_, p, seed, offset = args
    floats = [t for t in tensors if t.dtype is not dt.bool_]
    rows = [t.type.shape[-1] for t in args[:3]]  # of query, key and value, or gradient
    return (p == 0 and not isinstance(seed, Value) and not isinstance(offset, Value)
            and all(t.dtype.wide is dt.float32 for t in floats)
            and all(isinstance(n, int) and n > 0 for t in tensors for n in t.shape)
            and all(len(t.shape) <= 6 for t in floats)
            and (_half(args) or all(n % 16 == 0 for n in rows)))


def _half(args: tuple[Any, ...]) -> bool:
    """Whether the arguments are those of an attention of bfloat16 matrices, rows of any size."""
    return len(args) == 9 and all(t.type.dtype is dt.bfloat16 for t in args[:3])


# Which calls of composites that a back end may take whole are taken so; all, where none is said.
TAKEN: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "attention": _streams, "attention_grad": _streams}


class Undecomposed(TypeError):
    """An op that is neither lowerable nor composite."""


def lowerable(op: Op) -> bool:
    """Whether lowering takes the op as it stands."""
    return bool(op.host or op.lower or op.scatter or op.monoid or op.c
                or op.kind in ("extern", "comm") or op.name in ("read", "write", "number"))


class Expander(Builder):
    """A builder whose calls of composite ops add the calls that they are made of, and those of
    other ops, where data may stop them, the checks for that."""

    def __init__(self, name: str, whole: Collection[str] = (), checks: bool = True) -> None:
        super().__init__(name)
        self.whole, self.checks = whole, checks

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        if op.name in ARITHMETIC and _numbers(args):
            return self.arithmetic(op, args)
        kept = op.name in self.whole and (op.name not in TAKEN or TAKEN[op.name](args))
        if op.decomp is not None and not kept:
            made = expand.decompose(self.F, op, args, op.rule(*args))
            if made is not NotImplemented:
                named = op.signature.named
                return named(*made) if named and type(made) is tuple else made
        if not lowerable(op) and not kept:
            where = f" ({self.location})" if self.location else ""
            raise Undecomposed(f"op {op.name}{where} has no lowering and no decomposition")
        if op.checks is not None and self.checks:
            op.checks(self.F, *args)
        return super().call(op, args)

    def arithmetic(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Arithmetic on numbers alone, as Python would do it: in double precision or int64. `1 -
        beta` in single precision would be off by what cancels."""
        wide = [self._tensor(a) if isinstance(a, Value) else a for a in args]
        if op.rule(*wide).dtype is dt.float32:      # a quotient of integers
            wide = [self.F.to_dtype(a, dt.float64) if isinstance(a, Value) else a for a in wide]
        return self.F.number(self.call(op, tuple(wide)))

    def _tensor(self, number: Value) -> Any:
        """A number as a 0-d tensor of its own precision."""
        assert isinstance(number.type, ScalarType)
        if number.node is not None and number.node.op.name == "number":
            made = number.node.args[0]
            return made if made.dtype is number.type.dtype else self.F.to_dtype(
                made, number.type.dtype)
        return self.F.full((), number, dtype=number.type.dtype)


# The operators of Python numbers.
ARITHMETIC = frozenset(("add", "sub", "mul", "div", "pow", "neg", "floor_divide", "remainder"))


def _numbers(args: tuple[Any, ...]) -> bool:
    """Whether there are run-time numbers among operands, and no tensors."""
    kinds = {type(a.type) for a in args if isinstance(a, Value)}
    return kinds == {ScalarType}


def decompose(graph: Graph, whole: Collection[str] = ()) -> Graph:
    """The graph without composites, save those named in `whole`, as a back end takes them.

    A composite's results keep their dtypes; half precision is computed in float32 inside it.
    Undecomposed names an op that nothing can be done about, and the user's line.
    """
    # What only has gradients is half of a graph that has been seen to: its checks are forward's.
    checks = any(graph.results[g] for g in ("outputs", "saved", "writebacks"))
    builder = Expander(graph.name, whole, checks or not graph.results["grads"])
    builder.symbols = list(graph.symbols)
    known: dict[Value, Any] = {p: builder.param(p.name, p.type) for p in graph.params}
    copy_into(builder, graph, known, lambda b, node, args: b.call(node.op, args))
    return builder.finish({g: [known[v] for v in vs] for g, vs in graph.results.items()},
                          [known[t] for t in graph.targets])

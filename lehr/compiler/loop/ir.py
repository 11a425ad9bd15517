"""The loop IR: what a program does to memory, element by element.

A `Program` is a list of steps over buffers. A step is a `Kernel` (loops we generate), an `Extern` (a library
call or template) or a `HostCall` (an op's eager kernel, run between two foreign calls). The element values a
kernel stores are interned expressions (`Expr`): data, never closures, so dependencies, costs and text are read
off them. Index expressions are `Sym`s over axis variables; an index that is data (gather, scatter) is an
ordinary variable bound to an integer element by a `Bind`.

Semantics. A kernel runs its stores for every point of its outer `axes`, in order: for one outer point the
first store runs over its own inner axes, then the second, and so on. A load sees what earlier stores *of the
same outer point* wrote; loads of elements that other outer points write are illegal (the verifier checks).
So a softmax row kernel is three expressions over one outer axis, and a store followed by loads of the same row
is how a row is staged. A `Reduce` owns its axes; its value does not depend on them.

Floating point: every `Cast` happens; `Alu` on float16 and bfloat16 computes in float32 and rounds its result
once, integers wrap; no multiply-add contraction. The order of additions inside one `Reduce` is free (SIMD lanes
and splits), with float32 sums accumulated over bounded partial sums; it belongs to the op and its extent, not to
what was fused around it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.dtype import DType
from lehr.compiler.graph.ir import Location
from lehr.ops.registry import Op


class Axis(NamedTuple):
    """One loop. `var` is a `sym.Var` with interval [0, extent - 1]."""

    var: Any
    extent: Any  # int | Sym
    role: str = "parallel"  # parallel | reduce | scan | vector | unrolled


class Buffer:
    """Memory of `shape` elements with `strides` (elements; row-major unless the boundary says otherwise).

    role: "param"  an input, never written
          "ref"    a storage that outlives the program, read and written
          "scalar" a run-time number, one element (float64, int64 or bool)
          "const"  constant data kept with the program
          "arena"  a temporary; its place is the memory plan's
          "output" a result, allocated fresh by the caller in the layout `strides`
    `offset` (elements) is where element 0 lies in the caller's memory; only params and refs have one.
    """

    __slots__ = ("data", "dtype", "name", "role", "shape", "strides")

    def __init__(self, name: str, dtype: DType, shape: tuple[Any, ...], strides: tuple[Any, ...],
                 role: str, data: Any = None) -> None:
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides
        self.role, self.data = role, data

    def __repr__(self) -> str:
        return self.name


class Expr:
    """An element value. Interned: structural equality is identity. `fields` by kind:

    Const   (value,)                    a number of `dtype`
    Index   (sym,)                      the value of an index expression
    Load    (buffer, idx, mask, other)  idx: tuple of int | Sym in logical coordinates; where the bool Expr
                                        `mask` (or None) is false the value is `other` and memory is not touched
    Alu     (op, *args)                 a primitive op of the registry; args are already of its computing dtype
    Cast    (arg,)                      conversion to `dtype`, as `ops.execute.cast`
    Select  (cond, a, b)                both sides may be evaluated; loads that may not run carry a mask
    Reduce  (monoid, axes, args, part)  `monoid` by name, over `axes`; `part` picks a component of its result
    Scan    (monoid, axis, args, part)  inclusive running value along the outer or inner axis `axis`
    Random  (key, counter, index)       32 random bits (dtype int64, 0 <= v < 2**32) of Philox4x32-10: `key`
                                        and `counter` int64 Exprs, `index` an int | Sym, the element's number
    """

    __slots__ = ("__weakref__", "dtype", "fields", "kind")
    kind: str
    dtype: DType
    fields: tuple[Any, ...]

    def __new__(cls, kind: str, dtype: DType, *fields: Any) -> Expr:
        # -0.0 == 0.0 and 1 == True as dict keys, so constants are told apart by their text.
        key = (kind, dtype, repr(fields[0]) if kind == "Const" else fields)
        found = _EXPRS.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kind, found.dtype, found.fields = kind, dtype, fields
            _EXPRS[key] = found
        return found

    def __repr__(self) -> str:
        from lehr.compiler.loop.text import print_expr
        return print_expr(self)

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions directly inside this one."""
        return tuple(_children(self.fields))


_EXPRS: weakref.WeakValueDictionary[Any, Expr] = weakref.WeakValueDictionary()


def _children(fields: tuple[Any, ...]) -> Iterator[Expr]:
    for f in fields:
        if isinstance(f, Expr):
            yield f
        elif isinstance(f, tuple) and not isinstance(f, Axis):
            yield from _children(f)


class Bind(NamedTuple):
    """An index variable whose value is data: `var` = `value`, plus `bound` where negative and `wrap`.

    A value outside [0, bound) stops the program with IndexError (the whole call, before anything that the
    caller can see is replaced where possible). `mask`: not checked where this is false.
    """

    var: Any
    value: Expr
    bound: Any
    wrap: bool = True
    mask: Expr | None = None


class Store(NamedTuple):
    """`buffer[idx] (mode)= value` for every point of the kernel's axes and of the own inner `axes`."""

    buffer: Buffer
    idx: tuple[Any, ...]
    value: Expr
    axes: tuple[Axis, ...] = ()
    mode: str = "set"  # set | add | mul | max | min: duplicates combine, in no promised order but exactly
    mask: Expr | None = None


class Kernel(NamedTuple):
    """Loops over `axes` (all parallel: no two outer points write the same element, unless a store's mode
    combines), running `stores` in order at each point."""

    name: str
    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]
    binds: tuple[Bind, ...] = ()
    locations: tuple[Location, ...] = ()


class Operand(NamedTuple):
    """A strided rectangle of a buffer: element (i, j, ...) lies `offset + i*strides[0] + ...` elements from the
    start of the buffer's memory."""

    buffer: Buffer
    offset: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


class Extern(NamedTuple):
    """A library call or template. `op` names it ("bmm", "convolution", ...), `attrs` are its other bound
    arguments. `epilogue`: stores over the output's elements that replace the plain store; in them a load of
    `output.buffer` is the freshly computed element. `prologue[i]`: an expression computing input i's element
    from the axes, instead of a plain load."""

    name: str
    op: Op
    inputs: tuple[Operand, ...]
    output: Operand
    attrs: tuple[Any, ...] = ()
    prologue: tuple[Any, ...] = ()
    epilogue: tuple[Store, ...] = ()
    locations: tuple[Location, ...] = ()


class HostCall(NamedTuple):
    """`outputs = op.eager(*args)`; `args` are the bound arguments with `Operand`s in the place of tensors."""

    name: str
    op: Op
    args: tuple[Any, ...]
    outputs: tuple[Buffer, ...]
    locations: tuple[Location, ...] = ()


Step = Kernel | Extern | HostCall


class Program(NamedTuple):
    """A lowered graph.

    params   one Buffer per graph parameter, in order ("param", "ref" or "scalar")
    results  what the call returns, in the order of `Graph.returned`: an "output" Buffer, or an `Operand` on a
             param (a result that is a param's own memory never occurs: results are fresh)
    symbols  size variables; their values are passed beside the pointers
    """

    name: str
    params: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    results: tuple[Buffer, ...]
    symbols: tuple[Any, ...] = ()


class Monoid(NamedTuple):
    """A reduction as data. State components have the dtypes of the Reduce's args unless `state` says otherwise.

    arity     number of argument expressions
    identity  per component: a number, or "lowest" / "highest" of the dtype
    combine   per component: an expression in Python syntax over a0.. (left state), b0.. (right state or mapped
              argument), with the primitives' names as functions: the one spelling that the interpreter, C and
              Triton emitters translate
    parts     how many components the result has
    ordered   the order of combination matters (argmax: first index wins)
    """

    arity: int
    identity: tuple[Any, ...]
    combine: tuple[str, ...]
    parts: int = 1
    ordered: bool = False


# NaN propagates through max and min (an ordered comparison with NaN is false, hence the negations).
MONOIDS: dict[str, Monoid] = {
    "sum": Monoid(1, (0,), ("a0 + b0",)),
    "prod": Monoid(1, (1,), ("a0 * b0",)),
    "max": Monoid(1, ("lowest",), ("a0 if (a0 > b0 or a0 != a0) else b0",)),
    "min": Monoid(1, ("highest",), ("a0 if (a0 < b0 or a0 != a0) else b0",)),
    "any": Monoid(1, (0,), ("a0 | b0",)),
    "all": Monoid(1, (1,), ("a0 & b0",)),
    # args: value, index (int64). A NaN beats every number; the lower index wins ties.
    "argmax": Monoid(2, ("lowest", "highest"), (
        "a0 if (a0 > b0 or a0 != a0 or (a0 == b0 and a1 < b1)) and not (b0 != b0 and (a0 == a0 or b1 < a1))"
        " else b0",
        "a1 if (a0 > b0 or a0 != a0 or (a0 == b0 and a1 < b1)) and not (b0 != b0 and (a0 == a0 or b1 < a1))"
        " else b1"), 2),
    "argmin": Monoid(2, ("highest", "highest"), (
        "a0 if (a0 < b0 or a0 != a0 or (a0 == b0 and a1 < b1)) and not (b0 != b0 and (a0 == a0 or b1 < a1))"
        " else b0",
        "a1 if (a0 < b0 or a0 != a0 or (a0 == b0 and a1 < b1)) and not (b0 != b0 and (a0 == a0 or b1 < a1))"
        " else b1"), 2),
}


def axis(name: str, extent: Any, role: str = "parallel") -> Axis:
    """An axis with a variable bounded by its extent."""
    high = extent - 1 if isinstance(extent, int) else None
    return Axis(sym.Var(name, 0, high), extent, role)

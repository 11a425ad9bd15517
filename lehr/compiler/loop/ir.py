"""The loop IR: what a program does to memory, element by element.

A `Program` is a list of steps over buffers. A step is a `Kernel` (loops we generate), a `Group` of
kernels that do not depend on each other, an `Extern` (a library call or template) or a `HostCall`
(an op's eager kernel, run between two foreign calls). The element values a kernel stores are
interned expressions (`Expr`): data, never closures, so dependencies, costs and text are read off
them. Index expressions are `Sym`s over axis variables; an index that is data (gather, scatter) is
an ordinary variable bound to an integer element by a `Bind`.

Semantics. A kernel runs its stores for every point of its outer `axes`, in order: for one outer
point the first store runs over its own inner axes, then the second, and so on. A load sees what
earlier stores *of the same outer point* wrote; loads of elements that other outer points write are
illegal (the verifier checks). So a softmax row kernel is a few expressions over one outer axis, and
a store into a "local" buffer followed by loads of it is how a row is staged. A store whose value
loads the very element it replaces reads the old one. A `Reduce` owns its axes; its value does not
depend on them.

Floating point: every `Cast` happens; `Alu` on float16 and bfloat16 does not occur (lowering casts
to float32 and rounds the op's result once), integers wrap; no multiply-add contraction. The order
of additions inside one `Reduce` is free (SIMD lanes and splits), with float32 sums accumulated over
bounded partial sums; it belongs to the op and its extent, not to what was fused around it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from lehr.base import sym
from lehr.base.dtype import FLOAT, DType, bool_
from lehr.compiler.graph.ir import Location
from lehr.ops.registry import Op


class Axis(NamedTuple):
    """One loop. `var` is a `sym.Var` with interval [0, extent - 1]."""

    var: Any
    extent: Any  # int | Sym
    role: str = "parallel"  # parallel | reduce | scan | vector | unrolled


class Buffer:
    """Memory of `shape` elements with `strides` (elements; row-major unless the boundary says
    otherwise).

    role: "param"  an input, never written
          "ref"    a storage that outlives the program, read and written
          "scalar" a run-time number, one element (float64, int64 or bool)
          "const"  constant data kept with the program
          "arena"  a temporary; its place is the memory plan's
          "local"  a temporary of one outer point of one kernel: a staged row, or one element. Every
                   outer point has its own, so nothing of it is seen by another, and an emitter
                   keeps it in registers, on the stack, or in one scratch row a thread
          "output" a result, allocated fresh by the caller in the layout `strides`
    Pointers are to element (0, ..., 0).
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
    Index   (sym,)                      the value of an index expression (dtype int64)
    Load    (buffer, idx, mask, other)  idx: tuple of int | Sym in logical coordinates; where the
                                        bool Expr `mask` (or None) is false, the value is the Expr
                                        `other` (None: zero) and memory is not touched
    Alu     (op, *args)                 a primitive op of the registry; Expr args are already of its
                                        computing dtype, others are constants (None, str, bool, int)
    Cast    (arg,)                      conversion to `dtype`, as `ops.execute.cast`
    Select  (cond, a, b)                both sides may be evaluated; loads that may not run carry a
                                        mask
    Reduce  (monoid, axes, args, part)  `monoid` by name, over `axes` (a tuple); `part` picks a
                                        component of its result
    Scan    (monoid, axis, args, part)  inclusive running value along `axis`, an outer or inner axis
                                        (role "scan") of the store that this value is stored by
    Random  (key, counter, index)       word number `index` (int | Sym) of the random op (key,
                                        counter), int64 Exprs, as in `lehr.base.philox`; int64
    """

    __slots__ = ("__weakref__", "_free", "children", "dtype", "fields", "kind")
    kind: str
    dtype: DType
    fields: tuple[Any, ...]
    children: tuple[Expr, ...]  # the expressions directly inside this one
    _free: frozenset[Any] | None

    def __new__(cls, kind: str, dtype: DType, *fields: Any) -> Expr:
        # -0.0 == 0.0 and 1 == True as dict keys, so constants are told apart by their text.
        key = (kind, dtype, repr(fields[0]) if kind == "Const" else fields)
        found = _EXPRS.get(key)
        if found is None:
            found = object.__new__(cls)
            found.kind, found.dtype, found.fields, found._free = kind, dtype, fields, None
            found.children = tuple(_children(fields))
            _EXPRS[key] = found
        return found

    def __repr__(self) -> str:
        from lehr.compiler.loop.text import print_expr
        return print_expr(self)

    @property
    def free(self) -> frozenset[Any]:
        """The axis and bind variables the value depends on (a Reduce's own axes excluded)."""
        found = self._free
        if found is None:
            found = self._free = _free(self)
        return found


_EXPRS: weakref.WeakValueDictionary[Any, Expr] = weakref.WeakValueDictionary()


def _children(fields: tuple[Any, ...]) -> Iterator[Expr]:
    for f in fields:
        if isinstance(f, Expr):
            yield f
        elif isinstance(f, tuple) and not isinstance(f, Axis):
            yield from _children(f)


def used(e: Expr) -> set[Any]:
    """The variables in the indices of an expression itself, without its children's."""
    places = (e.fields[1] if e.kind == "Load" else
              e.fields[-1:] if e.kind in ("Index", "Random") else ())
    return {v for i in places for v in sym.free(i)}


def _free(e: Expr) -> frozenset[Any]:
    found = used(e)
    for child in e.children:
        found |= child.free
    if e.kind == "Reduce":
        for a in e.fields[1]:
            found.discard(a.var)
            found |= sym.free(a.extent)
    elif e.kind == "Scan":
        found.add(e.fields[1].var)
    return frozenset(found)


class Bind(NamedTuple):
    """An index variable whose value is data: `var` = `value`, plus `bound` where negative and
    `wrap`.

    A value outside [0, bound) stops the program with IndexError (the whole call, before anything
    that the caller can see is replaced where possible). `mask`: not checked where this is false.
    """

    var: Any
    value: Expr
    bound: Any
    wrap: bool = True
    mask: Expr | None = None


def last(bound: Any) -> Any:
    """The greatest value that an index below `bound` is said to have. Below 0 there is none: the
    check stops the program, and is not to be left out with an index that seems to be constant."""
    return 1 if bound == 0 else bound - 1


class Store(NamedTuple):
    """`buffer[idx] (mode)= value` for every point of the kernel's axes and of the own inner `axes`.

    mode: "set", or "add" "mul" "max" "min": duplicates combine, in no promised order but exactly.
    """

    buffer: Buffer
    idx: tuple[Any, ...]
    value: Expr
    axes: tuple[Axis, ...] = ()
    mode: str = "set"
    mask: Expr | None = None


class Kernel(NamedTuple):
    """Loops over `axes` (all parallel: no two outer points write the same element, unless a store's
    mode combines), running `stores` in order at each point."""

    name: str
    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]
    binds: tuple[Bind, ...] = ()
    locations: tuple[Location, ...] = ()


class Group(NamedTuple):
    """Kernels of which none reads or writes what another writes, in any order or at once: one
    parallel region on the CPU, one launch where a back end can. So an optimizer's many small
    updates cost one dispatch."""

    name: str
    kernels: tuple[Kernel, ...]


class Operand(NamedTuple):
    """A strided rectangle of a buffer: element (i, j, ...) lies `offset + i*strides[0] + ...`
    elements from element (0, ..., 0) of the buffer. `rounded`: its elements are cast to this dtype
    as they are read."""

    buffer: Buffer
    offset: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    rounded: DType | None = None

    @property
    def dtype(self) -> DType:
        """Of the elements as they are read."""
        return self.rounded or self.buffer.dtype


class Input(NamedTuple):
    """In `Extern.attrs`: the place of tensor operand number `slot`."""

    slot: int


class Extern(NamedTuple):
    """A library call or template. `op` ("matmul", "convolution", ...) says what it computes.

    attrs     the bound arguments in signature order, each tensor replaced by an `Input`
    output    a whole buffer, or a rectangle of one
    others    where further results of the op go
    epilogue  stores over `axes` (one axis a dimension of the output) that run after the plain
              store. In them a load of `output.buffer` is of the freshly computed element at the
              axes' index, and a store into it replaces that very element. If the buffer is used
              nowhere else and no store goes into it, it need not exist in memory.
    """

    name: str
    op: Op
    inputs: tuple[Operand, ...]
    output: Operand
    attrs: tuple[Any, ...] = ()
    epilogue: tuple[Store, ...] = ()
    axes: tuple[Axis, ...] = ()
    binds: tuple[Bind, ...] = ()
    locations: tuple[Location, ...] = ()
    others: tuple[Operand, ...] = ()


class HostCall(NamedTuple):
    """`outputs = op.eager(*args)`; `args` are the bound arguments with `Operand`s in the place of
    tensors and one-element Buffers in the place of run-time numbers."""

    name: str
    op: Op
    args: tuple[Any, ...]
    outputs: tuple[Buffer, ...]
    locations: tuple[Location, ...] = ()


Step = Kernel | Group | Extern | HostCall


class Program(NamedTuple):
    """A lowered graph.

    params   one Buffer per graph parameter, in order ("param", "ref" or "scalar")
    buffers  all others
    results  what the call returns, in the order of `Graph.returned` without the write-backs: one
             "output" Buffer each (a result that is a param's own memory never occurs: results are
             fresh)
    symbols  size variables; their values are passed beside the pointers
    """

    name: str
    params: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    results: tuple[Buffer, ...]
    symbols: tuple[Any, ...] = ()


class Monoid(NamedTuple):
    """A reduction as data. State components have the dtypes of the Reduce's args.

    arity     number of argument expressions
    identity  per component: a number, or "lowest" / "highest" of the dtype
    combine   per component: an expression in Python syntax over a0.. (left state), b0.. (right
              state or mapped argument), with the primitives' names as functions: the one spelling
              that the interpreter, C and Triton emitters translate
    parts     how many components the result has
    ordered   the order of combination matters (argmax: first index wins)
    """

    arity: int
    identity: tuple[Any, ...]
    combine: tuple[str, ...]
    parts: int = 1
    ordered: bool = False


def _pick(better: str, identity: str) -> Monoid:
    wins = (f"(a0 {better} b0 or a0 != a0 or (a0 == b0 and a1 < b1))"
            " and not (b0 != b0 and (a0 == a0 or b1 < a1))")
    return Monoid(2, (identity, "highest"), (f"a0 if {wins} else b0", f"a1 if {wins} else b1"), 2)


# NaN propagates through max and min (an ordered comparison with NaN is false, hence the negations).
MONOIDS: dict[str, Monoid] = {
    "sum": Monoid(1, (0,), ("a0 + b0",)),
    "prod": Monoid(1, (1,), ("a0 * b0",)),
    "max": Monoid(1, ("lowest",), ("a0 if (a0 > b0 or a0 != a0) else b0",)),
    "min": Monoid(1, ("highest",), ("a0 if (a0 < b0 or a0 != a0) else b0",)),
    "any": Monoid(1, (0,), ("a0 | b0",)),
    "all": Monoid(1, (1,), ("a0 & b0",)),
    # args: value, index (int64). A NaN beats every number; the lower index wins ties.
    "argmax": _pick(">", "lowest"),
    "argmin": _pick("<", "highest"),
}


def identity(spelled: Any, dtype: DType) -> Any:
    """A monoid's identity component as a number of `dtype`."""
    if spelled not in ("lowest", "highest"):
        return spelled
    sign = -1 if spelled == "lowest" else 1
    if dtype.category == FLOAT:
        return sign * float("inf")
    if dtype is bool_:
        return sign > 0
    bits = 8 * dtype.itemsize - dtype.signed
    return (1 << bits) - 1 if sign > 0 else -(1 << bits) if dtype.signed else 0


def axis(name: str, extent: Any, role: str = "parallel") -> Axis:
    """An axis with a variable bounded by its extent."""
    return Axis(sym.Var(name, 0, extent - 1), extent, role)

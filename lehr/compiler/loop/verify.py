"""The rules of the loop IR, checked on a whole program.

Among them the two that make generated code safe: every index is proven to lie inside its buffer
(unless masked, or bound to checked data), and no outer point of a kernel touches what another
writes. With symbolic sizes an index that is neither proven nor refuted passes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base import sym
from lehr.base.index import linearize
from lehr.base.proof import prove_le, prove_lt
from lehr.compiler.graph.ir import TensorType
from lehr.compiler.loop import points
from lehr.compiler.loop.ir import (
    MONOIDS,
    Axis,
    Bind,
    Buffer,
    Expr,
    Extern,
    Group,
    HostCall,
    Kernel,
    Operand,
    Program,
    Step,
    Store,
    used,
)
from lehr.compiler.loop.text import print_expr, print_step, values_of, walk

ROLES = ("param", "ref", "scalar", "const", "arena", "local", "output")
WRITABLE = ("ref", "arena", "local", "output")


class LoopError(AssertionError):
    """A program that breaks the rules of its IR: a bug in the stage that made it."""


def verify(program: Program) -> Program:
    """Returns the program; LoopError names the step and the rule."""
    known = {*program.params, *program.buffers}
    written = {b for b in known if 0 in b.shape}  # there is nothing to write
    if len({b.name for b in known}) != len(program.params) + len(program.buffers):
        raise LoopError(f"program {program.name}: buffers share a name or are listed twice")
    for b in known:
        if b.role not in ROLES or len(b.shape) != len(b.strides):
            raise LoopError(f"buffer {b}: role {b.role!r}, shape {b.shape}, strides {b.strides}")
    for step in program.steps:
        try:
            _Check(known, written, frozenset(program.symbols)).step(step)
        except LoopError as error:
            raise LoopError(f"program {program.name}: {error}\n  in {print_step(step)}") from None
    for b in program.results:
        if b.role != "output" or b not in written or program.results.count(b) > 1:
            raise LoopError(f"program {program.name}: result {b} is no output, is not written, or "
                            "stands there twice")
    return program


def touched(step: Step) -> tuple[set[Buffer], set[Buffer]]:
    """(buffers read, buffers written) by a step, local ones included."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    if isinstance(step, Group):
        for k in step.kernels:
            r, w = touched(k)
            reads |= r
            writes |= w
        return reads, writes
    if isinstance(step, HostCall):
        return {o.buffer for o in _operands(step.args)}, set(step.outputs)
    stores = step.stores if isinstance(step, Kernel) else step.epilogue
    if isinstance(step, Extern):
        reads |= {o.buffer for o in step.inputs}
        writes |= {o.buffer for o in (step.output, *step.others)}
    for e in walk(values_of(stores, step.binds)):
        if e.kind == "Load":
            reads.add(e.fields[0])
    for s in stores:
        writes.add(s.buffer)
        if s.mode != "set":
            reads.add(s.buffer)
    return reads, writes


def _operands(args: Any) -> Iterator[Operand]:
    for a in args:
        if isinstance(a, Operand):
            yield a
        elif isinstance(a, Buffer):
            yield Operand(a, 0, a.shape, a.strides)
        elif isinstance(a, tuple):
            yield from _operands(a)


class _Check:
    """One step, given what earlier steps wrote."""

    def __init__(self, known: set[Buffer], written: set[Buffer], symbols: frozenset[Any]) -> None:
        self.known, self.written, self.symbols = known, written, symbols

    def step(self, step: Step) -> None:
        if isinstance(step, Group):
            self.group(step)
            return
        reads, writes = touched(step)
        for b in reads | writes:
            if b not in self.known:
                raise LoopError(f"buffer {b} is not declared")
        for b in writes:
            if b.role not in WRITABLE:
                raise LoopError(f"{b} is a {b.role}: not to be written")
        for b in reads - writes:
            if b.role in ("arena", "output") and b not in self.written:
                raise LoopError(f"{b} is read before it is written")
        if isinstance(step, Kernel):
            self.kernel(step.axes, step.stores, step.binds)
        elif isinstance(step, Extern):
            self.extern(step)
        else:
            for o in _operands(step.args):
                self.operand(o)
        self.written |= writes

    def group(self, group: Group) -> None:
        parts = [touched(k) for k in group.kernels]
        for i, (_, writes) in enumerate(parts):
            for j, (reads, more) in enumerate(parts):
                shared = writes & (reads | more) if i != j else None
                if shared:
                    names = ", ".join(sorted(b.name for b in shared))
                    raise LoopError(f"kernels {group.kernels[i].name} and {group.kernels[j].name} "
                                    f"of one group share {names}")
        for k in group.kernels:
            self.step(k)

    def extern(self, e: Extern) -> None:
        for o in (*e.inputs, e.output, *e.others):
            self.operand(o)
        if {o.buffer for o in (e.output, *e.others)} & {o.buffer for o in e.inputs}:
            raise LoopError("an extern reads its own output")
        if e.epilogue:
            if tuple(a.extent for a in e.axes) != tuple(e.output.shape):
                raise LoopError("an epilogue's axes must be the output's dimensions")
            self.kernel(e.axes, e.epilogue, e.binds, fresh=e.output.buffer)
            self.own_element(e)

    def own_element(self, e: Extern) -> None:
        """An epilogue touches the product only at its axes' own element."""
        o = e.output
        here = o.offset
        for a, step in zip(e.axes, o.strides, strict=True):
            single = isinstance(a.extent, int) and a.extent == 1
            here = here if single else here + a.var * step
        touches = [x.fields[1] for x in walk(values_of(e.epilogue, e.binds))
                   if x.kind == "Load" and x.fields[0] is o.buffer]
        touches += [s.idx for s in e.epilogue if s.buffer is o.buffer]
        for idx in touches:
            if (linearize(idx, o.buffer.shape, o.buffer.strides) if idx else 0) != here:
                raise LoopError(f"an epilogue touches another element of {o.buffer} than its own")

    def operand(self, o: Operand) -> None:
        if len(o.shape) != len(o.strides):
            raise LoopError(f"operand on {o.buffer}: shape {o.shape}, strides {o.strides}")
        if any(n == 0 for n in o.shape):
            return
        last = o.offset + sum(((n - 1) * s for n, s in zip(o.shape, o.strides, strict=True)), 0)
        end = sum(((n - 1) * s for n, s in zip(o.buffer.shape, o.buffer.strides, strict=True)), 0)
        if prove_le(0, o.offset) is False or self.refuted(last, end + 1):
            raise LoopError(f"operand on {o.buffer} reaches element {last} of {end + 1}")

    def refuted(self, i: Any, n: Any) -> bool:
        """Whether `0 <= i < n` is wrong, or unknown though no size is symbolic."""
        if isinstance(i, int) and isinstance(n, int):
            return not 0 <= i < n
        answers = prove_le(0, i), prove_lt(i, n)
        if answers == (True, True):
            return False
        if False not in answers:
            least, size = points.extremes(i) if isinstance(n, int) else None, n
            if least is not None:
                return not 0 <= least[0] <= least[1] < size
        symbolic = self.symbols & (sym.free(i) | sym.free(n) | _bounds(i))
        return False in answers or not symbolic

    def kernel(self, axes: Sequence[Axis], stores: Sequence[Store], binds: Sequence[Bind],
               fresh: Buffer | None = None) -> None:
        bound = {b.var: b for b in binds}
        outer = frozenset(a.var for a in axes)
        if len(outer) != len(axes):
            raise LoopError("two outer axes share a variable")
        if not stores:
            raise LoopError("a kernel without stores")
        for b in binds:
            self.bind(b, bound)
        own = {s.buffer for s in stores}
        seen: set[Buffer] = {fresh} if fresh is not None else set()
        checked: set[tuple[Expr, frozenset[Any]]] = set()
        for s in stores:
            scope = outer | {a.var for a in s.axes}
            if len(scope) != len(axes) + len(s.axes):
                raise LoopError(f"the store into {s.buffer} reuses an axis")
            self.store(s, scope, bound, outer)
            roots = (s.value,) if s.mask is None else (s.value, s.mask)
            for e in self.scoped(roots, scope, bound, checked):
                self.value(e, bound)
                if e.kind == "Load" and e.fields[0].role in ("arena", "output", "local"):
                    b = e.fields[0]
                    if b in own and b not in seen and b not in self.written:
                        raise LoopError(f"{b} is loaded before it is stored")
            seen.add(s.buffer)
        _rows(stores, bound)

    def bind(self, b: Bind, bound: dict[Any, Bind]) -> None:
        if b.value.dtype.category > dt.INT:
            raise LoopError(f"index {b.var} is bound to a {b.value.dtype.name}")
        none = b.bound == 0     # every value stops the program
        if sym.interval(b.var)[0] != 0 or not none and prove_lt(b.var, b.bound) is not True:
            raise LoopError(f"index {b.var} may reach its bound")
        for e in walk((b.value,) if b.mask is None else (b.value, b.mask)):
            self.value(e, bound)

    def scoped(self, roots: Iterable[Expr], scope: frozenset[Any], bound: dict[Any, Bind],
               checked: set[tuple[Expr, frozenset[Any]]]) -> Iterator[Expr]:
        """Every expression once per scope; raises where a variable is not bound."""
        stack = [(e, scope) for e in roots]
        while stack:
            e, inside = stack.pop()
            if (e, inside) in checked:
                continue
            checked.add((e, inside))
            loose = [v for v in e.free - inside if v not in bound and v not in self.symbols]
            if loose:
                raise LoopError(f"{loose[0]} is not bound in {print_expr(e)}")
            yield e
            if e.kind == "Reduce":
                own = frozenset(a.var for a in e.fields[1])
                if own & inside or len(own) != len(e.fields[1]):
                    raise LoopError(f"a reduction reuses an axis in scope: {print_expr(e)}")
                inside = inside | own
            elif e.kind == "Scan" and e.fields[1].var not in inside:
                raise LoopError(f"a scan along an axis that no loop has: {print_expr(e)}")
            for var in used(e) - inside:    # what stands further in may be in the scope of more
                b = bound.get(var)
                if b is not None:
                    stack += [(v, inside) for v in ((b.value,) if b.mask is None else
                                                    (b.value, b.mask))]
            stack += [(c, inside) for c in e.children]

    def store(self, s: Store, scope: frozenset[Any], bound: dict[Any, Bind],
              outer: frozenset[Any]) -> None:
        if s.value.dtype is not s.buffer.dtype:
            raise LoopError(f"a {s.value.dtype.name} stored into {s.buffer}, a "
                            f"{s.buffer.dtype.name}")
        if s.mode not in ("set", "add", "mul", "max", "min"):
            raise LoopError(f"no store mode {s.mode!r}")
        if s.mask is not None and s.mask.dtype is not dt.bool_:
            raise LoopError("a mask must be bool")
        loose = [v for i in s.idx for v in sym.free(i) - scope - self.symbols if v not in bound]
        if loose:
            raise LoopError(f"{loose[0]} is not bound in the index of {s.buffer}")
        self.inside(s.buffer, s.idx, s.mask is not None)
        data = any(v in bound for i in s.idx for v in sym.free(i))
        if s.mode == "set" and not data:
            axes = scope - outer if s.buffer.role == "local" else scope
            answer = injective(s.buffer, s.idx, axes) if outer else True
            if answer is False or (answer is None and not self.open(s)):
                raise LoopError(f"the store into {s.buffer} may write an element twice")
        elif s.buffer.role == "local" and s.mode != "set":
            raise LoopError(f"a combining store into the local {s.buffer}")

    def open(self, s: Store) -> bool:
        """Whether sizes known only at run time stand in the way of a proof."""
        free = frozenset().union(*map(sym.free, (*s.idx, *s.buffer.shape)))
        return bool(self.symbols & (free | frozenset().union(*map(_bounds, s.idx))))

    def inside(self, b: Buffer, idx: Sequence[Any], masked: bool) -> None:
        if len(idx) != len(b.shape):
            raise LoopError(f"an index of {len(idx)} into {b}, which has {len(b.shape)} dimensions")
        if masked:
            return
        for d, (i, n) in enumerate(zip(idx, b.shape, strict=True)):
            if self.refuted(i, n) and not _empty(b):
                raise LoopError(f"index {i} of dimension {d} of {b} is not proven below {n}")

    def value(self, e: Expr, bound: dict[Any, Bind]) -> None:
        _KINDS[e.kind](self, e, *e.fields)


def _bounds(e: Any) -> frozenset[Any]:
    """The symbols in the ranges of an expression's variables."""
    found: frozenset[Any] = frozenset()
    for v in sym.free(e):
        if v.bound is not None:
            found |= sym.free(v.bound) | _bounds(v.bound)
    return found


def _empty(b: Buffer) -> bool:
    """Whether nothing can be touched (the variable of an axis of extent 0 is widened to one
    point)."""
    return any(n == 0 for n in b.shape)


def injective(b: Buffer, idx: Sequence[Any], axes: frozenset[Any]) -> bool | None:
    """Whether different points of the axes store into different elements of `b`: the flat index is
    a mixed-radix number of the axes that vary. None where that is not known."""
    if _empty(b):
        return True
    vary = {v for v in axes if sym.interval(v) != (0, 0)}
    if any(all(v not in sym.free(i) for i in idx) for v in vary):
        return False
    if vary <= {i for i in idx if isinstance(i, sym.Var)}:
        return True
    cut = next((c for i in idx for c in _cuts(i) if c[0] in vary), None)
    if cut is not None:  # a divided axis is two digits
        v, size = cut
        high = sym.Var(f"{v.name}_high", 0, _last(v) // size)
        low = sym.Var(f"{v.name}_low", 0, size - 1)
        there = tuple(i if isinstance(i, int) else sym.substitute(i, {v: high * size + low})
                      for i in idx)
        return injective(b, there, (axes - {v}) | {high, low}) or None
    split = sym.affine(linearize(idx, b.shape), vary)
    if split is None:
        return None
    rest = dict(split[0])
    reach: Any = 1
    while rest:
        least = [v for v, c in rest.items() if c == reach] or [
            v for v, c in rest.items() if prove_le(reach, c) is True
            and all(prove_le(c, other) is True for other in rest.values())]
        if not least:
            return None
        v = least[0]
        reach = reach + rest.pop(v) * _last(v)
    return True


def _cuts(e: Any) -> Iterator[tuple[Any, Any]]:
    """(variable, divisor) of the quotients and remainders of single variables in an expression."""
    if isinstance(e, sym.FloorDiv | sym.Mod):
        if isinstance(e.num, sym.Var):
            yield e.num, e.den
        else:
            yield from _cuts(e.num)
    elif isinstance(e, sym.Sum):
        for f, _ in e.terms:
            yield from _cuts(f)
    elif isinstance(e, sym.Product):
        for f in e.factors:
            yield from _cuts(f)


def _last(v: Any) -> Any:
    """The largest value of an axis variable."""
    return v.bound if v.bound is not None else sym.interval(v)[1]


def _rows(stores: Sequence[Store], bound: dict[Any, Bind]) -> None:
    """No outer point touches what another writes."""
    by: dict[Buffer, list[tuple[int, Store]]] = {}
    for n, s in enumerate(stores):
        by.setdefault(s.buffer, []).append((n, s))
    for b, several in by.items():
        if b.role == "local":
            continue
        first = several[0][1]
        if any(s.mode != first.mode for _, s in several):
            raise LoopError(f"{b} is stored in several modes")
        for n, s in enumerate(stores):
            for e in walk(_roots(s, bound)):
                if e.kind == "Load" and e.fields[0] is b:
                    _row_load(b, e, n, s, several)
        for _, s in several[1:]:
            if not same_row(first.idx, first.axes, s.idx):
                raise LoopError(f"two stores into {b} may meet at different outer points")


def _roots(s: Store, bound: dict[Any, Bind]) -> list[Expr]:
    """All that is evaluated for a store, its binds too."""
    roots = [s.value] if s.mask is None else [s.value, s.mask]
    waiting = [v for e in roots for v in e.free] + [v for i in s.idx for v in sym.free(i)]
    seen: set[Any] = set()
    while waiting:
        v = waiting.pop()
        b = bound.get(v)
        if b is not None and v not in seen:
            seen.add(v)
            more = [b.value] if b.mask is None else [b.value, b.mask]
            roots += more
            waiting += [f for e in more for f in e.free]
    return roots


def _row_load(b: Buffer, e: Expr, n: int, s: Store,
              several: Sequence[tuple[int, Store]]) -> None:
    for m, w in several:
        if w.mode != "set":
            raise LoopError(f"{b} is loaded in the kernel that combines into it")
        if m == n and e.fields[1] == w.idx:
            continue  # the element is read before it is replaced
        if m == n:
            raise LoopError(f"{print_expr(e)} is loaded while the same store replaces it")
        if not same_row(w.idx, w.axes, e.fields[1]):
            raise LoopError(f"{print_expr(e)} may be written by another outer point")


def same_row(written: Sequence[Any], inner: Sequence[Axis], read: Sequence[Any]) -> bool:
    """Whether every element `read` belongs to the row that the same outer point writes: in each
    dimension both indices are the same expression, or the dimension is the row's own. (The store is
    injective, so equal indices in the other dimensions mean the same outer point.)"""
    own = frozenset(a.var for a in inner)
    for w, r in zip(written, read, strict=True):
        free = sym.free(w)
        same = w is r or (isinstance(w, int) and w == r)
        if not same and (not free or free - own):
            return False
    return True


def _load(c: _Check, e: Expr, b: Buffer, idx: Any, mask: Any, other: Any) -> None:
    if e.dtype is not b.dtype:
        raise LoopError(f"a load of {b} as {e.dtype.name}")
    if mask is not None and mask.dtype is not dt.bool_:
        raise LoopError(f"the mask of {print_expr(e)} is no bool")
    if other is not None and other.dtype is not e.dtype:
        raise LoopError(f"the other value of {print_expr(e)} is a {other.dtype.name}")
    c.inside(b, idx, mask is not None)


class _Number(NamedTuple):
    """A run-time number, as rules see it."""

    scalar_category: int


@functools.cache
def _rule_dtype(op: Any, args: tuple[Any, ...]) -> Any:
    kinds = [a if not isinstance(a, dt.DType) else TensorType((), a) if p.is_tensor
             else _Number(a.category) for p, a in zip(op.params, args, strict=True)]
    specs = op.rule(*kinds)
    return (specs[0] if type(specs) is tuple else specs).dtype


def _alu(c: _Check, e: Expr, op: Any, *args: Any) -> None:
    dtypes = tuple(a.dtype if isinstance(a, Expr) else a for a in args)
    if any(isinstance(d, dt.DType) and d.wide is not d for d in (*dtypes, e.dtype)):
        raise LoopError(f"arithmetic in half precision: {print_expr(e)}")
    if len(args) != len(op.params):
        raise LoopError(f"{op.name} takes {len(op.params)} arguments: {print_expr(e)}")
    told = _rule_dtype(op, dtypes)
    if told is not e.dtype:
        raise LoopError(f"{op.name} of these gives {told.name}: {print_expr(e)}")


def _select(c: _Check, e: Expr, cond: Expr, a: Expr, b: Expr) -> None:
    if cond.dtype is not dt.bool_ or a.dtype is not e.dtype or b.dtype is not e.dtype:
        raise LoopError(f"dtypes of {print_expr(e)}")


def _fold(c: _Check, e: Expr, monoid: str, axes: Any, args: Any, part: int) -> None:
    m = MONOIDS.get(monoid)
    if m is None or len(args) != m.arity or not 0 <= part < m.parts:
        raise LoopError(f"no such reduction: {print_expr(e)}")
    if args[part].dtype is not e.dtype or e.dtype.wide is not e.dtype:
        raise LoopError(f"a reduction of {args[part].dtype.name} as {e.dtype.name}")
    role = "reduce" if e.kind == "Reduce" else "scan"
    for a in axes if e.kind == "Reduce" else (axes,):
        if a.role != role:
            raise LoopError(f"axis {a.var} of a {role} has the role {a.role}")


def _random(c: _Check, e: Expr, key: Expr, counter: Expr, index: Any) -> None:
    if {key.dtype, counter.dtype, e.dtype} != {dt.int64}:
        raise LoopError("random bits are int64 of an int64 key and counter")


def _cast(c: _Check, e: Expr, a: Expr) -> None:
    if a.dtype is e.dtype:
        raise LoopError(f"a conversion to its own dtype: {print_expr(e)}")


def _index(c: _Check, e: Expr, i: Any) -> None:
    if e.dtype is not dt.int64:
        raise LoopError("an index is int64")


def _const(c: _Check, e: Expr, v: Any) -> None:
    wanted = (bool, int, float, complex)[e.dtype.category]
    if type(v) is not wanted:
        raise LoopError(f"a {e.dtype.name} constant holds a {type(v).__name__}")


_KINDS: dict[str, Callable[..., None]] = {
    "Const": _const, "Index": _index, "Load": _load, "Alu": _alu, "Cast": _cast, "Select": _select,
    "Reduce": _fold, "Scan": _fold, "Random": _random,
}

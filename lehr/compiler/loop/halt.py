"""Where data may stop a program: checked indices and divisors, and calls of the host.

An index that was checked before cannot fail again. A check covers a later one where both look at
the same elements of unchanged memory in the same way: the earlier at all of them.

Kernels that are there for their checks alone (a graph's `check_index`) store what nobody reads.
They stay apart from others in `fuse`, and go where other kernels make the same checks anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lehr.base import sym
from lehr.base.dtype import INT
from lehr.base.index import linearize
from lehr.compiler.loop import expr
from lehr.compiler.loop.ir import (
    Bind,
    Buffer,
    Expr,
    Extern,
    Group,
    HostCall,
    Kernel,
    Program,
    Step,
)
from lehr.compiler.loop.text import values_of, walk
from lehr.compiler.loop.verify import injective, touched
from lehr.ops.rule import numel


def halting(steps: Sequence[Step]) -> list[bool]:
    """For each step, whether data may end the program within it, or another process waits for
    it."""
    written: set[Buffer] = set()
    known: set[Any] = set()
    made: set[Any] = set()
    writers = Counter(b for s in steps for b in touched(s)[1])
    found = []
    for step in steps:
        checks = [_check(b) for b in _binds(step)]
        mine = [c for s in _parts(step) for c in _checks(s, writers)]
        fails = not made.issuperset(mine) and (_divides(step) or any(
            key is None or key not in known or not written.isdisjoint(read)
            for key, read, _ in checks))
        found.append(fails or isinstance(step, HostCall))
        known.update(key for key, _, whole in checks if whole)
        made.update(c for c in mine if c is not None)
        written |= touched(step)[1]
    return found


def early(program: Program) -> list[int]:
    """The numbers of the parameters that may have been written when data stops the program."""
    halts = halting(program.steps)
    last = max((n for n, h in enumerate(halts) if h), default=-1)
    written = {b for s in program.steps[:last + 1] for b in touched(s)[1]}
    return [n for n, b in enumerate(program.params) if b in written]


def unread(buffer: Buffer, users: Mapping[Buffer, int]) -> bool:
    """Whether nobody but the step that stores into a buffer has to do with it."""
    return buffer.role == "arena" and users[buffer] == 1


def needed(steps: Sequence[Step], users: Mapping[Buffer, int]) -> list[Step]:
    """The steps without the kernels that only check what others check, too."""
    alone = [s for s in steps if isinstance(s, Kernel) and all(
        unread(x.buffer, users) for x in s.stores)]
    if not alone:
        return list(steps)
    writers = Counter(b for s in steps for b in touched(s)[1])
    made: set[Any] = set()      # what is checked before anything that the caller can see is written
    for s in steps:
        if any(b.role == "ref" for b in touched(s)[1]):
            break
        made.update(_checks(s, writers) if s not in alone else ())
    first: list[Step] = []
    rest: list[Step] = []
    written: set[Buffer] = set()
    for s in steps:
        reads, writes = touched(s)
        if s in alone:
            mine = list(_checks(s, writers))
            if None not in mine and made.issuperset(mine):
                continue
            made.update(mine)
            if all(b.role in PARAMS and b not in written for b in reads):
                first.append(s)
                continue
        written |= writes
        rest.append(s)
    return first + rest


PARAMS = ("param", "ref", "scalar", "const")    # what is there when a program starts


def _checks(step: Step, writers: Mapping[Buffer, int]) -> Iterator[Any]:
    """What a step checks at all its points, in words that do not depend on the names of its axes;
    None for what cannot be said so."""
    if not isinstance(step, Kernel | Extern):
        return
    stores = step.stores if isinstance(step, Kernel) else step.epilogue
    whole = all(s.mask is None for s in stores)
    values = list(walk(values_of(stores, step.binds)))
    axes = [*step.axes, *(a for s in stores for a in s.axes),
            *(a for e in values if e.kind == "Reduce" for a in e.fields[1])]
    extents = {a.var: a.extent for a in axes}
    felt = frozenset().union(*(_felt(e) for e in values), *(
        sym.free(linearize(s.idx, s.buffer.shape, s.buffer.strides)) for s in stores))
    for b in _binds(step):
        said = _said(b.value, extents, writers) if (
            b.mask is None and whole and b.var in felt) else None
        yield said and (*said, b.bound, b.wrap)
    for e in values:
        if expr.divides(e):
            by = e.fields[2]
            while by.kind == "Cast" and by.fields[0].dtype.category <= INT and (
                    by.fields[0].dtype.itemsize <= by.dtype.itemsize):
                by = by.fields[0]
            yield _said(by, extents, writers) if whole else None


def _felt(e: Expr) -> frozenset[Any]:
    """The variables that matter to where something is read, or to its value. Where all elements
    along a dimension lie in one place, an emitter need not evaluate the index."""
    if e.kind == "Load":
        x = e.fields[0]
        return sym.free(linearize(e.fields[1], x.shape, x.strides))
    return sym.free(e.fields[-1]) if e.kind in ("Index", "Random") else frozenset()


def _said(value: Expr, extents: Mapping[Any, Any], writers: Mapping[Buffer, int]) -> Any:
    """A value and its points with the axes numbered as they are met."""
    names: dict[Any, Any] = {}
    points: list[Any] = []
    for e in walk((value,)):
        if e.kind == "Load" and (writers[e.fields[0]] > (e.fields[0].role == "arena")):
            return None     # another part of the program may replace what is looked at
        at = e.fields[1] if e.kind == "Load" else e.fields[:1] if e.kind == "Index" else ()
        for i in at:
            free = sym.free(i)
            if not free <= extents.keys():
                return None
            for v in (v for v in extents if v in free and v not in names):
                one = isinstance(extents[v], int) and extents[v] == 1
                names[v] = 0 if one else sym.Var(f"c{len(points)}", 0, extents[v] - 1)
                points += [] if one else [extents[v]]
    if not value.free <= names.keys():
        return None
    return expr.Rewriter(names, None, {}, _no_bind)(value), tuple(points)


def _no_bind(b: Bind) -> Any:
    raise AssertionError("a value of several binds is not compared")


def _binds(step: Step) -> Iterator[Bind]:
    if isinstance(step, Group):
        for k in step.kernels:
            yield from _binds(k)
    elif isinstance(step, Kernel | Extern):
        yield from (b for b in step.binds if not expr.sure(b))


def _parts(step: Step) -> Sequence[Step]:
    return step.kernels if isinstance(step, Group) else (step,)


def _divides(step: Step) -> bool:
    return any(expr.divides(e) for s in _parts(step) if isinstance(s, Kernel | Extern)
               for e in walk(values_of(s.stores if isinstance(s, Kernel) else s.epilogue, s.binds)))


def _check(b: Bind) -> tuple[Any, set[Buffer], bool]:
    """(what is checked about elements, of which buffers, whether about all of them)."""
    loads = [e for e in walk((b.value,)) if e.kind == "Load"]
    read = {e.fields[0] for e in loads}
    places = {e.fields[1] for e in loads}
    same = len(places) == 1 and len({x.shape for x in read}) == 1
    if b.mask is not None or not same or any(e.fields[2] is not None for e in loads) or any(
            e.kind not in ("Load", "Const", "Alu", "Cast", "Select") for e in walk((b.value,))):
        return None, read, False
    (idx,), x = places, loads[0].fields[0]
    axes = frozenset().union(*map(sym.free, idx))
    last = [sym.interval(v)[1] for v in axes]  # None where a size is symbolic: not known to be all
    points = numel([n + 1 for n in last if n is not None])
    whole = None not in last and points == numel(x.shape) and injective(x, idx, axes) is True
    return (_shape(b.value), b.bound, b.wrap), read, whole


def _shape(e: Expr) -> Any:
    """A value without the place of what it loads."""
    if e.kind == "Load":
        return e.fields[0]
    return e.kind, e.dtype, tuple(_shape(f) if isinstance(f, Expr) else repr(f) if isinstance(
        f, float) else f for f in e.fields)

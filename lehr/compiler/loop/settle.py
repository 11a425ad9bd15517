"""Write-backs: a new value goes straight into its storage where nothing needs the old one any more.

Lowering stores the new value of a Ref into a shadow buffer. Where every load of the storage comes
before that, or is of the very element being replaced, the shadow becomes the storage itself;
elsewhere a copy ends the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lehr.compiler.loop.expr import Rewriter
from lehr.compiler.loop.ir import Bind, Buffer, Expr, Extern, HostCall, Kernel, Operand, Step
from lehr.compiler.loop.text import values_of, walk
from lehr.compiler.loop.verify import touched


def settle(steps: Sequence[Step], shadows: Mapping[Buffer, Buffer],
           copied: Callable[[Buffer, Buffer], Step]) -> tuple[list[Step], set[Buffer]]:
    """(steps, buffers that went). `shadows`: shadow -> storage; `copied(shadow, storage)` makes the
    copying step."""
    if not shadows:
        return list(steps), set()
    reads: dict[Buffer, list[int]] = {}
    writes: dict[Buffer, list[int]] = {}
    for n, step in enumerate(steps):
        r, w = touched(step)
        for b in r:
            reads.setdefault(b, []).append(n)
        for b in w:
            writes.setdefault(b, []).append(n)
    direct = {s: ref for s, ref in shadows.items()
              if _legal(steps, s, ref, reads.get(ref, []), writes.get(s, []))}
    made = [_renamed(step, direct) for step in steps]
    kept = [s for s in made if not (isinstance(s, Kernel) and _idle(s))]
    copies = [copied(s, ref) for s, ref in shadows.items() if s not in direct]
    return kept + copies, set(direct)


def _legal(steps: Sequence[Step], shadow: Buffer, ref: Buffer, reads: Sequence[int],
           writes: Sequence[int]) -> bool:
    """Whether no load of `ref` sees an element that was replaced before it."""
    first = min(writes, default=len(steps))  # a storage of no elements has no writes
    for n in reads:
        if n < first:
            continue
        step = steps[n]
        if n > first or not isinstance(step, Kernel):
            return False
        (store,) = step.stores
        # Binds may be evaluated for every point before the first store, or after it: not their own.
        for e in walk(values_of(step.stores, step.binds)):
            if e.kind == "Load" and e.fields[0] is ref and e.fields[1] != store.idx:
                return False
        if store.axes or store.mode != "set" or _folds(store.value, ref):
            return False
    return True


def _folds(value: Expr, ref: Buffer) -> bool:
    """Whether a reduction or a scan loads the storage (at the index of an outer point)."""
    return any(ref in {x.fields[0] for x in walk((e,)) if x.kind == "Load"}
               for e in walk((value,)) if e.kind in ("Reduce", "Scan"))


def _renamed(step: Step, names: Mapping[Buffer, Buffer]) -> Step:
    """The step with buffers replaced by others of the same shape and strides."""
    r, w = touched(step)
    if names.keys().isdisjoint(r | w):
        return step

    def operand(o: Operand) -> Operand:
        return o._replace(buffer=names.get(o.buffer, o.buffer))

    def argument(a: object) -> object:
        if isinstance(a, Operand):
            return operand(a)
        if isinstance(a, Buffer):
            return names.get(a, a)
        return tuple(map(argument, a)) if isinstance(a, tuple) else a

    if isinstance(step, HostCall):
        return step._replace(args=tuple(map(argument, step.args)),
                             outputs=tuple(names.get(b, b) for b in step.outputs))
    if isinstance(step, Extern):
        return step._replace(inputs=tuple(map(operand, step.inputs)), output=operand(step.output),
                             others=tuple(map(operand, step.others)))
    assert isinstance(step, Kernel)

    def renamed_load(e: Expr) -> Expr | None:
        b = names.get(e.fields[0])
        return None if b is None else Expr("Load", e.dtype, b, *e.fields[1:])

    def unchanged(b: Bind) -> object:
        raise AssertionError("binds keep their variables")

    bound = {b.var: b for b in step.binds}
    values = Rewriter({v: v for v in bound}, renamed_load, {}, unchanged)
    stores = tuple(s._replace(buffer=names.get(s.buffer, s.buffer), value=values(s.value),
                              mask=None if s.mask is None else values(s.mask))
                   for s in step.stores)
    binds = tuple(b._replace(value=values(b.value), mask=None if b.mask is None else values(b.mask))
                  for b in step.binds)
    return step._replace(stores=stores, binds=binds)


def _idle(k: Kernel) -> bool:
    """A store of the element that is there already."""
    return all(s.value.kind == "Load" and s.value.fields[:2] == (s.buffer, s.idx)
               and s.mode == "set" for s in k.stores)

"""The order of steps, for memory: a step runs as soon as it can where waiting would only keep large
temporaries alive.

So each update of an optimizer follows the product that makes its gradient, and the sums over a
layer's gradients run while that layer is in memory. Steps keep their places otherwise: the rest of
the order is the program's own. A step that the caller may see an effect of is never moved before
one that may stop the program, and those that may stop it keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lehr.base import sym
from lehr.compiler.loop.halt import halting
from lehr.compiler.loop.ir import Buffer, Step
from lehr.compiler.loop.region import BYTES
from lehr.compiler.loop.verify import touched
from lehr.ops.rule import numel

SIZE_HINT = 128  # stands for a symbolic size where bytes are compared
# A step is moved for a temporary of more than this many bytes; what it takes for good may be this
# little more than what it frees (a learning rate, a statistic).
LARGE, SMALL = 2 * BYTES, 1 << 12
MOST = 8         # steps that one may take along because it waits for them


def schedule(steps: Sequence[Step]) -> list[Step]:
    """The steps in an order that needs no more memory than the given one, and mostly less."""
    return _Order(steps).run()


def bytes_of(b: Buffer) -> int:
    """Bytes of a buffer; symbolic sizes count as SIZE_HINT."""
    n = numel(b.shape)
    if not isinstance(n, int):
        n = sym.evaluate(n, dict.fromkeys(sym.free(n), SIZE_HINT))
    return n * b.dtype.itemsize


class _Order:
    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.touches = [touched(s) for s in steps]
        self.temporaries = [{b for b in reads | writes if b.role == "arena"}
                            for reads, writes in self.touches]
        self.before: list[set[int]] = []            # steps that must run first
        self.after: list[list[int]] = [[] for _ in steps]
        self.left: Counter[Buffer] = Counter()      # steps that still touch a temporary
        self.users: dict[Buffer, list[int]] = {}
        self.alive: set[Buffer] = set()
        self.done = [False] * len(steps)
        self._depend()

    def _depend(self) -> None:
        written: dict[Buffer, int] = {}
        readers: dict[Buffer, list[int]] = {}
        last: int | None = None                     # the last step that may stop the program
        halts = halting(self.steps)
        for n, (reads, writes) in enumerate(self.touches):
            before = {written[b] for b in reads | writes if b in written}
            before.update(m for b in writes for m in readers.get(b, ()))
            seen = any(b.role == "ref" for b in writes)
            if last is not None and (halts[n] or seen):
                before.add(last)
            before.discard(n)
            last = n if halts[n] else last
            self.before.append(before)
            for m in before:
                self.after[m].append(n)
            for b in writes:
                written[b] = n
                readers[b] = []
            for b in reads:
                readers.setdefault(b, []).append(n)
            self.left.update(self.temporaries[n])
            for b in self.temporaries[n]:
                self.users.setdefault(b, []).append(n)

    def run(self) -> list[Step]:
        made: list[Step] = []
        for n in range(len(self.steps)):
            waiting = [n]
            while waiting:
                m = waiting.pop()
                if self.done[m]:
                    continue
                needed = [m] if m == n else self.early(m)
                changed: set[int] = set()
                for k in needed:
                    made.append(self.steps[k])
                    changed |= self.ran(k)
                waiting += sorted(changed, reverse=True)
        return made

    def ran(self, n: int) -> set[int]:
        """Notes that step n has run; the steps for which that changes something."""
        self.done[n] = True
        mine = self.temporaries[n]
        self.left.subtract(mine)
        self.alive = {b for b in self.alive | mine if self.left[b]}
        return {*self.after[n], *(m for b in mine for m in self.users[b])}

    def early(self, n: int) -> list[int]:
        """The step and those that it waits for, in order, where running them now frees as much as
        it takes and touches something large; else nothing."""
        if not any(b in self.alive and bytes_of(b) > LARGE for b in self.temporaries[n]):
            return []
        needed = self.pending(n)
        uses = Counter(b for m in needed for b in self.temporaries[m])
        taken = sum(bytes_of(b) for b in uses if b not in self.alive and self.left[b] > uses[b])
        freed = sum(bytes_of(b) for b in uses if b in self.alive and self.left[b] == uses[b])
        return needed if taken <= max(freed, SMALL) else []

    def pending(self, n: int) -> list[int]:
        """A step and all that must run before it, in order; nothing where those are many."""
        found, stack = {n}, [n]
        while stack:
            for m in self.before[stack.pop()]:
                if not self.done[m] and m not in found:
                    found.add(m)
                    stack.append(m)
            if len(found) > MOST:
                return []
        return sorted(found)

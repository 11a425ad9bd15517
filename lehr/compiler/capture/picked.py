"""Views at places that are data: `x[i]` with an index tensor that has no dimensions.

Eagerly such a view shares the memory of `x`. In a graph it is a copy, which is the same as long as
neither is written afterwards and the world outside does not see it. Where that fails, the capture
ends before the view is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor


class Pick(NamedTuple):
    """The storage of a copy, and those whose memory it stands for."""

    storage: Storage
    roots: tuple[Storage, ...]


class Picks:
    """The copies of a capture; `stop(storage)` ends it where that one came to be."""

    def __init__(self, stop: Callable[[Storage], Any]) -> None:
        self.stop = stop
        self.known: dict[int, Pick] = {}

    def add(self, made: Tensor, base: Tensor, dim: int) -> None:
        """`made` is a copy of a view of `base`, which lacks dimension `dim`."""
        before = self.known.get(id(base._storage))
        roots = (base._storage, *(before.roots if before else ()))
        self.known[id(made._storage)] = Pick(made._storage, roots)
        view = [(n, s) for d, (n, s) in enumerate(zip(base._shape, base._strides, strict=True))
                if d != dim]
        copy = zip(made._shape, made._strides, strict=True)
        if any(n != 1 and s != t for (n, s), (_, t) in zip(view, copy, strict=True)):
            self.stop(made._storage)

    def written(self, storage: Storage) -> None:
        """A storage is about to be written."""
        for pick in self.known.values():
            if pick.storage is storage or any(r is storage for r in pick.roots):
                self.stop(pick.storage)

    def shown(self, outputs: Collection[int]) -> None:
        """`outputs`: the ids of the storages, made inside, that are seen outside."""
        for pick in self.known.values():
            if id(pick.storage) in outputs:
                self.stop(pick.storage)


__all__ = ["Pick", "Picks"]

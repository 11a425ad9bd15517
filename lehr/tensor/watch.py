"""Watches: one flag that tells whether anything in a tree of modules and tensors has changed.

A guard that has checked a whole tree asks `watch(root)` for a flag; every write to a module or a
change of a tensor's storage, dtype or `requires_grad` below `root` lifts `changed`, and a `.grad`
that comes or goes lifts `grads`. A lifted flag stays lifted: whoever checked the tree again takes a
new watch. Objects without watchers pay one look-up a write.
"""

from __future__ import annotations

import weakref
from typing import Any


class Watch:
    """`changed`: some structure differs since the watch was taken; `grads`: some `.grad` came or
    went."""

    __slots__ = ("__weakref__", "changed", "grads")

    def __init__(self) -> None:
        self.changed = self.grads = False


class Watchers:
    """The live watches of one object. Copies and pickles of the object start without any."""

    __slots__ = ("flags",)

    def __init__(self) -> None:
        self.flags: list[weakref.ref[Watch]] = []

    def add(self, flag: Watch) -> None:
        self.flags = [r for r in self.flags if (w := r()) is not None and not w.changed
                      and w is not flag]
        self.flags.append(weakref.ref(flag))

    def touch(self) -> None:
        """The object has changed."""
        for r in self.flags:
            flag = r()
            if flag is not None:
                flag.changed = True
        self.flags = []

    def touch_grad(self) -> None:
        """The object's `.grad` came or went."""
        for r in self.flags:
            flag = r()
            if flag is not None:
                flag.grads = True

    def __deepcopy__(self, memo: Any) -> Watchers:
        return Watchers()

    def __copy__(self) -> Watchers:
        return Watchers()

    def __reduce__(self) -> tuple[Any, ...]:
        return Watchers, ()


def watch(root: Any) -> Watch:
    """A watch over `root`: a tensor, or an object whose `_watch(flag)` passes it on to its
    parts."""
    flag = Watch()
    root._watch(flag)
    return flag


def touch(owner: Any) -> None:
    """`owner` (no tensor) has changed."""
    found = owner.__dict__.get("_watchers")
    if found is not None:
        found.touch()

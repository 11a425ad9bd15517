"""Index expressions over many points at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base import spell, sym

# Points that are worth trying one by one where no proof is found.
LIMIT = 1 << 22


def values(e: Any, variable: Callable[[Any], Any]) -> Any:
    """The values of an index expression; `variable(v)` gives a variable's, arrays that
    broadcast."""
    if isinstance(e, int):
        return np.asarray(e)
    free = sorted(sym.free(e), key=lambda v: v.name)
    names = {v: f"v{n}" for n, v in enumerate(free)}
    text = spell.render(e, spell.TEXT, names)
    return np.asarray(eval(text, {"min": _least, "max": _greatest},
                           {names[v]: variable(v) for v in free}))


def _least(*args: Any) -> Any:
    return args[0] if len(args) == 1 else np.minimum(args[0], _least(*args[1:]))


def _greatest(*args: Any) -> Any:
    return args[0] if len(args) == 1 else np.maximum(args[0], _greatest(*args[1:]))


def extremes(e: Any) -> tuple[int, int] | None:
    """(least, greatest) value over the ranges of the variables, found by trying every point; None
    where there are too many, or where ranges depend on each other."""
    free = sorted(sym.free(e), key=lambda v: v.name)
    ends = [sym.interval(v) for v in free]
    if any(lo is None or hi is None for lo, hi in ends) or any(v.bound is not None for v in free):
        return None
    known: list[tuple[Any, Any]] = list(ends)
    if math.prod(hi - lo + 1 for lo, hi in known) > LIMIT:
        return None
    grid: Any = np.ix_(*(np.arange(lo, hi + 1) for lo, hi in known))
    made = values(e, dict(zip(free, grid, strict=True)).__getitem__)
    return int(made.min()), int(made.max())

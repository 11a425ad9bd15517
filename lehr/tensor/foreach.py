"""`torch._foreach_*`: an op for every tensor of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.tensor.tensor import Tensor

# What an op of two tensors is called where the second is a number.
NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def function(name: str) -> Callable[..., Any] | None:
    """`_foreach_add` and the like, from the method `add`; None if there is none."""
    stem = name.removeprefix("_foreach_")
    plain, tail = stem.removesuffix("_"), stem[len(stem.removesuffix("_")):]
    method = getattr(Tensor, stem, None)
    if method is None and tail and plain in NUMBERS:
        def method(t: Any, *others: Any, **named: Any) -> Any:      # only lists have `maximum_`
            return t.copy_(getattr(t, plain)(*others, **named))
    if method is None or not callable(method):
        return None
    bound = getattr(Tensor, NUMBERS[plain] + tail) if plain in NUMBERS else method

    def each(self: Any, *others: Any, **named: Any) -> Any:
        def at(x: Any, i: int) -> Any:
            return x[i] if isinstance(x, (list, tuple)) else x
        made = []
        for i, t in enumerate(self):
            given = [at(o, i) for o in others]
            run = bound if given and isinstance(given[0], (int, float)) else method
            made.append(run(t, *given, **{k: at(v, i) for k, v in named.items()}))
        return None if tail else made
    each.__name__ = name
    each.__doc__ = f"`{stem}` of each tensor of a list; lists among the arguments are taken apart."
    return each

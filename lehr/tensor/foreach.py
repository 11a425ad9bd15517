"""`torch._foreach_*`: an op for every tensor of a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.tensor.tensor import Tensor


def function(name: str) -> Callable[..., Any] | None:
    """`_foreach_add` and the like, from the method `add`; None if there is none."""
    stem = name.removeprefix("_foreach_")
    method = getattr(Tensor, stem, None)
    if method is None or not callable(method):
        return None

    def each(self: Any, *others: Any, **named: Any) -> Any:
        def at(x: Any, i: int) -> Any:
            return x[i] if isinstance(x, (list, tuple)) else x
        made = [method(t, *(at(o, i) for o in others), **{k: at(v, i) for k, v in named.items()})
                for i, t in enumerate(self)]
        return None if stem.endswith("_") else made
    each.__name__ = name
    each.__doc__ = f"`{stem}` of each tensor of a list; lists among the arguments are taken apart."
    return each

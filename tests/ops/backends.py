"""Interpreters of ops, by name: each takes an op and its bound arguments and returns arrays.

A back end joins the generated tests by one entry. It returns None for a call that it does not have
to know (and says so in its own tests); what it returns otherwise must equal `eager`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.ops import execute
from lehr.ops.expand import decompose
from lehr.ops.registry import Op


def decomp(op: Op, bound: tuple[Any, ...]) -> Any:
    """The op's decomposition over the reference interpreter."""
    if op.decomp is None or op.eager is None:
        return None
    bound = tuple(map(execute.wrap, bound))
    out = decompose(execute.FUNCTIONS, op, bound, op.rule(*bound))
    return None if out is NotImplemented else execute.unwrap(out)


BACKENDS: dict[str, Callable[[Op, tuple[Any, ...]], Any]] = {
    "decomp": decomp,
}

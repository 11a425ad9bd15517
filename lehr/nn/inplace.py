"""Functions of `nn.functional` with an `inplace` flag, made from the ops' signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lehr.ops import families, registry  # noqa: F401  (families fills the registry)
from lehr.tensor import dispatch

NAMES = ("relu", "relu6", "elu", "selu", "celu", "leaky_relu", "silu", "mish", "hardtanh",
         "hardsigmoid",
         "hardswish", "threshold")


def _make(name: str) -> Callable[..., Any]:
    op = registry.get(name)
    bound = ", ".join(p.name for p in op.params)
    space = {"__name__": dispatch.__name__, "_d": tuple(p.default for p in op.params), "_op": op,
             "_call": dispatch.call, "_inplace": dispatch.inplace}
    exec(f"def {name}({registry.header(op.signature)}, inplace=False):\n"
         f"    return (_inplace if inplace else _call)(_op, ({bound},))", space)
    made: Any = space[name]
    made.__module__ = "lehr.nn.functional"  # where pickles look for it
    made.__doc__ = f"{op.doc} `inplace` writes the result into `input`."
    return made  # type: ignore[no-any-return]


globals().update({name: _make(name) for name in NAMES})

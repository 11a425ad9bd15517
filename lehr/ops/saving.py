"""What a backward rule must keep alive: read off the rule's own body.

`vjp(F, g, out, x, y)` that loads `x` needs its value; one that only reads `x.shape`, `x.dtype`, `x.device` or
`x.ndim` needs its description; a name that is never loaded needs nothing.
"""

from __future__ import annotations

import dis
import types
from typing import Any

META = frozenset(("shape", "dtype", "device", "ndim"))
RANK = ("nothing", "meta", "value")


def reads_of(op: Any) -> dict[str, str]:
    """Parameter name (and "out") -> "nothing" | "meta" | "value"."""
    code = op.vjp.__code__
    names = code.co_varnames[: code.co_argcount]
    found = dict.fromkeys(names, "nothing")
    _scan(code, found)
    wanted = ["out", *(p.name for p in op.params)]
    if len(names) != len(wanted) + 2:
        raise TypeError(f"op {op.name}: vjp takes (F, g, out, {', '.join(wanted[1:])})")
    for want, name in zip(wanted, names[2:], strict=True):
        if want in op.described:
            found[name] = "meta"
    return {want: found[name] for want, name in zip(wanted, names[2:], strict=True)}


def _scan(code: types.CodeType, found: dict[str, str]) -> None:
    steps = list(dis.get_instructions(code))
    cells = code.co_cellvars + code.co_freevars
    for this, after in zip(steps, [*steps[1:], None], strict=True):
        names = this.argval if isinstance(this.argval, tuple) else (this.argval,)
        if not this.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
            continue
        if this.opname == "LOAD_FAST" and names[0] in cells:
            continue  # Python 3.13 hands a cell to a closure so; its value is read by LOAD_DEREF
        if this.opname.startswith("STORE_FAST_LOAD_FAST"):
            names = names[1:]
        for i, name in enumerate(names):
            if name not in found:
                continue
            last = i == len(names) - 1
            meta = (last and after is not None and after.opname == "LOAD_ATTR"
                    and after.argval in META)
            found[name] = max(found[name], "meta" if meta else "value", key=RANK.index)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            _scan(const, found)

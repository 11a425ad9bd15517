"""The record of a compiled call: what goes in and out, where it lies, what runs in which order.

A record is JSON-able data, stored beside the code; `lehr.compiler.run.executable` runs it. Sizes
are integers, or text over the record's `symbols` (valid Python). A *place* is `["slot", n]`, the
memory that slot n of the pointer array points to, or `["arena", offset]`, in bytes.

    {"name": "step",
     "symbols": ["s0"],
     "params":  [{"name", "role", "dtype", "shape", "strides"}, ...]      slots FIRST ...
     "outputs": [...]                                                     the slots after them
     "constants": [{"dtype", "shape", "data" (base64)}, ...]              the slots after those
     "weights": [{"param": 1, "slot": 9, "template": "half", ...}],       see `weight`
     "arena": bytes,
     "templates": ["convolution"],            what the runtime has to load first
     "products": [[m, n, k], ...],            of float32 matrices; 0: a size that is a symbol
     "steps": [{"segment": "step_0"},
               {"host": "sort", "name": "sort1", "args": [...], "outputs": [{"place", "dtype",
                "shape", "strides"}], "at": "model.py:12"}],
     "faults": [["index", "model.py:7"], ...]}

Arguments of host steps: null, booleans, numbers and texts as they are; {"tensor": {"place",
"dtype", "shape", "strides"}}, {"number": place, "dtype"}, {"tuple": [...]}, {"size": text},
{"float": "nan"}, {"dtype": name}, {"device": text}.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any

from lehr.base import sym
from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.compiler.emit.value import Unsupported
from lehr.compiler.loop.ir import Buffer, HostCall, Operand

# Slots of the pointer array before those of the params.
ARENA, RUNTIME, SIZES, FAULT, FIRST = range(5)


def size(e: Any) -> int | str:
    return e if isinstance(e, int) else sym.to_text(e)


def sizes(several: Iterable[Any]) -> list[int | str]:
    return [size(e) for e in several]


def declared(b: Buffer) -> dict[str, Any]:
    """A param or an output."""
    return {"name": b.name, "role": b.role, "dtype": b.dtype.name, "shape": sizes(b.shape),
            "strides": sizes(b.strides)}


def constant(b: Buffer) -> dict[str, Any]:
    data = base64.b64encode(b.data.astype(b.dtype.np, copy=False).tobytes()).decode()
    return {"dtype": b.dtype.name, "shape": sizes(b.shape), "data": data}


class Places:
    """Where buffers lie: slots in the order params, outputs, constants; the arena by a plan."""

    def __init__(self, fixed: Iterable[Buffer], offsets: Any) -> None:
        self.slots = {b: n for n, b in enumerate(fixed, FIRST)}
        self.offsets = offsets

    def of(self, b: Buffer, shift: Any = 0) -> list[Any]:
        """The place of element `shift` of a buffer."""
        if b in self.slots:
            place: list[Any] = ["slot", self.slots[b]]
            return place if shift == 0 else [*place, size(shift * b.dtype.itemsize)]
        return ["arena", size(self.offsets[b] + shift * b.dtype.itemsize)]

    def view(self, o: Operand) -> dict[str, Any]:
        return {"place": self.of(o.buffer, o.offset), "dtype": o.buffer.dtype.name,
                "shape": sizes(o.shape), "strides": sizes(o.strides)}


def host_step(h: HostCall, places: Places) -> dict[str, Any]:
    """The record of a host call."""
    whole = [Operand(b, 0, b.shape, b.strides) for b in h.outputs]
    return {"host": h.op.name, "name": h.name, "args": [argument(a, places) for a in h.args],
            "outputs": [places.view(o) for o in whole], "at": ", ".join(map(str, h.locations))}


def argument(a: Any, places: Places) -> Any:
    """An argument of a host step."""
    if a is None or isinstance(a, bool | int | str):
        return a
    if isinstance(a, float):
        return a if math.isfinite(a) else {"float": repr(a)}
    if isinstance(a, complex):
        return {"complex": repr(a)}
    if isinstance(a, Operand):
        return {"tensor": places.view(a)}
    if isinstance(a, Buffer):
        return {"number": places.of(a), "dtype": a.dtype.name}
    if isinstance(a, tuple | list):
        return {"tuple": [argument(x, places) for x in a]}
    if isinstance(a, sym.Sym):
        return {"size": sym.to_text(a)}
    if isinstance(a, DType):
        return {"dtype": a.name}
    if isinstance(a, Device):
        return {"device": str(a)}
    raise Unsupported(f"a host call with an argument of type {type(a).__name__}")


def text(record: dict[str, Any]) -> str:
    """The record as a readable host program."""
    def one(d: dict[str, Any]) -> str:
        return f"{d['dtype']}{d['shape']}" + (
            f" strides {d['strides']}" if d.get("strides") else "")

    names = [p["name"] for p in record["params"]]
    lines = [f"def {record['name']}({', '.join([*names, *record['symbols']])}):"]
    lines += [f"    # {p['name']}: {p['role']} {one(p)}" for p in record["params"]]
    for o in record["outputs"]:
        lines.append(f"    {o['name']} = empty({o['shape']}, {o['dtype']}, {o['strides']})")
    lines.append(f"    arena = lease({record['arena']})")
    for step in record["steps"]:
        if "segment" in step:
            lines.append(f"    {step['segment']}(pointers)")
        else:
            args = ", ".join(map(_argument_text, step["args"]))
            outs = ", ".join(str(o["place"]) for o in step["outputs"])
            at = f"  # {step['at']}" if step["at"] else ""
            lines.append(f"    {outs} = {step['host']}({args}){at}")
    lines.append(f"    return {', '.join(o['name'] for o in record['outputs'])}".rstrip())
    return "\n".join(lines) + "\n"


def _argument_text(a: Any) -> str:
    if not isinstance(a, dict):
        return repr(a)
    if "tuple" in a:
        return f"({', '.join(map(_argument_text, a['tuple']))})"
    if "tensor" in a:
        return f"{a['tensor']['dtype']}{a['tensor']['shape']} at {a['tensor']['place']}"
    return str(next(iter(a.values())))

"""What a captured call lets go of once it is compiled.

The machine and the tracer know the objects of the call that was captured: its arguments, models,
batches. An entry reads such objects through their sources at each call; were it to keep those of
the first one, a compiled function would hold a model, or a batch, for ever.
"""

from __future__ import annotations

from typing import Any

from lehr.compiler.capture.fault import FaultValue
from lehr.compiler.capture.frame import Frame
from lehr.compiler.capture.mapping import DictValue
from lehr.compiler.capture.objects import ClassValue
from lehr.compiler.capture.operation import Key
from lehr.compiler.capture.sets import SetValue
from lehr.compiler.capture.tensors import CaptureTracer, TensorMachine, TensorValue
from lehr.compiler.capture.tracer import TwinMeta
from lehr.compiler.capture.value import CONSTANT_SET, Lazy, Value

# Stands for an object that existed before the call and is read through the value's source.
OUTSIDE: Any = type("Outside", (), {"__slots__": (), "__repr__": lambda self: "<outside>"})()
# What a value keeps that stands for an object outside.
KEPT = frozenset(("source", "type_", "twin", "real"))
CONTAINERS = (list, tuple, dict, set, frozenset)


def forget(captured: Any) -> None:
    """Drops the objects outside from a captured call; what rebuilds its results stays."""
    machine: TensorMachine = captured.machine
    roots = [captured.value, captured.fault, machine.effects]
    walk(roots, machine)
    abandon(machine)
    if captured.segment is not None:
        broke = captured.segment.broke
        broke.frames, broke.cause, broke.__traceback__, broke.__context__ = (), None, None, None


def abandon(machine: TensorMachine) -> None:
    """Drops all objects that a machine met: it is part of cycles, and those would keep them."""
    for value in machine.known.values():
        strip(value)
    for field in ("known", "kept", "lookups", "known_attrs", "twins", "births", "proxies", "caches",
                  "prepared", "facts", "tensors", "generators"):
        setattr(machine, field, type(getattr(machine, field))())
    machine.frame, machine.handling = None, [None]
    outsiders(machine.tracer)


def outsiders(tracer: CaptureTracer) -> None:
    """Twins forget the tensors that they stand for."""
    for twin in tracer.twins.values():
        trace = twin._storage.trace
        if trace is not None:
            trace.real = None
        if isinstance(twin._meta, TwinMeta):
            twin._meta.forget()
    for trace in [s.trace for s in tracer.storages.values()]:     # of twins that moved, too
        trace.real = None
    tracer.moves.known, tracer.moves.before = {}, {}
    for field in ("twins", "reals", "storages", "numbers", "inputs", "generators", "_keep",
                  "sources", "first", "tensors_of", "layouts"):
        setattr(tracer, field, type(getattr(tracer, field))())


def strip(value: Value) -> bool:
    """Leaves the source of a value from outside; whether it is one."""
    if value.source is None or isinstance(value, ClassValue) or not hasattr(type(value), "real"):
        return False
    if value.real is None:
        return False
    value.real = OUTSIDE
    if not isinstance(value, TensorValue | Lazy | FaultValue):
        for base in type(value).__mro__:
            for name in base.__dict__.get("__slots__", ()):
                if name not in KEPT and hasattr(value, name):
                    delattr(value, name)
    return True


def keyed(key: Any, machine: TensorMachine) -> Any:
    """A key of a dict or set of the program's, with values in the place of objects outside."""
    if type(key) in (tuple, frozenset):
        return type(key)([keyed(part, machine) for part in key])
    if type(key) in CONSTANT_SET or isinstance(key, Key | Value):
        return key
    found = machine.known_key(key)
    return key if found is None else found


def walk(roots: Any, machine: TensorMachine) -> None:
    """Strips the values from outside that the results and effects are made of."""
    seen: set[int] = set()
    stack = [roots]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, CONTAINERS):
            stack.extend(item)
            if isinstance(item, dict):
                stack.extend(item.values())
        elif isinstance(item, Key):
            stack.append(item.value)
        elif isinstance(item, Value | Frame) and not (isinstance(item, Value) and strip(item)):
            if isinstance(item, DictValue):
                item.storage = {keyed(k, machine): v for k, v in item.storage.items()}
            elif isinstance(item, SetValue) and item.storage is not None:
                item.storage = [keyed(k, machine) for k in item.storage]     # in its order
            for base in type(item).__mro__:
                names = base.__dict__.get("__slots__", ())
                stack.extend(getattr(item, name, None) for name in names)

"""What a file may name: with `weights_only` only these globals are looked up, nothing else can run.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.io.format import STORAGES
from lehr.tensor.size import Size


class StorageClass:
    """Stands for `torch.FloatStorage` and the like in a persistent id."""

    def __init__(self, dtype: dt.DType) -> None:
        self.dtype = dtype


def encode(text: str, encoding: str) -> bytes:
    """Bytes as older pickles have them: a text in Latin-1."""
    if encoding != "latin1":
        raise ValueError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


PLAIN: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): encode,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "Counter"): collections.Counter,
    ("builtins", "set"): set, ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex, ("builtins", "bytearray"): bytearray,
    ("builtins", "dict"): dict, ("builtins", "list"): list, ("builtins", "int"): int,
    ("builtins", "float"): float, ("builtins", "str"): str, ("builtins", "bool"): bool,
    ("builtins", "tuple"): tuple, ("torch", "Size"): Size, ("torch", "device"): Device,
    ("lehr.tensor.size", "Size"): Size,
}
PLAIN |= {("torch", d.name): d for d in dt.ALL}
PLAIN |= {("torch", name): StorageClass(d) for name, d in STORAGES.items()}
PLAIN |= {("__builtin__", name): found for (module, name), found in list(PLAIN.items())
          if module == "builtins"}

_ALLOWED: dict[tuple[str, str], Any] = {}


def key_of(obj: Any) -> tuple[str, str]:
    return obj.__module__, obj.__qualname__


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Lets `load(weights_only=True)` make objects of these classes, call these functions."""
    for each in safe_globals:
        found, name = each if isinstance(each, tuple) else (each, None)
        _ALLOWED[key_of(found) if name is None else tuple(name.rsplit(".", 1))] = found


def get_safe_globals() -> list[Any]:
    return list(_ALLOWED.values())


def clear_safe_globals() -> None:
    _ALLOWED.clear()


@contextlib.contextmanager
def safe_globals(safe: list[Any]) -> Iterator[None]:
    """`add_safe_globals` for a while."""
    before = dict(_ALLOWED)
    add_safe_globals(safe)
    try:
        yield
    finally:
        _ALLOWED.clear()
        _ALLOWED.update(before)


def is_allowed(kind: type) -> bool:
    """Whether objects of a class may be given state: those that `add_safe_globals` named."""
    return any(kind is found for found in _ALLOWED.values())


def trusted(module: str, name: str) -> Any:
    """The object of a name that is allowed, else None."""
    found = PLAIN.get((module, name))
    return _ALLOWED.get((module, name)) if found is None else found


def imported(module: str, name: str) -> Any:
    """Any object by name; PyTorch's modules are lehr's."""
    if module == "torch" or module.startswith("torch."):
        module = "lehr" + module[len("torch"):]
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found

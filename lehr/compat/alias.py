"""`torch` and `torchvision` as other names of lehr's modules.

`install()` puts a finder in front of Python's own: `import torch.nn.functional` gives the very
module `lehr.nn.functional`. Nothing of lehr is imported before the program asks for it.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Name that programs import -> lehr's module of the same shape.
NAMES = {"torch": "lehr", "torchvision": "lehr.vision"}
KEPT = ("__spec__", "__loader__", "__package__", "__path__", "__name__")


def own(name: str) -> str | None:
    """lehr's name of a module of PyTorch, None for any other module."""
    first, dot, rest = name.partition(".")
    return NAMES[first] + dot + rest if first in NAMES else None


def spelled(name: str) -> str:
    """PyTorch's name of a module of lehr; other names as they are."""
    for theirs, ours in reversed(NAMES.items()):
        if name == ours or name.startswith(ours + "."):
            return theirs + name[len(ours):]
    return name


class Same:
    """A loader that hands out a module which exists, and keeps what the import system would set."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.kept: dict[str, Any] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.kept = {key: self.module.__dict__.get(key) for key in KEPT}
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update({k: v for k, v in self.kept.items() if v is not None})


class Finder:
    """Finds `torch...` and `torchvision...` as lehr's modules."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        mine = own(name)
        if mine is None:
            return None
        try:
            module = importlib.import_module(mine)
        except ModuleNotFoundError as error:
            if error.name is None or not (mine + ".").startswith(error.name + "."):
                raise
            raise ModuleNotFoundError(f"No module named {name!r}", name=name) from None
        if name == "torch":
            from lehr.compat import version
            module.__dict__["__version__"] = version.__version__
        return ModuleSpec(name, Same(module), is_package=True)  # type: ignore[arg-type]


def install() -> None:
    """From now on in this process, `import torch` gives lehr. Once is enough."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]

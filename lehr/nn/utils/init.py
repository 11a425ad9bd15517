"""Modules built without drawing their initial values."""

from __future__ import annotations

import inspect
from typing import Any

from lehr.nn.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`module_cls(*args, **kwargs)` with parameters that have memory and no values."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)

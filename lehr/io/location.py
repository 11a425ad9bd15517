"""Where storages lie, by the words that `map_location` functions get, and their types by name."""

from __future__ import annotations

from typing import Any

from lehr.tensor import legacy, memory


def location_tag(storage: Any) -> str:
    """The word for a storage's device: "cpu" or "meta". RuntimeError for what is no storage."""
    if not isinstance(storage, memory.UntypedStorage):
        raise RuntimeError("don't know how to determine data location of "
                           f"{type(storage).__module__}.{type(storage).__name__}")
    return storage.device.type


def normalize_storage_type(storage_type: type) -> Any:
    """The public storage class of a storage class's name."""
    name = storage_type.__name__
    return getattr(legacy if hasattr(legacy, name) else memory, name)

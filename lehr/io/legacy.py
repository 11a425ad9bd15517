"""PyTorch's format before 1.6: pickles one after the other, then the storages' bytes.

    a magic number, a protocol number, a dictionary about the machine
    the objects, storages as persistent ids
    a list of the storages' keys
    for each key: the number of elements (int64), then their bytes
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from lehr.io.format import Damaged
from lehr.tensor.storage import Storage

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
PROTO = pickle.PROTO  # the first byte of such a file


class Body:
    """The storages of a file; their bytes come after the objects that use them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.storages: dict[str, Storage] = {}

    def storage(self, key: str, nbytes: int) -> Storage:
        """A storage of `nbytes` bytes, filled in by `fill`."""
        found = self.storages.get(key)
        if found is None:
            found = self.storages[key] = Storage(np.empty(nbytes, np.uint8))
        elif found.owner.size != nbytes:
            raise Damaged(f"{self.name} is damaged: storage {key} has two sizes")
        return found

    def fill(self, file: Any, keys: Any) -> None:
        """Reads the storages' bytes in the order of `keys`."""
        for key in keys:
            found = self.storages.get(str(key))
            count = file.read(8)
            if found is None or len(count) < 8:
                raise Damaged(f"{self.name} is cut or damaged: storage {key}")
            data = file.read(found.owner.size)
            if len(data) < found.owner.size:
                raise Damaged(f"{self.name} is cut: storage {key} has {len(data)} of "
                              f"{found.owner.size} bytes")
            found.owner[:] = np.frombuffer(data, np.uint8)


def load(file: Any, name: str, unpickler: Any, place: Any) -> Any:
    """The objects of a file; `unpickler(file, body, place)` reads one pickle."""
    body = Body(name)

    def one() -> Any:
        try:
            return unpickler(file, body, place).load()
        except (EOFError, UnicodeDecodeError, IndexError, KeyError) as error:
            raise Damaged(f"{name} is cut or damaged ({type(error).__name__})") from None
    if one() != MAGIC:
        raise Damaged(f"{name} is a pickle but not a checkpoint: its magic number is wrong")
    if one() != PROTOCOL:
        raise Damaged(f"{name} is damaged: its protocol number is wrong")
    machine = one()
    if not isinstance(machine, dict) or not machine.get("little_endian", True):
        raise RuntimeError(f"{name} was written on a big-endian machine")
    made = one()
    body.fill(file, one())
    return made

"""`load`: reads PyTorch's zip format; with `weights_only` nothing in the file can run code."""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.io import trust
from lehr.io.format import Damaged
from lehr.nn.parameter import Parameter
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

SIGNATURE = b"PK"


class Loaded:
    """A storage read from the file."""

    __slots__ = ("dtype", "storage")

    def __init__(self, storage: Storage, dtype: DType) -> None:
        self.storage, self.dtype = storage, dtype


class Unpickler(pickle.Unpickler):
    """Makes tensors over the archive's storages; every name passes `find`."""

    def __init__(self, body: bytes, archive: Archive, weights_only: bool, place: Any) -> None:
        super().__init__(io.BytesIO(body))
        self.archive, self.weights_only, self.place = archive, weights_only, place

    def find_class(self, module: str, name: str) -> Any:
        found = REBUILD.get((module, name)) or trust.trusted(module, name)
        if found is not None:
            return found
        if self.weights_only:
            raise pickle.UnpicklingError(
                f"{self.archive.name} holds an object of {module}.{name}, which weights_only=True "
                f"does "
                "not make. If you trust the file, allow it with "
                f"torch.serialization.add_safe_globals([{name}]) or load with weights_only=False "
                "(which can run any code that the file contains).")
        return trust.imported(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"
                and isinstance(pid[1], trust.StorageClass)):
            raise Damaged(f"{self.archive.name}: unknown persistent id {str(pid)[:80]}")
        _, kind, key, location, count = pid
        check_place(location, self.place, self.archive.name)
        return Loaded(self.archive.storage(str(key), int(count) * kind.dtype.itemsize), kind.dtype)


def check_place(location: Any, place: Any, name: str) -> None:
    """Everything is put on the CPU; other targets are refused by name."""
    want = place(None, location) if callable(place) and not isinstance(place, (str, Device)) else place
    if isinstance(want, dict):
        want = want.get(location, "cpu")
    target = Device(want).type if isinstance(want, (str, Device)) else "cpu"
    if target != "cpu":
        raise RuntimeError(f"{name}: cannot load to device {target!r}; use map_location='cpu'")


def rebuild_tensor(storage: Loaded, offset: int, size: Any, stride: Any, requires_grad: bool = False,
                   hooks: Any = None, metadata: Any = None) -> Tensor:
    size, stride = tuple(size), tuple(stride)
    item = storage.dtype.itemsize
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else -1
    if offset < 0 or min(stride, default=0) < 0 or (last + 1) * item > storage.storage.nbytes:
        raise Damaged(f"a tensor of size {list(size)} reaches beyond its storage")
    made = Tensor._make(storage.storage, storage.dtype, size, stride, offset)
    if requires_grad:
        made.requires_grad_()
    return made


def rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any = None) -> Any:
    return Parameter(data, requires_grad)


def rebuild_parameter_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Any:
    made = Parameter(data, requires_grad)
    if isinstance(state, dict):
        made.__dict__.update(state)
    return made


REBUILD: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): rebuild_parameter_with_state,
}


class Archive:
    """The zip file. Every record is checked against its checksum when it is read."""

    def __init__(self, file: Any, name: str) -> None:
        self.name = name
        self.storages: dict[str, Storage] = {}
        start = file.tell()
        if file.read(2) != SIGNATURE:
            raise Damaged(f"{name} is not a checkpoint in PyTorch's zip format (it does not begin "
                          f"with "
                          "the signature of a zip file)")
        file.seek(start)
        try:
            self.zip = zipfile.ZipFile(file)
            names = self.zip.namelist()
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise Damaged(f"{name} is cut or damaged: {error}") from None
        roots = [n[: -len("data.pkl")] for n in names if n.endswith("/data.pkl")]
        if len(roots) != 1:
            raise Damaged(f"{name} is a zip file but not a checkpoint: it has no record data.pkl")
        self.root, self.names = roots[0], frozenset(names)
        order = self.read("byteorder").decode() if self.has("byteorder") else "little"
        if order != sys.byteorder:
            raise RuntimeError(f"{name} was written on a {order}-endian machine")

    def has(self, record: str) -> bool:
        return self.root + record in self.names

    def read(self, record: str) -> bytes:
        try:
            return self.zip.read(self.root + record)
        except KeyError:
            raise Damaged(f"{self.name} has no record {record}: it is incomplete") from None
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
            raise Damaged(f"{self.name} is damaged: record {record}: {error}") from None

    def storage(self, key: str, nbytes: int) -> Storage:
        found = self.storages.get(key)
        if found is None:
            data = self.read(f"data/{key}")
            if len(data) < nbytes:
                raise Damaged(f"{self.name} is damaged: record data/{key} has {len(data)} bytes, "
                              f"{nbytes} are needed")
            owner = np.empty(len(data), np.uint8)
            owner[:] = np.frombuffer(data, np.uint8)
            found = self.storages[key] = Storage(owner)
        return found


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool = True,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """The object that `save` (here or PyTorch's) wrote to a path or a seekable binary file.

    weights_only: only tensors, plain containers, numbers, text and allowed classes are made;
    nothing in
    the file can run code. Errors name the file: Damaged (a RuntimeError) where it is cut or
    altered,
    pickle.UnpicklingError where it names something that is not allowed. `mmap` is accepted; data is
    read.
    """
    if hasattr(f, "read"):
        return _load(f, getattr(f, "name", "the file"), weights_only, map_location)
    path = os.fspath(f)
    with open(path, "rb") as file:
        return _load(file, str(path), weights_only, map_location)


def _load(file: Any, name: Any, weights_only: bool, place: Any) -> Any:
    archive = Archive(file, str(name))
    body = archive.read("data.pkl")
    try:
        return Unpickler(body, archive, weights_only, place).load()
    except (pickle.UnpicklingError, Damaged, RuntimeError):
        raise
    except Exception as error:
        if not weights_only:
            raise
        raise Damaged(f"{name} is damaged: its objects cannot be made "
                      f"({type(error).__name__}: {error})") from error

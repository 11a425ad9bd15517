"""`save`: objects with tensors to a file that PyTorch reads too."""

from __future__ import annotations

import collections
import io
import os
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.io.format import ALIGNMENT, STORAGE_OF
from lehr.nn.parameter import Parameter
from lehr.tensor.size import Size
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor


class Name(NamedTuple):
    """A global of PyTorch's, written by name: it need not exist here."""

    module: str
    name: str

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is a name, not a function")


class Held(NamedTuple):
    """A storage in the pickle."""

    storage: Storage
    dtype: DType


TENSOR = Name("torch._utils", "_rebuild_tensor_v2")
PARAMETER = Name("torch._utils", "_rebuild_parameter")


BASE: Any = vars(pickle)["_Pickler"]  # the one in Python: its opcodes can be written by hand


class Pickler(BASE):  # type: ignore[misc]
    """Writes tensors as PyTorch does and collects their storages."""

    dispatch = dict(BASE.dispatch)

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.keys: dict[int, str] = {}
        self.storages: list[Storage] = []

    def save_name(self, name: Name) -> None:
        self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())
        self.memoize(name)

    dispatch[Name] = save_name

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Held):
            return None
        storage = obj.storage.origin
        key = self.keys.get(id(storage))
        if key is None:
            key = self.keys[id(storage)] = str(len(self.storages))
            self.storages.append(storage)
        count = storage.nbytes // obj.dtype.itemsize
        return "storage", Name("torch", STORAGE_OF[obj.dtype]), key, str(storage.device), count

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return _tensor(obj)
        if isinstance(obj, Size):
            return Name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            return Name("torch", "device"), (obj.type,) if obj.index is None else (
                obj.type, obj.index)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, DType):  # a global of PyTorch's, as its own files have it
            held = self.memo.get(id(obj))
            if held is not None:
                self.write(self.get(held[0]))
            else:
                self.write(pickle.GLOBAL + f"torch\n{obj.name}\n".encode())
                self.memoize(obj)
            return
        super().save(obj, save_persistent_id)


def _tensor(t: Tensor) -> Any:
    hooks: Any = collections.OrderedDict()
    plain = (Held(t._storage, t.dtype), t._offset, tuple(t._shape), tuple(t._strides))
    if isinstance(t, Parameter):
        return PARAMETER, (t.data, t.requires_grad, hooks)
    if not t.is_leaf:
        return TENSOR, (*plain, False, hooks)
    return TENSOR, (*plain, t.requires_grad, hooks)


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Writes `obj` to a path or a binary file.

    A path names the old file until the new one is complete: a crash or a full disk leaves the old
    one. OSError where it cannot be written; what pickle raises for objects it cannot write.
    """
    body = io.BytesIO()
    pickler = Pickler(body, pickle_protocol)
    pickler.dump(obj)
    if hasattr(f, "write"):
        _write(f, "archive", body.getvalue(), pickler.storages)
        return
    path = Path(os.fspath(f))
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with open(fresh, "xb") as file:
            _write(file, path.stem or "archive", body.getvalue(), pickler.storages)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _write(file: Any, name: str, body: bytes, storages: list[Storage]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for record, data in _records(body, storages):
            _add(archive, f"{name}/{record}", data)


def _records(body: bytes, storages: list[Storage]) -> Iterator[tuple[str, Any]]:
    yield "data.pkl", body
    yield ".format_version", b"1"
    yield ".storage_alignment", str(ALIGNMENT).encode()
    yield "byteorder", sys.byteorder.encode()
    for key, storage in enumerate(storages):
        yield f"data/{key}", memoryview(storage.flat)
    yield "version", b"3\n"


def _add(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    """A record whose bytes begin at a multiple of ALIGNMENT, so that they can be mapped."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(name.encode()) + 4
    gap = -start % ALIGNMENT
    info.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap
    archive.writestr(info, data)

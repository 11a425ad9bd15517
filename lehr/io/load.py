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
from lehr.io import legacy, trust
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


class Trusting(pickle.Unpickler):
    """Makes tensors over the archive's storages, and any object that the file names."""

    def __init__(self, body: Any, archive: Any, place: Any) -> None:
        super().__init__(body)
        self.archive, self.place = archive, place

    def find_class(self, module: str, name: str) -> Any:
        found = REBUILD.get((module, name)) or trust.trusted(module, name)
        return trust.imported(module, name) if found is None else found

    def persistent_load(self, pid: Any) -> Any:
        return stored(pid, self.archive, self.place)


class Restricted(pickle._Unpickler):  # type: ignore[misc,name-defined]
    """Makes tensors, plain containers and allowed classes; nothing in the file can run code.

    State is given to objects of allowed classes alone: a file cannot change what is shared, such as
    a dtype.
    """

    dispatch = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, body: Any, archive: Any, place: Any) -> None:
        super().__init__(body)
        self.archive, self.place = archive, place

    def find_class(self, module: str, name: str) -> Any:
        found = REBUILD.get((module, name)) or trust.trusted(module, name)
        if found is None:
            raise pickle.UnpicklingError(
                f"{self.archive.name} holds an object of {module}.{name}, which weights_only=True "
                "does not make. If you trust the file, allow it with "
                f"torch.serialization.add_safe_globals([{name}]) or load with weights_only=False "
                "(which can run any code that the file contains).")
        return found

    def persistent_load(self, pid: Any) -> Any:
        return stored(pid, self.archive, self.place)

    def load_build(self: Any) -> None:
        target = self.stack[-2]
        if not isinstance(target, (Tensor, dict)) and not trust.is_allowed(type(target)):
            raise pickle.UnpicklingError(
                f"{self.archive.name} sets the state of an object of class "
                f"{type(target).__name__}, which weights_only=True does not do")
        pickle._Unpickler.load_build(self)  # type: ignore[attr-defined]

    dispatch[pickle.BUILD[0]] = load_build


def stored(pid: Any, archive: Any, place: Any) -> Loaded:
    """The storage of a persistent id, where `map_location` wants it."""
    # Legacy files add where in another storage this one begins.
    if not (isinstance(pid, tuple) and len(pid) in (5, 6) and pid[0] == "storage"
            and isinstance(pid[1], trust.StorageClass)):
        raise Damaged(f"{archive.name}: unknown persistent id {str(pid)[:80]}")
    _, kind, key, location, count = pid[:5]
    if len(pid) == 6 and pid[5] is not None:
        raise Damaged(f"{archive.name}: views of storages are not supported")
    found = archive.storage(str(key), int(count) * kind.dtype.itemsize)
    return Loaded(placed(found, location, place, archive.name), kind.dtype)


def placed(storage: Storage, location: Any, place: Any, name: str) -> Storage:
    """The storage on the device that `map_location` gives for its location; the CPU otherwise."""
    want = place
    if isinstance(place, dict):
        want = place.get(location, "cpu")
    elif callable(place) and not isinstance(place, (str, Device)):
        want = place(storage, location)
    if isinstance(want, Storage):
        return want
    target = Device(want).type if isinstance(want, (str, Device)) else "cpu"
    if target == "meta":
        return Storage(None, Device("meta"))
    if target != "cpu":
        raise RuntimeError(f"{name}: cannot load to device {target!r}: load to the CPU "
                           "(map_location='cpu') and move the model")
    return storage


def rebuild_tensor(storage: Loaded, offset: int, size: Any, stride: Any,
                   requires_grad: bool = False, hooks: Any = None, metadata: Any = None) -> Tensor:
    size, stride = tuple(size), tuple(stride)
    item = storage.dtype.itemsize
    last = offset + sum((n - 1) * s for n,
                        s in zip(size, stride, strict=True)) if 0 not in size else -1
    bound = storage.storage.owner is not None and (last + 1) * item > storage.storage.nbytes
    if offset < 0 or min(stride, default=0) < 0 or bound:
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
    """The zip file. Every record is checked against its checksum when it is read; with `mmap` the
    storages are views of the mapped file, which the system reads when they are used, unchecked."""

    def __init__(self, file: Any, name: str, mmap: bool) -> None:
        self.name = name
        self.storages: dict[str, Storage] = {}
        self.mapped = np.memmap(file, np.uint8, "c") if mmap else None
        start = file.tell()
        file.seek(start)
        try:
            self.zip = zipfile.ZipFile(file)
            infos = self.zip.infolist()
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise Damaged(f"{name} is cut or damaged: {error}") from None
        self.infos = {i.filename: i for i in infos}
        roots = [n[: -len("data.pkl")] for n in self.infos if n.endswith("/data.pkl")]
        if len(roots) != 1:
            raise Damaged(f"{name} is a zip file but not a checkpoint: it has no record data.pkl")
        self.root = roots[0]
        order = self.read("byteorder").decode() if self.has("byteorder") else "little"
        if order != sys.byteorder:
            raise RuntimeError(f"{name} was written on a {order}-endian machine")

    def has(self, record: str) -> bool:
        """Whether there is such a record."""
        return self.root + record in self.infos

    def read(self, record: str) -> bytes:
        """A record's bytes; Damaged where they are not what was written."""
        try:
            return self.zip.read(self.root + record)
        except KeyError:
            raise Damaged(f"{self.name} has no record {record}: it is incomplete") from None
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
            raise Damaged(f"{self.name} is damaged: record {record}: {error}") from None

    def storage(self, key: str, nbytes: int) -> Storage:
        """The storage of a key, of at least `nbytes` bytes."""
        found = self.storages.get(key)
        if found is None:
            data = self._bytes(f"data/{key}")
            if len(data) < nbytes:
                raise Damaged(f"{self.name} is damaged: record data/{key} has {len(data)} bytes, "
                              f"{nbytes} are needed")
            found = self.storages[key] = Storage(data)
        return found

    def _bytes(self, record: str) -> Any:
        """A record as a uint8 array of its own memory, or of the mapped file's."""
        info = self.infos.get(self.root + record)
        if self.mapped is None or info is None or info.compress_type != zipfile.ZIP_STORED:
            data = self.read(record)
            owner = np.empty(len(data), np.uint8)
            owner[:] = np.frombuffer(data, np.uint8)
            return owner
        # 30 bytes of header, whose last four are the lengths of the name and the extra field.
        head = self.mapped[info.header_offset:info.header_offset + 30]
        if head.size < 30 or bytes(head[:4]) != b"PK\x03\x04":
            raise Damaged(f"{self.name} is damaged: record {record} has no header")
        lengths = head[26:30].view("<u2")
        begin = info.header_offset + 30 + int(lengths[0]) + int(lengths[1])
        return self.mapped[begin:begin + info.file_size]


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool = True,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """The object that `save` (here or PyTorch's) wrote to a path or a seekable binary file.

    map_location  a device, {location: device}, or f(storage, location) -> storage or None
    weights_only  only tensors, plain containers, numbers, text and allowed classes are made;
                  nothing in the file can run code
    mmap          of a path: tensors use the file's pages, which are read when needed, unchecked

    Errors name the file: Damaged (a RuntimeError) where it is cut or altered,
    pickle.UnpicklingError where it names something that is not allowed.
    """
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        return _load(f, str(getattr(f, "name", "the file")), weights_only, map_location, False)
    path = os.fspath(f)
    with open(path, "rb") as file:
        return _load(file, str(path), weights_only, map_location, bool(mmap))


def _load(file: Any, name: str, weights_only: bool, place: Any, mmap: bool) -> Any:
    start = file.tell()
    head = file.read(2)
    file.seek(start)
    kind: Any = Restricted if weights_only else Trusting
    try:
        if head == SIGNATURE:
            archive = Archive(file, name, mmap)
            body = io.BytesIO(archive.read("data.pkl"))
            return kind(body, archive, place).load()
        if head[:1] == legacy.PROTO:
            if mmap:
                raise RuntimeError(f"{name}: mmap can only be used with files in the zip format")
            return legacy.load(file, name, kind, place)
    except (pickle.UnpicklingError, Damaged, RuntimeError):
        raise
    except Exception as error:
        if not weights_only:
            raise
        raise Damaged(f"{name} is damaged: its objects cannot be made "
                      f"({type(error).__name__}: {error})") from error
    raise Damaged(f"{name} is not a checkpoint in PyTorch's zip format (it does not begin with the "
                  "signature of a zip file)")

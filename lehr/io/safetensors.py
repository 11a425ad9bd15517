"""The safetensors format: a JSON header, then the tensors' bytes.

    8 bytes      length n of the header, little-endian
    n bytes      {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..,
                  "__metadata__": {text: text}}
    the rest     the tensors, row-major; offsets count from here
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.dtype import DType
from lehr.io.format import Damaged
from lehr.ops import layout
from lehr.tensor.storage import Storage
from lehr.tensor.tensor import Tensor

NAMES: dict[str, DType] = {
    "F64": dt.float64, "F32": dt.float32, "F16": dt.float16, "BF16": dt.bfloat16, "I64": dt.int64,
    "I32": dt.int32, "I16": dt.int16, "I8": dt.int8, "U8": dt.uint8, "BOOL": dt.bool_}
NAME_OF = {d: name for name, d in NAMES.items()}
HEADER_LIMIT = 100_000_000


def save_file(tensors: dict[str, Tensor], filename: Any,
              metadata: dict[str, str] | None = None) -> None:
    """Writes named tensors; the old file stays until the new one is complete."""
    path = Path(os.fspath(filename))
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with open(fresh, "xb") as file:
            for part in _parts(tensors, metadata):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The file's bytes."""
    return b"".join(bytes(part) for part in _parts(tensors, metadata))


def _parts(tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> Any:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    arrays, at = [], 0
    # Wide elements first, so that all are aligned.
    for name in sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n)):
        t = tensors[name]
        if t.dtype not in NAME_OF:
            raise TypeError(f"safetensors holds no {t.dtype} (tensor {name!r})")
        a = np.ascontiguousarray(t.detach().cpu()._array)
        header[name] = {"dtype": NAME_OF[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + a.nbytes]}
        arrays.append(a)
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for a in arrays:
        yield memoryview(a.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors by name, on the memory of the mapped file (writes do not reach it)."""
    path = os.fspath(filename)
    if os.path.getsize(path) < 8:
        raise Damaged(f"{path} is too short for a safetensors file")
    return _tensors(np.memmap(path, np.uint8, "c"), str(path), device)


def load(data: bytes, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file's bytes."""
    return _tensors(np.frombuffer(bytearray(data), np.uint8), "the data", device)


def metadata(filename: Any) -> dict[str, str]:
    """The texts that were saved with the tensors."""
    path = os.fspath(filename)
    held = _header(np.memmap(path, np.uint8, "r"), str(path))[0].get("__metadata__", {})
    return dict(held)


def _header(data: Any, name: str) -> tuple[dict[str, Any], int]:
    """The header and where the tensors begin."""
    size = int.from_bytes(bytes(data[:8]), "little") if data.size >= 8 else -1
    if size < 2 or size > min(HEADER_LIMIT, data.size - 8):
        raise Damaged(f"{name} is not a safetensors file, or is cut: its header length is {size}")
    try:
        header = json.loads(bytes(data[8:8 + size]))
    except ValueError as error:
        raise Damaged(f"{name} is damaged: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise Damaged(f"{name} is damaged: its header is no dictionary")
    return header, 8 + size


def _tensors(data: Any, name: str, device: Any) -> dict[str, Tensor]:
    header, start = _header(data, name)
    out = {}
    for key, row in header.items():
        if key != "__metadata__":
            t = _one(data, start, name, key, row)
            out[key] = t if str(device) == "cpu" else t.to(device)
    return out


def _one(data: Any, start: int, name: str, key: str, row: Any) -> Tensor:
    try:
        dtype, shape = NAMES[row["dtype"]], tuple(int(n) for n in row["shape"])
        begin, end = (int(n) for n in row["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{name} is damaged: the entry of tensor {key!r} is wrong "
                      f"({type(error).__name__}: {error})") from None
    count = 1
    for n in shape:
        count *= n
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= data.size - start or (
            end - begin != count * dtype.itemsize):
        raise Damaged(f"{name} is cut or damaged: tensor {key!r} of shape {list(shape)} should be "
                      f"bytes {begin} to {end} of {data.size - start}")
    part = data[start + begin:start + end]
    if part.size and part.ctypes.data % dtype.itemsize:
        part = part.copy()
    return Tensor._make(Storage(part), dtype, shape, layout.contiguous(shape), 0)


__all__ = ["load", "load_file", "metadata", "save", "save_file"]

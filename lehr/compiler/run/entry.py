"""The file of one cache entry, and the key that names it.

    magic | format u32 | key 20 bytes | meta length u32 | payload length u64 | meta | payload | sum

All numbers little-endian; `meta` is JSON; `sum` is blake2b (16 bytes) over everything before it.
Whatever does not check is Damaged: an entry is trusted whole or not at all.
"""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

FORMAT = 1
_MAGIC = b"lehr cache\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sI20sIQ")
_SUM = 16
_SHOWN = 200  # longer parts of a key are kept as digests


class Damaged(ValueError):
    """Bytes that are not the whole entry of the key they were looked up by; says what is wrong."""


@dataclass(frozen=True, slots=True)
class Key:
    """`kind` of content, named `parts` (short ones verbatim, long ones as digests), `hex` name."""

    kind: str
    parts: tuple[tuple[str, str], ...]
    hex: str

    def __str__(self) -> str:
        return self.hex


def key(kind: str, /, **parts: str | bytes) -> Key:
    """The key of content that depends on `parts`, and on lehr's own compiler sources.

    A part named `lehr` replaces the latter: "any" where the other parts alone decide. No part may
    hold a path of this machine, a time or a process number: a cache travels.
    """
    named = parts if "lehr" in parts else {"lehr": fingerprint(), **parts}
    short = tuple((name, _shorten(named[name])) for name in sorted(named))
    total = hashlib.blake2b(digest_size=20)
    for text in (kind, *(text for pair in short for text in pair)):
        data = text.encode("utf-8", "surrogatepass")
        total.update(struct.pack("<Q", len(data)) + data)
    return Key(kind, short, total.hexdigest())


def _shorten(part: str | bytes) -> str:
    if isinstance(part, str) and len(part) <= _SHOWN and not part.startswith("#"):
        return part
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    mark = "#" if isinstance(part, str) else "#b"
    return mark + hashlib.blake2b(data, digest_size=20).hexdigest()


@functools.cache
def fingerprint() -> str:
    """A digest of the sources that decide what is generated: two versions never share an entry."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    total, count = hashlib.blake2b(digest_size=16), 0
    for layer in ("base", "ops", "compiler"):
        for folder, below, files in os.walk(os.path.join(package, layer)):
            below[:] = sorted(b for b in below if b != "__pycache__")
            for name in sorted(f for f in files if f.endswith((".py", ".pyc", ".c", ".h"))):
                with open(os.path.join(folder, name), "rb") as file:
                    data = file.read()
                place = os.path.relpath(os.path.join(folder, name), package)
                total.update(f"{place}\0{len(data)}\0".encode() + data)
                count += 1
    return total.hexdigest() if count else os.urandom(16).hex()  # unknown: never a hit


def encode(key: Key, payload: bytes, meta: dict[str, Any]) -> bytes:
    """The bytes of an entry's file."""
    import json

    about = json.dumps({**meta, "kind": key.kind, "parts": dict(key.parts)}).encode()
    name = bytes.fromhex(key.hex)
    body = _HEAD.pack(_MAGIC, FORMAT, name, len(about), len(payload)) + about + payload
    return body + hashlib.blake2b(body, digest_size=_SUM).digest()


def decode(blob: bytes, hex: str) -> tuple[bytes, bytes]:
    """(payload, meta as JSON text) of an entry's file that was looked up as `hex`, or Damaged."""
    about, size = _head(blob[: _HEAD.size], hex)
    whole = _HEAD.size + about + size + _SUM
    if len(blob) != whole:
        raise Damaged(f"{len(blob)} bytes where {whole} were written")
    if hashlib.blake2b(blob[:-_SUM], digest_size=_SUM).digest() != blob[-_SUM:]:
        raise Damaged("its checksum does not fit")
    start = _HEAD.size + about
    return blob[start : start + size], blob[_HEAD.size : start]


def describe(file: BinaryIO, hex: str) -> dict[str, Any]:
    """The meta of an entry's file, read without its payload and so unchecked; or Damaged."""
    import json

    about, _ = _head(file.read(_HEAD.size), hex)
    try:
        meta = json.loads(file.read(about))
        return meta | {"kind": str(meta["kind"]), "parts": dict(meta["parts"])}
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged("its description cannot be read") from error


def _head(head: bytes, hex: str) -> tuple[int, int]:
    if not head:
        raise Damaged("it is empty")
    if not head.startswith(_MAGIC[: len(head)]):
        raise Damaged("it is no cache entry")
    if len(head) < _HEAD.size:
        raise Damaged("it ends within its head")
    _, form, name, about, size = _HEAD.unpack(head)
    if form != FORMAT:
        raise Damaged(f"its format is {form}, not {FORMAT}")
    if name.hex() != hex:
        raise Damaged(f"it belongs to {name.hex()}")
    return about, size


_PART = struct.Struct("<IQ")


def bundle(parts: dict[str, bytes]) -> bytes:
    """Several named byte strings as one payload, so that what belongs together is one file."""
    out = []
    for name, data in parts.items():
        label = name.encode()
        out += [_PART.pack(len(label), len(data)), label, data]
    return b"".join(out)


def unbundle(payload: bytes) -> dict[str, bytes]:
    """The inverse of `bundle`."""
    parts, at = {}, 0
    while at < len(payload):
        label, size = _PART.unpack_from(payload, at)
        at += _PART.size
        parts[payload[at : at + label].decode()] = payload[at + label : at + label + size]
        at += label + size
    return parts

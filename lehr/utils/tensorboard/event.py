"""TensorBoard's event files: protocol-buffer messages in records with masked CRC-32C checksums.

Formats: protobuf wire format (varint, 64-bit, length-delimited, 32-bit fields); TFRecord framing
(length, its checksum, data, its checksum, little-endian); CRC-32C, polynomial 0x1EDC6F41 (RFC 3720,
appendix B.4). Field numbers are those of tensorboard/compat/proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

_TABLE: list[int] = []


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum."""
    if not _TABLE:
        for n in range(256):
            for _ in range(8):
                n = (n >> 1) ^ 0x82F63B78 if n & 1 else n >> 1
            _TABLE.append(n)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """One record of a file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    """A field that holds a whole number."""
    return _varint(field << 3) + _varint(int(value))


def double(field: int, value: float) -> bytes:
    """A field that holds a double."""
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A field that holds a float; what is too large becomes infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(field << 3 | 5) + packed


def block(field: int, value: bytes | str) -> bytes:
    """A field that holds text, bytes or another message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def doubles(field: int, values: Iterable[float]) -> bytes:
    """A field that holds several doubles."""
    return block(field, b"".join(struct.pack("<d", v) for v in values))


def text_tensor(texts: list[str]) -> bytes:
    """A TensorProto of texts, one dimension."""
    return (whole(1, 7) + block(2, block(2, whole(1, len(texts))))
            + b"".join(block(8, t) for t in texts))


def metadata(plugin: str, content: bytes = b"") -> bytes:
    """A SummaryMetadata that names a plugin."""
    return block(1, block(1, plugin) + (block(2, content) if content else b""))


def scalar(tag: str, value: float) -> bytes:
    """A Summary.Value with one number."""
    return block(1, tag) + single(2, value)


def text(tag: str, value: str) -> bytes:
    """A Summary.Value with a text."""
    return (block(1, tag + "/text_summary") + block(8, text_tensor([value]))
            + block(9, metadata("text")))


def image(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    """A Summary.Value with a picture."""
    made = whole(1, height) + whole(2, width) + whole(3, channels) + block(4, png)
    return block(1, tag) + block(4, made)


def audio(tag: str, rate: float, channels: int, frames: int, wav: bytes) -> bytes:
    """A Summary.Value with a sound."""
    made = single(1, rate) + whole(2, channels) + whole(3, frames) + block(4, wav)
    return block(1, tag) + block(6, made + block(5, "audio/wav"))


def histogram(tag: str, values: Any, limits: Iterable[float], counts: Iterable[float]) -> bytes:
    """A Summary.Value with a histogram: min, max, number, sum, sum of squares, upper limits and
    counts of the bins."""
    made = (double(1, values[0]) + double(2, values[1]) + double(3, values[2])
            + double(4, values[3]) + double(5, values[4]) + doubles(6, limits)
            + doubles(7, counts))
    return block(1, tag) + block(5, made)


def event(when: float, step: int | None, *values: bytes, version: str = "") -> bytes:
    """An Event at a time (seconds since 1970) with a step and Summary.Values, or a version."""
    made = double(1, when)
    if step is not None:
        made += whole(2, step)
    if version:
        made += block(3, version)
    return made + (block(5, b"".join(block(1, v) for v in values)) if values else b"")

"""Devices as values: a type and an index."""

from __future__ import annotations

from typing import Any

TYPES = ("cpu", "cuda", "meta")


class Device:
    """`Device("cuda:1")`, `Device("cuda", 1)`. `index` is None where none was given."""

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: str | int | Device = "cpu", index: int | None = None) -> Device:
        if isinstance(type, Device):
            return type
        if isinstance(type, int):
            index, type = type, "cuda"
        kind, _, number = type.partition(":")
        if kind not in TYPES or (number and (not number.isdigit() or index is not None)):
            raise RuntimeError(f"Invalid device string: {type!r}; expected one of "
                               f"{', '.join(TYPES)}, "
                               "with an index after a colon where wanted")
        index = int(number) if number else index
        made = _MADE.get((kind, index))
        if made is None:
            made = object.__new__(cls)
            object.__setattr__(made, "type", kind)
            object.__setattr__(made, "index", index)
            made = _MADE.setdefault((kind, index), made)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a device cannot be changed")

    def __repr__(self) -> str:
        tail = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{tail})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)


_MADE: dict[tuple[str, int | None], Device] = {}
CPU = Device("cpu")

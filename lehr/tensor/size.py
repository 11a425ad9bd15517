"""`Size`: a shape."""

from __future__ import annotations

from typing import Any


class Size(tuple[int, ...]):
    """A shape: a tuple that prints as PyTorch's and knows its number of elements."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        """The product of the sizes."""
        n = 1
        for s in self:
            n *= s
        return n

    def __getitem__(self, i: Any) -> Any:
        made = tuple.__getitem__(self, i)
        return Size(made) if isinstance(i, slice) else made

    def __add__(self, other: Any) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(f'can only concatenate tuple (not "{type(other).__name__}") to '
                            "torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times: Any) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)

"""Memory formats and layouts: the words that name orders of memory."""

from __future__ import annotations


class MemoryFormat(str):
    """An order of a tensor's dimensions in memory."""

    __lehr_constant__ = True

    def __repr__(self) -> str:
        return f"torch.{str.__str__(self)}"

    def __str__(self) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        return str.__str__(self)


class Layout(str):
    """How a tensor's elements are stored; lehr has strided tensors only."""

    __lehr_constant__ = True

    def __repr__(self) -> str:
        return f"torch.{str.__str__(self)}"

    __str__ = __repr__

    def __reduce__(self) -> str:
        return str.__str__(self)


def plain(memory_format: object) -> str | None:
    """The bare name of a memory format: what ops take, and graphs print."""
    return None if memory_format is None else str(memory_format).removeprefix("torch.")


contiguous_format, channels_last, channels_last_3d, preserve_format = (
    MemoryFormat(n) for n in ("contiguous_format", "channels_last", "channels_last_3d",
                              "preserve_format"))
strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = (
    Layout(n) for n in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr",
                        "sparse_bsc", "jagged"))

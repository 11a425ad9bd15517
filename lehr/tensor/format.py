"""Memory formats and layouts: the words that name orders of memory."""

from __future__ import annotations


class MemoryFormat(str):
    """An order of a tensor's dimensions in memory."""

    def __repr__(self) -> str:
        return f"torch.{str.__str__(self)}"

    def __str__(self) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        return str.__str__(self)


class Layout(str):
    """How a tensor's elements are stored; lehr has strided tensors only."""

    def __repr__(self) -> str:
        return f"torch.{str.__str__(self)}"

    __str__ = __repr__

    def __reduce__(self) -> str:
        return str.__str__(self)


contiguous_format, channels_last, channels_last_3d, preserve_format = (
    MemoryFormat(n) for n in ("contiguous_format", "channels_last", "channels_last_3d",
                              "preserve_format"))
strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = (
    Layout(n) for n in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr",
                        "sparse_bsc", "jagged"))

"""PyTorch's zip format: what its records are called, and how tensors stand in the pickle.

    NAME/data.pkl           the objects, pickled; a storage is a persistent id
    NAME/data/0, 1, ...     the bytes of each storage
    NAME/byteorder          "little" or "big"
    NAME/version            "3"

A tensor is `torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)`,
a parameter `torch._utils._rebuild_parameter(tensor, requires_grad, hooks)`, a storage the
persistent id `("storage", torch.FloatStorage, key, location, elements)`.
"""

from __future__ import annotations

from lehr.base import dtype as dt

ALIGNMENT = 64

# The class in the persistent id -> the dtype of its elements.
STORAGES = {
    "FloatStorage": dt.float32, "DoubleStorage": dt.float64, "HalfStorage": dt.float16,
    "BFloat16Storage": dt.bfloat16, "LongStorage": dt.int64, "IntStorage": dt.int32,
    "ShortStorage": dt.int16, "CharStorage": dt.int8, "ByteStorage": dt.uint8,
    "BoolStorage": dt.bool_, "ComplexFloatStorage": dt.complex64,
    "ComplexDoubleStorage": dt.complex128,
}
STORAGE_OF = {d: name for name, d in STORAGES.items()}


class Damaged(RuntimeError):
    """A file is not a checkpoint, or is cut or altered."""

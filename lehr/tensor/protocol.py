"""Python's own protocols on tensors: numbers, containers, copies, pickles, numpy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.tensor import override
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage


class Protocol:
    """What Python itself asks of a tensor."""

    __slots__ = ()
    _shape: tuple[Any, ...]
    _storage: Storage
    F: Any

    # -- containers --------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]

    def __iter__(self: Any) -> Iterator[Any]:
        if not self._shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self: Any) -> Any:
        return self.flip(0) if self._shape else self

    def __contains__(self: Any, element: Any) -> bool:
        if isinstance(element, (Protocol, int, float, complex)):
            return bool((element == self).any().item())
        raise RuntimeError("Tensor.__contains__ only supports Tensor or scalar, but you passed in "
                           f"a {type(element)}.")

    # -- numbers -----------------------------------------------------------------------------------

    def __bool__(self: Any) -> bool:
        n = self.numel()
        if n != 1:
            count = "no values" if n == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous")
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(_single(self).item())

    def __int__(self: Any) -> int:
        return int(_single(self).item())

    def __complex__(self: Any) -> complex:
        return complex(_single(self).item())

    def __index__(self: Any) -> int:
        if self.numel() != 1 or not self.dtype.is_integer:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __pos__(self) -> Any:
        return self

    def __format__(self: Any, spec: str) -> str:
        if not self._shape and self.device.type != "meta":
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self: Any) -> str:
        from lehr.tensor import show
        return show.text(self)

    def __hash__(self) -> int:
        return id(self)

    # -- numpy -------------------------------------------------------------------------------------

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        a = self.numpy()
        if copy is False and dtype is not None and np.dtype(dtype) != a.dtype:
            raise ValueError("Unable to avoid copy while creating an array as requested: the dtype "
                             f"{dtype} is not the tensor's {self.dtype}")
        made = a if dtype is None else a.astype(dtype, copy=False)
        return made.copy() if copy and made is a else made

    def __array_wrap__(self: Any, array: Any, context: Any = None,
                       return_scalar: bool = False) -> Any:
        made = self._from_array(np.asarray(array))
        made._storage.expose()
        return made

    def __dlpack__(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.dtype is dt.bfloat16:
            raise BufferError("numpy, which exports for lehr, has no bfloat16 DLPack type; export "
                              "tensor.view(torch.int16) and view it again on the other side")
        a = self.numpy()
        known = {k: v for k, v in (("max_version", max_version), ("dl_device", dl_device),
                                   ("copy", copy)) if v is not None}
        return a.__dlpack__(**known)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        kinds = {"cpu": 1, "cuda": 2}
        if self.device.type not in kinds:
            raise ValueError(f"Unknown device type {self.device.type} for Dlpack")
        return kinds[self.device.type], self.device.index or 0

    # -- copies ------------------------------------------------------------------------------------

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
                "because of a torch.nn.utils.weight_norm usage, see "
                "https://github.com/pytorch/pytorch/pull/103001")
        if STATE.tracer is not None:    # which tensors of a structure share memory is in the memo
            STATE.tracer.changes(self, "copy.deepcopy()", True)
        storage = memo.get(id(self._storage))
        if storage is None:
            storage = memo[id(self._storage)] = self._storage.copy()
            memo[id(storage)] = self._storage  # keeps the key alive as long as the memo
        made = self._make(storage, self.dtype, self._shape, self._strides, self._offset)
        made.__class__ = type(self)
        memo[id(self)] = made
        if self.requires_grad:
            made.requires_grad = True
        if self._meta is not None and self._meta.grad is not None:
            made.grad = copy.deepcopy(self._meta.grad, memo)
        for name, value in self.__dict__.items():
            setattr(made, name, copy.deepcopy(value, memo))
        return made

    def __copy__(self: Any) -> Any:
        make, args = self.__reduce_ex__(2)
        return make(*args)

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise RuntimeError("a tensor that is not a leaf cannot be pickled; detach() it first")
        return rebuild, (type(self), self._storage, self.dtype, self._shape, self._strides,
                         self._offset, self.requires_grad, dict(self.__dict__))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs `func` and gives plain results this class; subclasses override it."""
        return override.default(cls, func, types, args, kwargs or {})


def _single(t: Any) -> Any:
    if t.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return t


def rebuild(kind: type, storage: Storage, dtype: Any, shape: tuple[int, ...],
            strides: tuple[int, ...], offset: int, requires_grad: bool,
            extra: dict[str, Any]) -> Any:
    """The tensor that `__reduce_ex__` took apart."""
    from lehr.tensor.tensor import Tensor
    made = Tensor._make(storage, dtype, shape, strides, offset)
    made.__class__ = kind
    if requires_grad:
        made.requires_grad = True
    made.__dict__.update(extra)
    return made

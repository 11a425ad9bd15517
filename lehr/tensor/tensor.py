"""`Tensor`: a dtype, a layout, and a storage it shares with its views.

The public methods are generated from the op registry (`lehr.tensor.api`); here is what all of them stand on.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import CPU, Device
from lehr.base.dtype import DType
from lehr.ops import layout
from lehr.ops.operator import Operators
from lehr.ops.rule import dim_of
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage


class Size(tuple[int, ...]):
    """A shape."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        n = 1
        for s in self:
            n *= s
        return n

    def __getitem__(self, i: Any) -> Any:
        made = tuple.__getitem__(self, i)
        return Size(made) if isinstance(i, slice) else made

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))


class View(NamedTuple):
    """How a view was made: `root` (a tensor that is no view) and the view ops applied to it in order.

    version  the storage's version when the view was made
    mode     "grad": gradients flow; "detached": a detach lies between; "no_grad": made in no_grad mode
    """

    root: Tensor
    chain: tuple[tuple[Any, tuple[Any, ...]], ...]
    version: int
    mode: str


class Meta:
    """What autograd keeps of one tensor; absent for tensors that never took part."""

    __slots__ = ("accumulate", "edge_version", "grad", "grad_fn", "index", "post_hooks", "rebased",
                 "requires_grad", "retains")

    def __init__(self) -> None:
        self.requires_grad = False      # as a leaf
        self.grad: Tensor | None = None
        self.grad_fn: Any = None        # the node that made the tensor, and which of its results it is
        self.index = 0
        self.accumulate: Any = None     # weak reference to a leaf's accumulation node
        self.post_hooks: Any = None     # a leaf's hooks that run after accumulation
        self.retains = False
        self.edge_version = -1          # a view's: storage version for which `grad_fn` was made
        self.rebased = -1               # a root's: storage version of the last recorded in-place write


class TensorClass(type):
    """Makes the generated methods at their first use on the class (`Tensor.exp`)."""

    def __getattr__(cls, name: str) -> Any:
        if not name.startswith("__"):
            from lehr.tensor import api
            made = api.method(name)
            if made is not None:
                setattr(Tensor, name, made)
                return getattr(cls, name)
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        from lehr.tensor import api
        return sorted({*super().__dir__(), *api.names("method")})


class Tensor(Operators, metaclass=TensorClass):
    """An n-dimensional array with reverse-mode gradients, as PyTorch's."""

    __slots__ = ("__dict__", "__weakref__", "_meta", "_np", "_offset", "_shape", "_storage", "_strides",
                 "_view", "dtype")
    __array_priority__ = 1000

    _storage: Storage
    dtype: DType
    _shape: tuple[Any, ...]
    _strides: tuple[Any, ...]
    _offset: Any
    _np: Any
    _meta: Meta | None
    _view: View | None

    # -- construction -------------------------------------------------------------------------------------

    @classmethod
    def _make(cls, storage: Storage, dtype: DType, shape: tuple[Any, ...], strides: tuple[Any, ...],
              offset: Any = 0) -> Tensor:
        """A plain tensor on a storage (always of class Tensor: subclasses are given by `as_subclass`)."""
        t = object.__new__(Tensor)
        t._storage, t.dtype, t._shape, t._strides, t._offset = storage, dtype, shape, strides, offset
        t._np = t._meta = t._view = None
        return t

    @classmethod
    def _of(cls, owner: Any, array: Any, dtype: DType, shape: tuple[Any, ...],
            strides: tuple[Any, ...]) -> Tensor:
        """A tensor over a fresh numpy array; `owner` holds the memory."""
        t = object.__new__(Tensor)
        t._storage, t.dtype, t._shape, t._strides, t._offset = Storage(owner), dtype, shape, strides, 0
        t._np = array
        t._meta = t._view = None
        return t

    @classmethod
    def _from_array(cls, a: Any) -> Tensor:
        """A tensor that shares the memory of any numpy array (negative strides are refused)."""
        a = np.asarray(a)
        made = dt.of_numpy(a.dtype)
        size = a.itemsize
        if any(s < 0 for s in a.strides):
            raise ValueError("At least one stride in the given numpy array is negative, and tensors with "
                             "negative strides are not currently supported. (You can probably work around "
                             "this by making a copy of your array with array.copy().)")
        if any(s % size for s in a.strides):
            raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the "
                             "numpy array to reallocate the memory.")
        strides = tuple([s // size for s in a.strides])
        if a.flags.c_contiguous:
            return cls._of(a, a, made, a.shape, layout.contiguous(a.shape))
        extent = 1 + sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True)) if a.size else 0
        owner = np.lib.stride_tricks.as_strided(a, (extent,), (size,)) if a.size else a.reshape(-1)
        return cls._of(owner, a, made, a.shape, strides)

    @classmethod
    def _empty_meta(cls, spec: Any, strides: tuple[Any, ...]) -> Tensor:
        return cls._make(Storage(None, spec.device), spec.dtype, tuple(spec.shape), strides)

    # -- layout -------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        return self._strides

    @property
    def offset(self) -> Any:
        return self._offset

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def device(self) -> Device:
        return self._storage.device

    def numel(self) -> Any:
        """How many elements."""
        n = 1
        for s in self._shape:
            n *= s
        return n

    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return Size(self._shape) if dim is None else self._shape[dim_of(dim, len(self._shape))]

    def stride(self, dim: int | None = None) -> Any:
        """The strides, or that of one dimension, in elements."""
        return self._strides if dim is None else self._strides[dim_of(dim, len(self._shape))]

    def dim(self) -> int:
        """How many dimensions."""
        return len(self._shape)

    ndimension = dim

    def storage_offset(self) -> Any:
        """Where in the storage the first element is, in elements."""
        return self._offset

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a 0-d tensor")
        return self._shape[0]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        from lehr.tensor import show
        return show.text(self)

    def __bool__(self) -> bool:
        n = self.numel()
        if n != 1:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous" if n == 0 else
                               "Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    @property
    def _array(self) -> Any:
        """The numpy view of this tensor's memory."""
        a = self._np
        if a is None:
            if self._storage.trace is not None:
                raise RuntimeError("a captured tensor has no data")
            a = self._np = self._storage.array(self._shape, self.dtype.np, self._strides, self._offset)
        return a

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._storage.ptr + self._offset * self.dtype.itemsize

    @property
    def _version(self) -> int:
        return self._storage.version

    # -- autograd -----------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        if self._view is not None:
            return self.grad_fn is not None or (self._meta is not None and self._meta.requires_grad)
        meta = self._meta
        return meta is not None and (meta.requires_grad or meta.grad_fn is not None)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if not self.is_leaf:
            if not wanted:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a "
                    "computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach().")
            return
        if wanted and not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if wanted and self._storage.inference and not STATE.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not "
                               "allowed.")
        if wanted or self._meta is not None:
            self._autograd().requires_grad = bool(wanted)

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or of a tensor that retains it."""
        meta = self._meta
        if meta is None:
            return None
        if meta.grad is None and meta.grad_fn is not None and not meta.retains:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
                "attribute won't be populated during autograd.backward(). If you indeed want the .grad field "
                "to be populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.",
                UserWarning, stacklevel=2)
        return meta.grad

    @grad.setter
    def grad(self, given: Tensor | None) -> None:
        if given is None:
            if self._meta is not None:
                self._meta.grad = None
            return
        if not isinstance(given, Tensor):
            raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(given).__name__}")
        if given is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if given.dtype is not self.dtype:
            raise RuntimeError(f"assigned grad has data of a different type: expected {self.dtype}, got "
                               f"{given.dtype}")
        if given.device is not self.device:
            raise RuntimeError(f"assigned grad has data located on a different device: expected "
                               f"{self.device}, got {given.device}")
        if given._shape != self._shape:
            raise RuntimeError("assigned grad has data of a different size")
        given._storage.owned = True
        self._autograd().grad = given

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def grad_fn(self) -> Any:
        """The node that made this tensor; None for leaves."""
        if self._view is not None:
            return view_edge(self)
        return None if self._meta is None else self._meta.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and hasattr(Tensor, name):
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    rebased_view: Any = None  # set by lehr.tensor.autograd

    def _autograd(self) -> Meta:
        if self._meta is None:
            self._meta = Meta()
        return self._meta


def view_edge(t: Tensor) -> Any:
    """The `grad_fn` of a view, made anew if its root was written in place (and recorded) since."""
    view, meta = t._view, t._meta
    assert view is not None
    root = view.root._meta
    if root is not None and root.rebased > (view.version if meta is None else meta.edge_version):
        if view.mode == "grad":
            Tensor.rebased_view(t)
            meta = t._meta
    return None if meta is None else meta.grad_fn


def is_tensor(x: Any) -> bool:
    """Whether `x` is a lehr tensor."""
    return isinstance(x, Tensor)


__all__ = ["CPU", "Size", "Tensor", "View", "is_tensor"]

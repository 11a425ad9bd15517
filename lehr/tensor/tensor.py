"""`Tensor`: a dtype, a layout, and a storage it shares with its views.

The public methods are generated from the op registry (`lehr.tensor.api`); here is what all of them
stand on.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lehr.base import dtype as dt
from lehr.base.device import Device
from lehr.base.dtype import DType
from lehr.ops import layout
from lehr.ops.operator import Operators
from lehr.ops.rule import dim_of
from lehr.tensor.protocol import Protocol
from lehr.tensor.size import Size
from lehr.tensor.state import STATE
from lehr.tensor.storage import Storage


class View:
    """How a view was made.

    root     the tensor, no view of another, whose storage it is on
    chain    the view ops that lead to it from `root`, (op, arguments after the first) each
    base     the tensor whose gradient history it shares (None: it has its own, as after `detach`)
    skip     how many ops of the chain lead from `root` to `base`
    version  the storage's version when the view was made
    guarded  made in no_grad mode: recorded writes through it are refused

    Where `unsqueeze_` and the like give a root or a base another layout, it becomes a view of a
    tensor that keeps the old one, and views made before are views of that.
    """

    __slots__ = ("_base", "_root", "chain", "guarded", "skip", "version")

    def __init__(self, root: Tensor, chain: tuple[tuple[Any, tuple[Any, ...]], ...],
                 base: Tensor | None, skip: int, version: int, guarded: bool) -> None:
        self._root, self.chain, self._base, self.skip = root, chain, base, skip
        self.version, self.guarded = version, guarded

    @property
    def root(self) -> Tensor:
        view = self._root._view
        return self._root if view is None else view._root

    @property
    def base(self) -> Tensor | None:
        view = self._base._view if self._base is not None else None
        return self._base if view is None or view._base is None else view._base

    def detached(self) -> View:
        """The same memory, with a history of its own."""
        return View(self.root, self.chain, None, 0, self.version, False)

    def onto(self, root: Tensor) -> View:
        """The same view of another root."""
        return View(root, self.chain, None if self.base is None else root, 0,
                    root._storage.version, self.guarded)


class Meta:
    """What autograd keeps of one tensor; absent for tensors that never took part."""

    __slots__ = ("accumulate", "edge_version", "grad", "grad_fn", "hooks", "index", "post_hooks",
                 "rebased", "requires_grad", "retains")

    def __init__(self) -> None:
        self.requires_grad = False      # as a leaf
        self.grad: Tensor | None = None
        self.grad_fn: Any = None        # the node that made the tensor, and which of its results
        self.index = 0
        self.accumulate: Any = None     # weak reference to a leaf's accumulation node
        self.hooks: Any = None          # a leaf's hooks on its gradient: {id: hook}
        self.post_hooks: Any = None     # a leaf's hooks that run after accumulation
        self.retains = False
        self.edge_version = -1          # a view's: storage version for which `grad_fn` was made
        self.rebased = -1               # a base's: storage version of its last recorded write


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


class Tensor(Protocol, Operators, metaclass=TensorClass):
    """An n-dimensional array with reverse-mode gradients, as PyTorch's."""

    __slots__ = ("__dict__", "__weakref__", "_key", "_meta", "_np", "_offset", "_shape", "_storage",
                 "_strides", "_view", "dtype")
    __array_priority__ = 1000

    _storage: Storage
    dtype: DType
    _shape: tuple[Any, ...]
    _strides: tuple[Any, ...]
    _offset: Any
    _np: Any               # the numpy view of the memory, once made
    _key: int | None       # stands for (shape, strides, dtype, device) in remembered calls
    _meta: Meta | None
    _view: View | None
    data: Any              # set by lehr.tensor.memory

    # -- construction ------------------------------------------------------------------------------

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """The old constructor: sizes, or data, of the default dtype."""
        from lehr.tensor import legacy
        return legacy.new_tensor(cls, args, kwargs)

    @classmethod
    def _make(cls, storage: Storage, dtype: DType, shape: tuple[Any, ...],
              strides: tuple[Any, ...], offset: Any = 0) -> Tensor:
        """A plain tensor on a storage (of class Tensor: subclasses come from `as_subclass`)."""
        t: Tensor = object.__new__(Tensor)
        t._storage, t.dtype = storage, dtype
        t._shape, t._strides, t._offset = shape, strides, offset
        t._np = t._key = t._meta = t._view = None
        return t

    @classmethod
    def _of(cls, owner: Any, array: Any, dtype: DType, shape: tuple[Any, ...],
            strides: tuple[Any, ...]) -> Tensor:
        """A tensor over a fresh numpy array; `owner` holds the memory."""
        t: Tensor = object.__new__(Tensor)
        t._storage, t.dtype, t._shape, t._strides = Storage(owner), dtype, shape, strides
        t._offset, t._np = 0, array
        t._key = t._meta = t._view = None
        return t

    @classmethod
    def _from_array(cls, a: Any) -> Tensor:
        """A tensor that shares the memory of any numpy array (negative strides are refused)."""
        a = np.asarray(a)
        made = dt.of_numpy(a.dtype)
        size = a.itemsize
        if a.flags.c_contiguous:
            return cls._of(a, a, made, a.shape, layout.contiguous(a.shape))
        if any(s < 0 for s in a.strides):
            raise ValueError(
                "At least one stride in the given numpy array is negative, and tensors with "
                "negative strides are not currently supported. (You can probably work around this "
                "by making a copy of your array with array.copy().)")
        if any(s % size for s in a.strides):
            raise ValueError("given numpy array strides not a multiple of the element byte size. "
                             "Copy the numpy array to reallocate the memory.")
        strides = tuple([s // size for s in a.strides])
        extent = 1 + sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True))
        owner = np.lib.stride_tricks.as_strided(a, (extent,), (size,))
        return cls._of(owner, a, made, a.shape, strides)

    @classmethod
    def _empty_meta(cls, spec: Any, strides: tuple[Any, ...]) -> Tensor:
        return cls._make(Storage(None, spec.device), spec.dtype, tuple(spec.shape), strides)

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """A leaf of class `cls` on the memory of `data`."""
        made = Tensor.F.detach(data)
        made.__class__ = cls
        if require_grad:
            made.requires_grad = True
        return made

    # -- layout ------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return Size(self._shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        return self._strides

    @property
    def offset(self) -> Any:
        return self._offset

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return len(self._shape)

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._storage.device

    def numel(self) -> Any:
        """How many elements."""
        n = 1
        for s in self._shape:
            n *= s
        return n

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        if dim is None:
            return Size(self._shape)
        return self._shape[_place(dim, self._shape)]

    def stride(self, dim: int | None = None) -> Any:
        """The strides, or that of one dimension, in elements."""
        if dim is None:
            return self._strides
        return self._strides[_place(dim, self._shape)]

    def dim(self) -> int:
        """How many dimensions."""
        return len(self._shape)

    nelement, ndimension = numel, dim

    def storage_offset(self) -> Any:
        """Where in the storage the first element is, in elements."""
        return self._offset

    def data_ptr(self) -> int:
        """The address of the first element; 0 without elements or memory."""
        storage = self._storage
        if storage.trace is not None:
            return storage.trace.tracer.concretize("data_ptr", self)  # type: ignore[no-any-return]
        storage.expose()
        return 0 if self.numel() == 0 else storage.ptr + self._offset * self.dtype.itemsize

    @property
    def _array(self) -> Any:
        """The numpy view of this tensor's memory."""
        a = self._np
        if a is None:
            storage = self._storage
            if storage.trace is not None:
                if STATE.tracer is storage.trace.tracer:
                    return STATE.tracer.concretize("data", self)
                raise RuntimeError("a captured tensor has no data")
            a = self._np = storage.array(self._shape, self.dtype.np, self._strides, self._offset)
        return a

    @property
    def _version(self) -> int:
        """How often the memory was written."""
        if self._storage.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        if self._storage.trace is not None:
            STATE.tracer.counted(self)
        return self._storage.version

    # -- autograd ----------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        meta, view = self._meta, self._view
        if meta is not None and (meta.requires_grad or meta.grad_fn is not None):
            return True
        return view is not None and view.base is not None and view.base.requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if not self.is_leaf:
            if not wanted:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use "
                    "a computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach().")
            return
        if wanted and not (self.dtype.is_floating_point or self.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point and complex dtype can require "
                               "gradients")
        if wanted and self._storage.inference and not STATE.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside "
                               "InferenceMode is not allowed.")
        if STATE.tracer is not None and bool(wanted) is not self.requires_grad:
            STATE.tracer.changes(self, "requires_grad =")
        meta = self._meta
        if meta is None:
            if not wanted:
                return
            meta = self._autograd()
        meta.requires_grad = bool(wanted)

    @property
    def grad_fn(self) -> Any:
        """The node that made this tensor; None for leaves."""
        if self._view is not None:
            return view_edge(self)
        return None if self._meta is None else self._meta.grad_fn

    @property
    def is_leaf(self) -> bool:
        """Whether the tape ends here."""
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or of a tensor that retains it."""
        meta = self._meta
        if meta is None:
            return None
        if meta.grad is None and meta.grad_fn is not None and not meta.retains:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). If you indeed want "
                "the .grad field to be populated for a non-leaf Tensor, use .retain_grad() on the "
                "non-leaf Tensor.", UserWarning, stacklevel=2)
        return meta.grad

    @grad.setter
    def grad(self, given: Tensor | None) -> None:
        if given is None:
            if self._meta is not None:
                self._set_grad(None)
            return
        if not isinstance(given, Tensor):
            raise TypeError("assigned grad expected to be a Tensor or None but got grad of type "
                            f"{type(given).__name__}")
        if given is self:
            raise RuntimeError("can't assign Variable as its own grad")
        if given.dtype is not self.dtype:
            raise RuntimeError("assigned grad has data of a different type: expected "
                               f"{self.dtype}, got {given.dtype}")
        if given.device is not self.device:
            raise RuntimeError("assigned grad has data located on a different device: expected "
                               f"{self.device}, got {given.device}")
        if given._shape != self._shape:
            raise RuntimeError("assigned grad has data of a different size: expected "
                               f"{list(self._shape)}, got {list(given._shape)}")
        self._set_grad(given)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _set_grad(self, given: Tensor | None) -> None:
        self._autograd().grad = given

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name not in SLOTS and hasattr(Tensor, name):
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    rebased_view: Any = None  # set by lehr.tensor.autograd

    def _autograd(self) -> Meta:
        if self._meta is None:
            self._meta = Meta()
        return self._meta

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        from lehr.tensor import override
        override.watch(cls)


SLOTS = frozenset(Tensor.__slots__)  # one of these is lacking in an object made by hand


def _place(dim: int, shape: tuple[Any, ...]) -> int:
    """The dimension `dim`; unlike in ops, a 0-d tensor has none."""
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return dim_of(dim, len(shape))


def view_edge(t: Tensor) -> Any:
    """The `grad_fn` of a view, made anew if its base was written in place (and recorded) since."""
    view, meta = t._view, t._meta
    assert view is not None
    base = view.base
    if base is not None and base._meta is not None:
        if base._meta.rebased > max(view.version, -1 if meta is None else meta.edge_version):
            Tensor.rebased_view(t)
            meta = t._meta
    return None if meta is None else meta.grad_fn


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a lehr tensor."""
    return isinstance(obj, Tensor)


__all__ = ["Size", "Tensor", "View", "is_tensor"]

"""Tensors that modules register when they are assigned: parameters and buffers."""

from __future__ import annotations

from typing import Any

from lehr.tensor import node, override
from lehr.tensor.tensor import Tensor, TensorClass


class MarkedClass(TensorClass):
    """A tensor class that also takes in tensors of other classes that carry its mark."""

    mark: str

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        return isinstance(instance, Tensor) and bool(instance.__dict__.get(cls.mark, False))


def alias(cls: Any, data: Tensor, requires_grad: bool) -> Any:
    """A leaf of class `cls` on the memory of `data`."""
    t: Any = node.alias(data)
    t.requires_grad = requires_grad
    if cls is not Tensor:
        t.__class__ = cls
    return t


class Parameter(Tensor, metaclass=MarkedClass):
    """A tensor that is a module's parameter when it is assigned to an attribute of the module.

    data           the values, whose memory is shared
    requires_grad  whether gradients are computed for it
    """

    mark = "_is_param"
    __torch_function__: Any = override.disabled

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = Tensor.F.empty((0,))
        if type(data) is Tensor or isinstance(data, cls):
            return alias(cls, data, requires_grad)
        if not isinstance(data, Tensor):
            raise TypeError(f"Cannot create a Parameter from an object of type "
                            f"{type(data).__name__}: a tensor is expected")
        made = data.detach().requires_grad_(requires_grad)
        if type(made) is not type(data):
            made = alias(type(data), made, requires_grad)
        made._is_param = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        made = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, proto: Any) -> Any:
        data = alias(Tensor, self, False)
        if self.__dict__:
            return rebuild_with_state, (data, self.requires_grad, {}, dict(self.__dict__))
        return rebuild, (data, self.requires_grad, {})

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


def rebuild(data: Tensor, requires_grad: bool, hooks: Any) -> Any:
    """A pickled parameter again."""
    return Parameter(data, requires_grad)


def rebuild_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Any:
    """A pickled parameter with attributes of its own."""
    made = Parameter(data, requires_grad)
    made.__dict__.update(state)
    return made


class Buffer(Tensor, metaclass=MarkedClass):
    """A tensor that is a module's buffer when it is assigned to an attribute of the module.

    persistent  whether the module's state_dict holds it
    """

    mark = "_is_buffer"
    __torch_function__: Any = override.disabled

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = Tensor.F.empty((0,))
        made = alias(Tensor, data, data.requires_grad)
        made._is_buffer = True
        made.persistent = persistent
        return made


LATE = ("Can't access the shape of an uninitialized parameter or buffer. This error usually "
        "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
        "initialized module. Call `forward` to initialize the parameters before accessing their "
        "attributes.")


class Uninitialized:
    """A tensor of a lazy module: it has a dtype and a device, and a shape only from `materialize`
    on."""

    is_lazy = True
    cls_to_become: type

    @property
    def _shape(self) -> Any:
        raise RuntimeError(LATE)

    @property
    def shape(self) -> Any:
        """RuntimeError: there is none yet."""
        raise RuntimeError(LATE)

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Becomes a tensor of this shape, without values."""
        made = Tensor.F.empty(tuple(shape), dtype=dtype or self.dtype, device=device or self.device)
        self.__class__ = self.cls_to_become
        self.data = made

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self: Any, proto: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(Uninitialized, Parameter):  # type: ignore[misc, override]
    """A parameter whose shape is not known yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return alias(cls, Tensor.F.empty((0,), dtype=dtype, device=device), requires_grad)


class UninitializedBuffer(Uninitialized, Tensor):  # type: ignore[misc, override]
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor
    __torch_function__: Any = override.disabled

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                persistent: bool = True) -> Any:
        made = alias(cls, Tensor.F.empty((0,), dtype=dtype, device=device), requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, Uninitialized)


__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy",
           "rebuild"]

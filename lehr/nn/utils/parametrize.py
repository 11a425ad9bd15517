"""Parameters computed from others: `register_parametrization(module, "weight", f)`.

The module's class becomes a subclass with a property of the tensor's name that evaluates
f(original).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from lehr.nn.container import ModuleDict, ModuleList
from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class Cache:
    """Values computed within `cached()`; `depth` counts the blocks."""

    depth = 0
    values: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within the block every parametrized tensor is computed once."""
    Cache.depth += 1
    try:
        yield
    finally:
        Cache.depth -= 1
        if Cache.depth == 0:
            Cache.values = {}


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _swap(target: Any, value: Tensor) -> None:
    """The target's memory becomes the value's."""
    with no_grad():
        target.data = value.data


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the original it is computed from.

    `original`, or original0, original1 .. where the last right inverse gives several tensors.
    """

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new: Any = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    new = module.right_inverse(new)
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError("'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                             "tuple...). "
                             f"Got {type(new).__name__}")
        given: Any = new
        self.is_tensor = isinstance(given, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != given.dtype:
                raise ValueError("When `right_inverse` outputs one tensor, it may not change the "
                                 "dtype.\n"
                                 "original.dtype: "
                                 f"{original.dtype}\nright_inverse(original).dtype: {given.dtype}")
            _swap(original, given)
            _register(self, "original", original)
        else:
            for i, t in enumerate(new):
                if not isinstance(t, Tensor):
                    raise ValueError("'right_inverse' must return a Tensor or a Sequence of "
                                     "tensors (list, "
                                     f"tuple...). Got element {i} of the sequence with type "
                                     f"{type(t).__name__}.")
                if isinstance(original, Parameter):
                    t = Parameter(t, original.requires_grad)
                _register(self, f"original{i}", t)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise ValueError("A parametrization must return a tensor. Got "
                                 f"{type(made).__name__}.")
            if made.dtype != dtype:
                raise ValueError("Registering a parametrization may not change the dtype of the "
                                 "tensor, unless "
                                 f"`unsafe` flag is enabled.\nunparametrized dtype: {dtype}\n"
                                 f"parametrized dtype: {made.dtype}")
            if made.shape != shape:
                raise ValueError("Registering a parametrization may not change the shape of the "
                                 "tensor, unless "
                                 f"`unsafe` flag is enabled.\nunparametrized shape: {shape}\n"
                                 f"parametrized shape: {made.shape}")

    def right_inverse(self, value: Tensor) -> None:
        """Sets the original(s) such that the tensor becomes `value`, as far as the inverses go."""
        with no_grad():
            new: Any = value
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not "
                                       "implement right_inverse.")
                new = module.right_inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError("`right_inverse` should return a tensor. Got "
                                     f"{type(new).__name__}")
                if value.dtype != new.dtype:
                    raise ValueError("The tensor returned by `right_inverse` has dtype "
                                     f"{new.dtype} while `value` has dtype {value.dtype}")
                _swap(self.original, new)
                return
            if len(new) != self.ntensors:
                raise ValueError("'right_inverse' must return a sequence of tensors of length "
                                 f"{self.ntensors}. Got a sequence of length {len(new)}.")
            for i, t in enumerate(new):
                _swap(getattr(self, f"original{i}"), t)

    def forward(self) -> Any:
        """The parametrized tensor."""
        if self.is_tensor:
            x = self[0](self.original)
        else:
            x = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for i in range(1, len(self)):
            x = self[i](x)
        return x


def _inject_class(module: Any) -> None:
    """Gives the module a class of its own, which properties may be put into."""
    cls = module.__class__

    def deep(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        made = self.__new__(self.__class__)
        memo[id(self)] = made
        made.__dict__ = deepcopy(self.__dict__, memo)
        return made

    def state(self: Any) -> Any:
        raise RuntimeError("Serialization of parametrized modules is only supported through "
                           "state_dict().")
    space: dict[str, Any] = {"__getstate__": state, "parametrizations_base": cls,
                             "__module__": cls.__module__}
    if not hasattr(cls, "__deepcopy__"):
        space["__deepcopy__"] = deep
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), space)


def _inject_property(module: Any, name: str) -> None:
    def read(self: Any) -> Any:
        if Cache.depth == 0:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in Cache.values:
            Cache.values[key] = self.parametrizations[name]()
        return Cache.values[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)
    setattr(module.__class__, name, property(read, write))


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> Any:
    """Makes `module.<tensor_name>` the result of `parametrization` on what it was; returns the
    module.

    `unsafe` lets it change shape and dtype. A second parametrization is applied after the first.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            now = getattr(module, tensor_name)
            made = parametrization(now)
            if not isinstance(made, Tensor):
                raise ValueError("A parametrization must return a tensor. Got "
                                 f"{type(made).__name__}.")
            if made.dtype != now.dtype or made.shape != now.shape:
                raise ValueError("Registering a parametrization may not change the dtype or the "
                                 "shape of the tensor, unless the `unsafe` flag is enabled.")
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a "
                         "parametrized element "
                         f"with name '{tensor_name}'")
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether the module (or the named tensor of it) is parametrized."""
    found = getattr(module, "parametrizations", None)
    if found is None or not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Undoes `register_parametrization`; the tensor keeps its parametrized value or gets the
    original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if held.is_tensor:
        original = held.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            _swap(original, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that "
                         "is parametrized in terms of a sequence of tensors.")
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.parametrizations_base
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class that the module had."""
    kind: type = type(module)
    return kind.parametrizations_base if is_parametrized(  # type: ignore[attr-defined]
        module) else kind  # type: ignore[attr-defined,no-any-return]


__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization",
           "remove_parametrizations", "type_before_parametrizations"]

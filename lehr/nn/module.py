"""`Module`: a tree of parameters, buffers and submodules with a `forward`.

Parameters, buffers and children live in three dictionaries and are read as attributes.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from lehr.nn import hook as hooks
from lehr.nn.hook import RemovableHandle, registered
from lehr.nn.parameter import Buffer, Parameter
from lehr.nn.state import Saved
from lehr.tensor import convert
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

TABLES = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
          "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
          "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
          "_load_state_dict_post_hooks")


class Module(Saved):
    """Base class of all layers and models: assign parameters and submodules, define `forward`."""

    dump_patches = False
    call_super_init = False
    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _compiled_call_impl: Any = None
    _is_full_backward_hook: bool | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            shown = next(iter(kwargs)) if kwargs else None
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument '{shown}'"
                if kwargs else f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given")
        space = self.__dict__
        space["training"] = True
        space["_parameters"] = {}
        space["_buffers"] = {}
        space["_non_persistent_buffers_set"] = set()
        for name in TABLES:
            space[name] = OrderedDict()
        space["_is_full_backward_hook"] = None
        space["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; subclasses define it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required '
                                  '"forward" function')

    # -- attributes

    def __getattr__(self, name: str) -> Any:
        space = self.__dict__
        found = space.get("_parameters")
        if found is not None and name in found:
            return found[name]
        found = space.get("_buffers")
        if found is not None and name in found:
            return found[name]
        found = space.get("_modules")
        if found is not None and name in found:
            return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        space = self.__dict__
        if isinstance(value, Tensor) and isinstance(value, Parameter):
            self._clear(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._clear(name, "_parameters", "_buffers")
            self._ready("_modules", "module")[name] = registered(hooks.MODULE, self, name, value)
        elif name in space.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as parameter '{name}' "
                                "(torch.nn.Parameter or None expected)")
            self.register_parameter(name, None)
        elif name in space.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{_typename(value)}' as child module '{name}' "
                                "(torch.nn.Module or None expected)")
            space["_modules"][name] = registered(hooks.MODULE, self, name, value)
        elif name in space.get("_buffers", ()) or (isinstance(value, Tensor)
                                                    and isinstance(value, Buffer)):
            self._set_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"cannot assign '{_typename(value)}' as buffer '{name}' "
                            "(torch.nn.Buffer, torch.Tensor or None expected)")
        if isinstance(value, Buffer):
            self._clear(name, "_parameters", "_modules")
            self.register_buffer(name, value, value.persistent)
        else:
            self.__dict__["_buffers"][name] = registered(hooks.BUFFER, self, name, value)

    def _ready(self, table: str, what: str) -> Any:
        """A registry of this module; AttributeError before `Module.__init__` has run."""
        found = self.__dict__.get(table)
        if found is None:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        return found

    def _clear(self, name: str, *tables: str) -> None:
        """Forgets an attribute that is about to become something else."""
        space = self.__dict__
        space.pop(name, None)
        for table in tables:
            space.get(table, {}).pop(name, None)
        space.get("_non_persistent_buffers_set", set()).discard(name)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        found = {*dir(type(self)), *self.__dict__, *self._parameters, *self._modules,
                 *self._buffers}
        return sorted(k for k in found if not k[0].isdigit())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    # -- registration

    def register_parameter(self, name: str, param: Any) -> None:
        """Adds a parameter (or None, which holds the name)."""
        table = self._ready("_parameters", "parameters")
        self._check_name("parameter", name, table)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                            "(torch.nn.Parameter or None required)")
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly. To express one parameter as a function of others, compute it "
                "in forward().")
        table[name] = registered(hooks.PARAMETER, self, name, param)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Adds a tensor that is state, yet no parameter; `persistent` puts it into state_dict."""
        table = self._ready("_buffers", "buffer")
        self._check_name("buffer", name, table)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                            "(torch Tensor or None required)")
        table[name] = registered(hooks.BUFFER, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Adds a child (or None, which holds the name)."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        if isinstance(name, str):
            if hasattr(self, name) and name not in self._modules:
                raise KeyError(f"attribute '{name}' already exists")
        self._check_name("module", name, None)
        self._modules[name] = registered(hooks.MODULE, self, name, module)

    def register_module(self, name: str, module: Any) -> None:
        """`add_module`."""
        self.add_module(name, module)

    def _check_name(self, what: str, name: Any, table: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."' +
                           (f", got: {name}" if what == "module" else ""))
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if table is not None and name not in table and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # -- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if (self._forward_pre_hooks or self._forward_hooks or self._backward_hooks
                or self._backward_pre_hooks or hooks.FORWARD_PRE or hooks.FORWARD or hooks.BACKWARD
                or hooks.BACKWARD_PRE):
            return hooks.call(self, args, kwargs)
        return self.forward(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles `forward` in place, with the arguments of `lehr.compile`."""
        self._compiled_call_impl = sys.modules["lehr"].compile(self._call_impl, *args, **kwargs)

    # -- hooks

    def register_forward_pre_hook(self, hook: Any, *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """`hook(module, args)` before forward; a result replaces the arguments."""
        return hooks.add(self._forward_pre_hooks, hook, prepend,
                         kwargs=(self._forward_pre_hooks_with_kwargs, with_kwargs))

    def register_forward_hook(self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """`hook(module, args, output)` after forward; a result replaces the output."""
        return hooks.add(self._forward_hooks, hook, prepend,
                         kwargs=(self._forward_hooks_with_kwargs, with_kwargs),
                         always=(self._forward_hooks_always_called, always_call))

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_output)` before the module's backward; a result replaces it."""
        return hooks.add(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` once the inputs' gradients are known."""
        self._one_kind_of_backward_hook(True)
        return hooks.add(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Any) -> RemovableHandle:
        """The deprecated form: the gradients are those of the last operation alone."""
        self._one_kind_of_backward_hook(False)
        return hooks.add(self._backward_hooks, hook)

    def _one_kind_of_backward_hook(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on "
                               "a single Module. Please use only one of them.")
        self._is_full_backward_hook = full

    # -- traversal

    def _named_members(self, get: Callable[[Any], Any], prefix: str = "", recurse: bool = True,
                       remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        seen = set()
        below = (self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse
                 else [(prefix, self)])
        for path, module in below:
            for name, value in get(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, parameter) of this module and, if `recurse`, of those below."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse,
                                       remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """The parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, buffer) of this module and, if `recurse`, of those below."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse,
                                       remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """The buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """(name, module) of the direct children, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """The direct children, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo: Any = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, module) of this module (its name is `prefix`) and all below."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name,
                                                remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all below, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path; AttributeError where there is none."""
        module: Any = self
        if target == "":
            return module
        for name in target.split("."):
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Puts a module at a dotted path; `strict` refuses a name that is new."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """The parameter at a dotted path."""
        return self._tensor_at(target, "_parameters", "nn.Parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer at a dotted path."""
        return self._tensor_at(target, "_buffers", "buffer")

    def _tensor_at(self, target: str, table: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module.__dict__[table] and not (what == "nn.Parameter" and isinstance(
                getattr(module, name), Parameter)):
            raise AttributeError(f"`{name}` is not a{'n' if what[0] == 'n' else ''} {what}")
        return getattr(module, name)

    # -- modes and values

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """Calls `fn` on every module below and then on this one; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Any:
        """Training mode (dropout, batch statistics) of this module and all below; returns self."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Turns the gradients of all parameters on or off; returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the parameters' gradients, or zeroes them."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad = p.grad.detach().zero_()

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Replaces the values of every parameter, gradient and buffer by what `fn` makes of
        them."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is not None:
                self._apply_to(name, param, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _apply_to(self, name: str, param: Any, fn: Callable[[Any], Any]) -> None:
        grad = param.grad
        with no_grad():
            made = fn(param)
        if (made.device.type == "meta") is (param.device.type == "meta"):
            kept = param
            if made is not param:
                if grad is not None and made.dtype is not param.dtype:
                    param.grad = None
                param.data = made
        else:
            kept = self._parameters[name] = Parameter(made, param.requires_grad)
        if grad is not None:
            with no_grad():
                new = fn(grad)
            if new is not kept.grad:
                kept.grad = new.requires_grad_(grad.requires_grad)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves and converts (floating-point) parameters and buffers in place; returns self.

        (device), (dtype), (device, dtype), (tensor), and `memory_format` for those of 4 or 5
        dimensions.
        """
        device, dtype, flags = convert.target(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got "
                            f"desired dtype={dtype}")
        memory = kwargs.get("memory_format")

        def converted(t: Any) -> Any:
            kind = dtype if t.dtype.is_floating_point or t.dtype.is_complex else None
            if memory is not None and t.dim() in (4, 5):
                return convert.to(t, device, kind, False, memory)
            return convert.to(t, device, kind)
        return self._apply(converted)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Gives all tensors memory on `device`, without values."""
        F = Tensor.F
        return self._apply(lambda t: F.empty(tuple(t.shape), dtype=t.dtype, device=device), recurse)

    def type(self, dst_type: Any) -> Any:
        """Converts all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def _floating(self, dtype: str) -> Any:
        return self._apply(lambda t: getattr(t, dtype)() if t.dtype.is_floating_point else t)

    def float(self) -> Any:
        """Converts floating-point tensors to float32."""
        return self._floating("float")

    def double(self) -> Any:
        """Converts floating-point tensors to float64."""
        return self._floating("double")

    def half(self) -> Any:
        """Converts floating-point tensors to float16."""
        return self._floating("half")

    def bfloat16(self) -> Any:
        """Converts floating-point tensors to bfloat16."""
        return self._floating("bfloat16")

    def cpu(self) -> Any:
        """Moves all tensors to the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Any:
        """Moves all tensors to a GPU (the current one unless named)."""
        if device is None or (isinstance(device, int) and not isinstance(device, bool)):
            device = "cuda" if device is None else f"cuda:{device}"
        return self.to(device)

    def share_memory(self) -> Any:
        """Moves all tensors to memory shared between processes."""
        return self._apply(lambda t: t.share_memory_())

    # -- text

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses; subclasses define it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(module).replace("\n", "\n  ")
                    for name, module in self._modules.items()]
        if not children and len(own) < 2:
            return f"{self._get_name()}({extra})"
        lines = "\n  ".join([*own, *children])
        return f"{self._get_name()}(\n  {lines}\n)"


def _typename(value: Any) -> str:
    kind = type(value)
    name = "torch." + kind.__qualname__ if isinstance(value, Tensor) else kind.__qualname__
    where = kind.__module__
    return name if where == "builtins" or where.startswith("lehr") else f"{where}.{name}"


__all__ = ["Module"]

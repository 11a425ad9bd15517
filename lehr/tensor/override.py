"""The `__torch_function__` protocol: classes and modes that take over public functions.

Only public functions ask (`intercept`), and only once some class or mode could answer
(`WATCH.on`): ops called by other ops, gradients and captures never do.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

from lehr.tensor.state import STATE


class Watch:
    """`on`: a class or a mode that takes over functions exists."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


WATCH = Watch()
MISSING = object()  # nobody took over


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of tensor classes that take nothing over (`Parameter`)."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def watch(cls: type) -> None:
    """Called for every subclass of Tensor."""
    if getattr(cls, "__torch_function__", disabled) is not disabled:
        turn_on()


def turn_on() -> None:
    """From now on public functions ask whether somebody takes them over."""
    if not WATCH.on:
        WATCH.on = True
        from lehr.tensor import api
        api.open_methods()


def public(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function written over ops that may be taken over."""
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if WATCH.on:
            made = intercept(wrapper, args, kwargs)
            if made is not MISSING:
                return made
        return function(*args, **kwargs)
    return wrapper


# Where PyTorch's own classes are, beside which lehr may be imported.
THEIRS = frozenset(("torch", "torch.nn.parameter"))


def _takes_over(x: Any) -> bool:
    kind = type(x)
    hook = getattr(kind, "__torch_function__", None)
    if hook is None or hook is disabled or kind.__module__ in THEIRS:
        return False
    from lehr.tensor.tensor import Tensor
    return kind is not Tensor


def _relevant(args: Iterable[Any]) -> list[Any]:
    """The arguments that take over, subclasses before their bases."""
    found: list[Any] = []
    for x in _flat(args):
        if not _takes_over(x) or any(type(y) is type(x) for y in found):
            continue
        place = next((i for i, y in enumerate(found) if issubclass(type(x), type(y))), len(found))
        found.insert(place, x)
    return found


def _flat(args: Iterable[Any]) -> Iterable[Any]:
    for a in args:
        if type(a) in (list, tuple):
            yield from a
        else:
            yield a


def intercept(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of whoever takes the call over, or MISSING."""
    if STATE.functions == 0:
        return MISSING
    found = _relevant([*args, *kwargs.values()]) if STATE.functions == 2 else []
    modes = STATE.modes
    if not found and not modes:
        return MISSING
    types = tuple(type(x) for x in found)
    if STATE.tracer is not None:
        for x in modes[-1:]:
            STATE.tracer.takes_over(type(x).__torch_function__)
    if modes:
        STATE.modes = modes[:-1]
        try:
            made = modes[-1].__torch_function__(func, types, args, kwargs)
        finally:
            STATE.modes = modes
        if made is not NotImplemented:
            return made
    for x in found:
        hook: Any = type(x).__torch_function__
        if STATE.tracer is not None:
            hook = STATE.tracer.taking(type(x))
        made = hook(func, types, args, kwargs)
        if made is not NotImplemented:
            return made
    raise TypeError(f"Multiple dispatch failed for '{resolve_name(func)}'; all __torch_function__ "
                    f"handlers returned NotImplemented: {', '.join(t.__name__ for t in types)}")


def late(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """After a TypeError: an argument that is no tensor may still take the call over."""
    if any(_takes_over(x) for x in _flat([*args, *kwargs.values()])):
        return intercept(func, args, kwargs)
    return MISSING


def default(cls: type, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """`Tensor.__torch_function__`: runs `func`; plain tensors in the result become `cls`."""
    if not all(issubclass(cls, t) for t in types) or foreign(func):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return _converted(func(*args, **kwargs), cls)


def foreign(func: Any) -> bool:
    """Whether it is PyTorch's own function, which was handed a tensor of lehr."""
    return isinstance(func, NATIVE) or str(getattr(func, "__module__", "")).startswith("torch.")


# All of lehr's functions are Python's.
NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
          types.MethodWrapperType)


def _converted(x: Any, cls: type) -> Any:
    from lehr.tensor.tensor import Tensor
    if type(x) is Tensor and cls is not Tensor:
        return as_subclass(x, cls)
    if isinstance(x, (list, tuple)):
        made = [_converted(v, cls) for v in x]
        return type(x)(*made) if hasattr(x, "_fields") else type(x)(made)
    return x


def as_subclass(self: Any, cls: type) -> Any:
    """The same tensor, history included, as an instance of a subclass."""
    made = type(self).F.alias(self)
    made.__class__ = cls
    return made


class DisableTorchFunctionSubclass:
    """Inside, no class takes functions over; modes still do."""

    level = 1

    def __enter__(self) -> None:
        self.before = STATE.functions
        STATE.functions = min(self.level, self.before)

    def __exit__(self, *exc: Any) -> None:
        STATE.functions = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither classes nor modes take functions over."""

    level = 0


class TorchFunctionMode:
    """A context manager whose `__torch_function__(func, types, args, kwargs)` takes over every
    public function called inside."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        turn_on()
        STATE.modes = (*STATE.modes, self)
        return self

    def __exit__(self, *exc: Any) -> None:
        STATE.modes = STATE.modes[:-1]


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether some argument (or a mode) takes functions over."""
    if STATE.functions == 0:
        return False
    return bool(STATE.modes) or (STATE.functions == 2 and bool(_relevant(relevant_args)))


def has_torch_function_unary(x: Any) -> bool:
    return has_torch_function((x,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(public_api: Any, relevant_args: Iterable[Any], *args: Any,
                          **kwargs: Any) -> Any:
    """Lets an argument take over a function of the user's own."""
    made = intercept(public_api, args, kwargs)
    if made is MISSING:
        raise TypeError(f"no implementation found for '{resolve_name(public_api)}' on types that "
                        f"implement __torch_function__: {[type(a) for a in relevant_args]}")
    return made


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Decorator: a function of the user's own that its arguments may take over."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = list(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a tensor or takes functions over."""
    from lehr.tensor.tensor import Tensor
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    return getattr(func, "__qualname__", "").startswith("Tensor.")


def resolve_name(f: Callable[..., Any]) -> str:
    """The public name of a function: "torch.add", "torch.Tensor.add"."""
    return f"torch.{getattr(f, '__qualname__', getattr(f, '__name__', repr(f)))}"

"""Hooks: handles that remove them, and those that hold for every module."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from lehr.nn import backward

Hook = Callable[..., Any]
COUNT = itertools.count()


class RemovableHandle:
    """Removes one hook: `handle.remove()`, or at the end of a `with` block.

    table  the dictionary the hook is in; `extra` are dictionaries that hold options under its id
    """

    def __init__(self, table: Any, *, extra_dict: Any = None) -> None:
        self.id = next(COUNT)
        self.table = weakref.ref(table)
        many = extra_dict if isinstance(extra_dict, (list, tuple)) else [extra_dict]
        self.extra = tuple(weakref.ref(d) for d in many if d is not None)

    def remove(self) -> None:
        """Takes the hook away; a second call does nothing."""
        for ref in (self.table, *self.extra):
            table = ref()
            if table is not None and self.id in table:
                del table[self.id]

    def __getstate__(self) -> tuple[Any, ...]:
        return self.table(), self.id, tuple(r() for r in self.extra)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        table, self.id, extra = state
        self.table = weakref.ref(OrderedDict() if table is None else table)
        self.extra = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def add(table: Any, hook: Hook, first: bool = False,
        **options: Any) -> RemovableHandle:
    """Puts `hook` into `table`, ahead of the others if `first`; `options` maps tables to mark it
    in."""
    extra = [d for d, wanted in options.values() if wanted]
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    for marks in extra:
        marks[handle.id] = True
    if first:
        table.move_to_end(handle.id, last=False)
    return handle


# Hooks of every module.
FORWARD_PRE: OrderedDict[int, Hook] = OrderedDict()
FORWARD: OrderedDict[int, Hook] = OrderedDict()
FORWARD_KWARGS: OrderedDict[int, bool] = OrderedDict()
FORWARD_ALWAYS: OrderedDict[int, bool] = OrderedDict()
BACKWARD_PRE: OrderedDict[int, Hook] = OrderedDict()
BACKWARD: OrderedDict[int, Hook] = OrderedDict()
BUFFER: OrderedDict[int, Hook] = OrderedDict()
MODULE: OrderedDict[int, Hook] = OrderedDict()
PARAMETER: OrderedDict[int, Hook] = OrderedDict()


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, buffer)` at every registration of a buffer; a result replaces the
    buffer."""
    return add(BUFFER, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, child)` at every registration of a module; a result replaces the
    child."""
    return add(MODULE, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, name, parameter)` at every registration of a parameter; a result replaces
    it."""
    return add(PARAMETER, hook)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, args)` before every module's forward; a result replaces the arguments."""
    return add(FORWARD_PRE, hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False,
                                 always_call: bool = False) -> RemovableHandle:
    """`hook(module, args, output)` after every module's forward; a result replaces the output."""
    return add(FORWARD, hook, kwargs=(FORWARD_KWARGS, with_kwargs),
               always=(FORWARD_ALWAYS, always_call))


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, grad_output)` before every module's backward; a result replaces the
    gradients."""
    return add(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` after every module's backward."""
    return add(BACKWARD, hook)


def registered(table: Any, module: Any, name: str, value: Any) -> Any:
    """What the registration hooks of `table` make of `value`."""
    for hook in table.values():
        made = hook(module, name, value)
        if made is not None:
            value = made
    return value


# Calls


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`module.forward` within its hooks and those of every module."""
    called: set[int] = set()
    try:
        return _hooked(module, args, kwargs, called)
    except Exception:
        _run_always(module, args, kwargs, called)
        raise


def _hooked(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
    for key, hook in (*FORWARD_PRE.items(), *module._forward_pre_hooks.items()):
        if key in module._forward_pre_hooks_with_kwargs:
            made = hook(module, args, kwargs)
            if made is not None:
                if not (isinstance(made, tuple) and len(made) == 2):
                    raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, "
                                       f"new_kwargs), but got {made}.")
                args, kwargs = made
        else:
            made = hook(module, args)
            if made is not None:
                args = made if isinstance(made, tuple) else (made,)
    full = [*BACKWARD.values()]
    legacy: list[Hook] = []
    (legacy if module._is_full_backward_hook is False else full).extend(
        module._backward_hooks.values())
    before = [*BACKWARD_PRE.values(), *module._backward_pre_hooks.values()]
    wrap = backward.Wrap(module, full, before) if full or before else None
    if wrap is not None:
        args = wrap.inputs(args)
    result = module.forward(*args, **kwargs)
    for key, hook in (*FORWARD.items(), *module._forward_hooks.items()):
        called.add(key)
        made = _after(module, key, hook, args, kwargs, result)
        if made is not None:
            result = made
    if wrap is not None:
        result = wrap.outputs(result)
    if legacy:
        backward.watch_last(module, legacy, result)
    return result


def _after(module: Any, key: int, hook: Hook, args: Any, kwargs: Any, result: Any) -> Any:
    if key in module._forward_hooks_with_kwargs or key in FORWARD_KWARGS:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def _run_always(module: Any, args: Any, kwargs: Any, called: set[int]) -> None:
    """After an error: the hooks that run in any case and have not yet."""
    for marks, table in ((FORWARD_ALWAYS, FORWARD),
                         (module._forward_hooks_always_called, module._forward_hooks)):
        for key, hook in table.items():
            if key in marks and key not in called:
                try:
                    _after(module, key, hook, args, kwargs, None)
                except Exception as error:  # noqa: BLE001  (warned of; the first one is raised)
                    warnings.warn("module forward hook with ``always_call=True`` raised an "
                                  "exception that was silenced as another error was raised in "
                                  "forward: "
                                  f"{error}", stacklevel=2)

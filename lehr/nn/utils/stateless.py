"""Calls of a module with other parameters and buffers than its own."""

from __future__ import annotations

from typing import Any

from lehr.nn.module import Module
from lehr.tensor.tensor import Tensor


def _tied(module: Module) -> dict[str, set[str]]:
    """Name -> all names of the same tensor."""
    names: dict[int, set[str]] = {}
    for get in (module.named_parameters, module.named_buffers):
        for name, t in get(remove_duplicate=False):
            names.setdefault(id(t), set()).add(name)
    return {name: group for group in names.values() for name in group}


def _put(module: Module, name: str, value: Any) -> Any:
    """Puts a tensor in a registry without any checks; returns what was there."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    for table in (owner._parameters, owner._buffers):
        if last in table:
            old, table[last] = table[last], value
            return old
    raise AttributeError(f"{type(owner).__name__} has no parameter or buffer {last!r}")


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and buffers of modules of one architecture, stacked by name, for `vmap`.

    The stacked parameters are leaves that require gradients as those of the first module do.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(m.training is not models[0].training for m in models):
        raise RuntimeError("stack_module_state: Expected all models to have the same "
                           "training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    made: list[dict[str, Any]] = []
    for tables in ([dict(m.named_parameters()) for m in models],
                   [dict(m.named_buffers()) for m in models]):
        made.append({})
        for name, first in tables[0].items():
            whole = Tensor.F.stack([t[name] for t in tables], 0).detach()
            made[-1][name] = whole.requires_grad_(first.requires_grad)
    return made[0], made[1]


def functional_call(module: Module, parameters_and_buffer_dicts: Any, args: Any = None,
                    kwargs: Any = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """`module(*args, **kwargs)` with the given tensors in the place of its own, by dotted name.

    Several dictionaries may be given in a sequence. `tie_weights` also replaces other names of the
    same tensor; `strict` wants every name. The module's own tensors are back when the call ends.
    """
    given: dict[str, Any] = {}
    parts = ([parameters_and_buffer_dicts] if isinstance(parameters_and_buffer_dicts, dict)
             else list(parameters_and_buffer_dicts))
    for part in parts:
        repeated = given.keys() & part.keys()
        if repeated:
            raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of "
                             "functional call is ambiguous")
        given.update(part)
    tied = _tied(module)
    if strict:
        missing, unexpected = tied.keys() - given.keys(), given.keys() - tied.keys()
        if tie_weights:
            missing = {m for m in missing if not tied[m] & given.keys()}
        if missing or unexpected:
            raise RuntimeError("Error(s) in loading parameters and buffers for "
                               f"{type(module).__name__}: missing keys {sorted(missing)}, "
                               f"unexpected keys {sorted(unexpected)}")
    if tie_weights:
        for name, value in list(given.items()):
            for other in tied.get(name, ()):
                if other in given and given[other] is not value:
                    raise ValueError("functional_call got multiple values for keys "
                                     f"{sorted(tied[name])}, "
                                     "which are tied. Consider using tie_weights=False")
                given[other] = value
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    old: dict[str, Any] = {}
    try:
        for name, value in given.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            old[name] = _put(module, name, value)
        return module(*args, **(kwargs or {}))
    finally:
        for name, value in old.items():
            _put(module, name, value)

"""States of models and optimizers with parameters by name, as checkpoints keep them.

An optimizer's own state counts parameters; here `state` and `param_groups` name them, so that it
can be loaded into another arrangement of the same parameters. Names are those of the model without
the wrappers around it (DistributedDataParallel, compiled modules, checkpoint wrappers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lehr.base import tree
from lehr.distributed import collective, world
from lehr.nn.module import Module
from lehr.optim.optimizer import Optimizer
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

# Class of a wrapper -> (its child's name, whether `state_dict` leaves that out by itself).
WRAPPERS = {"DistributedDataParallel": ("module", False), "DataParallel": ("module", False),
            "OptimizedModule": ("_orig_mod", False),
            "CheckpointWrapper": ("_checkpoint_wrapped_module", True)}


@dataclass
class StateDictOptions:
    """full_state_dict: nothing is sharded here, so states are always full. cpu_offload: copies, so
    that training may go on. broadcast_from_rank0: the first process's state is loaded by all.
    flatten_optimizer_state_dict: "state.NAME.KEY" and "param_groups.NAME.KEY" in one dictionary."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _parts(module: Module) -> Iterator[tuple[str, str, Any]]:
    """(name without wrappers, name in `state_dict`, tensor) of all that a state holds."""
    wrapped, silent = WRAPPERS.get(type(module).__name__, ("", False))
    for name, child in module.named_children():
        for clean, full, t in _parts(child):
            yield (clean if name == wrapped else f"{name}.{clean}",
                   full if name == wrapped and silent else f"{name}.{full}", t)
    for name, t in (*module._parameters.items(), *module._buffers.items()):
        if t is not None and name not in module._non_persistent_buffers_set:
            yield name, name, t


def _parameters(model: Module) -> dict[int, str]:
    """Parameter's identity -> name."""
    found = {id(t): clean for clean, _, t in _parts(model)}
    return {id(p): found[id(p)] for p in model.parameters() if id(p) in found}


def _ready(options: StateDictOptions | None, submodules: Any = None) -> StateDictOptions:
    if submodules is not None:
        raise NotImplementedError("submodules=: take the whole state and keep the names that begin "
                                  "with the submodule's")
    chosen = StateDictOptions() if options is None else options
    if chosen.broadcast_from_rank0 and not chosen.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    if chosen.dsd_fqn_modifiers != StateDictOptions.dsd_fqn_modifiers:
        raise NotImplementedError("dsd_fqn_modifiers=: rename the keys of the state instead")
    return chosen


def _given(state: Any, options: StateDictOptions) -> Any:
    """A state to hand out: copies where they are asked for."""
    return tree.map(lambda t: t.detach().cpu().clone() if isinstance(t, Tensor) else t,
                    state) if options.cpu_offload else state


def _taken(state: Any, options: StateDictOptions) -> Any:
    """A state to load: the first process's where that is asked for."""
    if not options.broadcast_from_rank0 or not world.is_initialized():
        return state
    held = [state]
    collective.broadcast_object_list(held, 0)
    return held[0]


def get_model_state_dict(model: Module, *, submodules: Any = None,
                         options: StateDictOptions | None = None) -> dict[str, Any]:
    """`model.state_dict()` under names without wrappers."""
    chosen = _ready(options, submodules)
    made = {}
    frozen = {id(p) for p in model.parameters() if not p.requires_grad}
    names = {full: (clean, t) for clean, full, t in _parts(model)}
    for full, value in model.state_dict().items():
        clean, t = names.get(full, (full, value))
        if not (chosen.ignore_frozen_params and id(t) in frozen):
            made[clean] = value
    found: dict[str, Any] = _given(made, chosen)
    return found


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *,
                         options: StateDictOptions | None = None) -> Any:
    """Loads what `get_model_state_dict` gave; (missing_keys, unexpected_keys)."""
    chosen = _ready(options)
    full = {clean: name for clean, name, _ in _parts(model)}
    given = _taken(model_state_dict, chosen)
    return model.load_state_dict({full.get(k, k): v for k, v in given.items()},
                                 strict=chosen.strict)


def _several(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def _init_optim_state(optim: Optimizer) -> None:
    """Lets an optimizer that never stepped make its state: a step of size 0 on gradients of 0."""
    if optim.state:
        return
    params = [p for g in optim.param_groups for p in g["params"]]
    if any(p.grad is not None for p in params):
        raise RuntimeError("state_dict can only be used if the optimizer states are initialized "
                           "(usually after one step() with gradients) or gradients are None")
    rates = [g.get("lr") for g in optim.param_groups]
    for p in params:
        if p.requires_grad:
            p.grad = Tensor.F.zeros_like(p)
    for g in optim.param_groups:
        if "lr" in g:
            g["lr"] = Tensor.F.zeros_like(g["lr"]) if isinstance(g["lr"], Tensor) else 0.0
    with no_grad():
        optim.step(closure=None)
    for g, rate in zip(optim.param_groups, rates, strict=True):
        if "lr" in g:
            g["lr"] = rate
    optim.zero_grad(set_to_none=True)


def get_optimizer_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer], *,
                             submodules: Any = None,
                             options: StateDictOptions | None = None) -> dict[str, Any]:
    """{"state": {name: ...}, "param_groups": [{"params": [name, ...], ...}]} of all optimizers."""
    chosen = _ready(options, submodules)
    names = _parameters(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optim in _several(optimizers):
        _init_optim_state(optim)
        kept = optim.state_dict()
        number = 0
        for have, group in zip(optim.param_groups, kept["param_groups"], strict=True):
            labels = []
            for p in have["params"]:
                if id(p) not in names:
                    raise RuntimeError("a parameter of the optimizer is none of the model's")
                if number in kept["state"] and not (chosen.ignore_frozen_params
                                                    and not p.requires_grad):
                    state[names[id(p)]] = kept["state"][number]
                labels.append(names[id(p)])
                number += 1
            groups.append({**group, "params": labels})
    made: dict[str, Any] = {"state": state, "param_groups": groups}
    if chosen.flatten_optimizer_state_dict:
        made = _flat(made)
    found: dict[str, Any] = _given(made, chosen)
    return found


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    made = {f"state.{name}.{key}": value for name, values in nested["state"].items()
            for key, value in values.items()}
    for group in nested["param_groups"]:
        for name in group["params"]:
            made.update({f"param_groups.{name}.{key}": value for key, value in group.items()
                         if key != "params"})
    return made


def _nested(flat: dict[str, Any], names: dict[int, str], optim: Optimizer) -> dict[str, Any]:
    """What `_flat` had, for the groups of an optimizer."""
    groups, state = [], {}
    for group in optim.param_groups:
        labels = [names[id(p)] for p in group["params"]]
        first = f"param_groups.{labels[0]}." if labels else "param_groups."
        groups.append({"params": labels, **{k[len(first):]: v for k, v in flat.items()
                                            if k.startswith(first)}})
        for name in labels:
            start = f"state.{name}."
            found = {k[len(start):]: v for k, v in flat.items() if k.startswith(start)}
            if found:
                state[name] = found
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer],
                             optim_state_dict: dict[str, Any], *,
                             options: StateDictOptions | None = None) -> None:
    """Loads what `get_optimizer_state_dict` gave. RuntimeError names a parameter that it lacks."""
    chosen = _ready(options)
    names = _parameters(model)
    given = _taken(optim_state_dict, chosen)
    for optim in _several(optimizers):
        _init_optim_state(optim)
        named = (_nested(given, names, optim)
                 if "param_groups" not in given and "state" not in given else given)
        by_name = {name: group for group in named["param_groups"] for name in group["params"]}
        state, groups, number = {}, [], 0
        for group in optim.param_groups:
            labels = [names[id(p)] for p in group["params"]]
            for name in labels:
                if name not in by_name:
                    raise RuntimeError(f"the state has no parameter {name!r}")
                if name in named["state"]:
                    state[number] = named["state"][name]
                number += 1
            values = by_name[labels[0]] if labels else {}
            groups.append({**{k: v for k, v in group.items() if k != "params"},
                           **{k: v for k, v in values.items() if k != "params"},
                           "params": list(range(number - len(labels), number))})
        optim.load_state_dict({"state": state, "param_groups": groups})


def get_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer], *,
                   submodules: Any = None, options: StateDictOptions | None = None
                   ) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the model's state, the optimizers')."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model: Module, optimizers: Optimizer | Iterable[Optimizer], *,
                   model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
                   options: StateDictOptions | None = None) -> Any:
    """Loads both; (missing_keys, unexpected_keys) of the model."""
    made = set_model_state_dict(model, model_state_dict, options=options)
    if _several(optimizers):
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return made

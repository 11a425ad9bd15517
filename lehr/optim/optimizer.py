"""`Optimizer`: parameter groups, per-parameter state, and the steps' common parts."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from lehr.base import dtype as dt
from lehr.nn.hook import RemovableHandle, add
from lehr.tensor.mode import set_grad_enabled
from lehr.tensor.tensor import Tensor

ParamsT = Any
StateDict = dict[str, Any]  # what `state_dict` returns
required: Any = object()

# Hooks of every optimizer's step.
PRE: OrderedDict[int, Any] = OrderedDict()
POST: OrderedDict[int, Any] = OrderedDict()

TABLES = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks",
          "_optimizer_state_dict_pre_hooks",
          "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
          "_optimizer_load_state_dict_post_hooks")


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` before every optimizer's step."""
    return add(PRE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` after every optimizer's step."""
    return add(POST, hook)


def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` between the hooks before and after it."""
    @functools.wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or PRE or POST):
            return step(self, *args, **kwargs)
        for hook in (*PRE.values(), *self._optimizer_step_pre_hooks.values()):
            made = hook(self, args, kwargs)
            if made is not None:
                if not (isinstance(made, tuple) and len(made) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, "
                                       "new_kwargs), but "
                                       f"got {made}.")
                args, kwargs = made
        out = step(self, *args, **kwargs)
        for hook in (*self._optimizer_step_post_hooks.values(), *POST.values()):
            hook(self, args, kwargs)
        return out
    run.hooked = True  # type: ignore[attr-defined]
    return run


def _undefined(self: Any, closure: Any = None) -> Any:
    """One step of the optimization: what each optimizer defines."""
    raise NotImplementedError(f"{type(self).__name__} defines no step")


class Optimizer:
    """Base of the optimizers.

    params    tensors, (name, tensor) pairs, or dictionaries of groups with their own settings
    defaults  the settings of groups that name none
    """

    step: Callable[..., Any] = _undefined
    defaults: dict[str, Any]
    state: Any
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = hooked(step)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in TABLES:
            setattr(self, name, OrderedDict())
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of "
                            "Tensors or "
                            f"dicts, but got {type(params).__name__}")
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in TABLES:
            self.__dict__.setdefault(name, OrderedDict())
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"{chr(10) if i else ''}Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # -- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with settings of their own; those not named are the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif isinstance(given, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but "
                            "the ordering of tensors in sets will change between runs. Please use "
                            "a list instead.")
        given = list(given)
        if given and isinstance(given[0], tuple):
            param_group["param_names"] = [name for name, _ in given]
            given = [p for _, p in given]
        for p in given:
            self._check(p)
        param_group["params"] = given
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError("parameter group didn't specify a value of required optimization "
                                 "parameter "
                                 f"{name}")
            param_group.setdefault(name, default)
        if len(given) != len(set(given)):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in "
                          "future, this will cause an error", stacklevel=3)
        known = {p for group in self.param_groups for p in group["params"]}
        if not known.isdisjoint(given):
            raise ValueError("some parameters appear in more than one parameter group")
        if self.param_groups and ("param_names" in param_group) != (
            "param_names" in self.param_groups[0]):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                "with names to the optimizer without names, or the reverse")
        self.param_groups.append(param_group)

    def _check(self, p: Any) -> None:
        if not isinstance(p, Tensor):
            raise TypeError(f"optimizer can only optimize Tensors, but one of the params is "
                            f"{type(p).__name__}")
        if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")

    # -- steps

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the parameters' gradients, or zeroes them."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = p.grad.detach().zero_()

    def _update(self) -> None:
        """One step of all groups; subclasses define it, or `step` itself."""
        raise NotImplementedError

    def _init_state(self, state: dict[str, Any], p: Any, group: dict[str, Any]) -> None:
        """Fills the state that a parameter's first step starts from."""

    def _state_of(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter, made at its first step.

        A capture of a step calls this for real before it goes on (`__lehr_prime__`): what it makes
        is what that very step would have made, and the first step has the graph of all others.
        """
        state: dict[str, Any] = self.state[p]
        if not state:
            self._init_state(state, p, group)
        return state

    def _unmade(self, p: Any, group: dict[str, Any]) -> Callable[[], None] | None:
        """What takes back what `_state_of` makes; None where the state is there."""
        store = self.state
        if p not in store:
            return lambda: store.pop(p, None)
        return None if store[p] else store[p].clear

    _state_of.__lehr_prime__ = _unmade  # type: ignore[attr-defined]

    def _stepped(self, closure: Callable[[], Any] | None) -> Any:
        """`step` of the optimizers here: the closure with recording, the update without."""
        loss = None
        if closure is not None:
            with set_grad_enabled(True):
                loss = closure()
        with set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            self._update()
        return loss

    # -- saving

    def state_dict(self) -> dict[str, Any]:
        """`state` by parameter number and `param_groups` with numbers in the place of
        parameters."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        made = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            new = hook(self, made)
            if new is not None:
                made = new
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave: settings, and state on the parameters' device and
        dtype."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            new = hook(self, state_dict)
            if new is not None:
                state_dict = new
        mine, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(mine) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(mine, saved, strict=True)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the "
                             "size of optimizer's group")
        params = dict(zip(chain.from_iterable(g["params"] for g in saved),
                          chain.from_iterable(g["params"] for g in mine), strict=True))
        group_of = {number: g for g in saved for number in g["params"]}
        state: Any = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = _fitted(params[key], value, group_of[key])
            else:
                state[key] = value
        groups = []
        for own, new in zip(mine, saved, strict=True):
            new["params"] = own["params"]
            if "param_names" in own and "param_names" not in new:
                new["param_names"] = own["param_names"]
            groups.append(new)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # -- hooks

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` before a step; a result replaces (args, kwargs)."""
        return add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` after a step."""
        return add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` before saving."""
        return add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` after saving; a result replaces the dictionary."""
        return add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Any,
                                          prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` before loading; a result replaces the dictionary."""
        table = self._optimizer_load_state_dict_pre_hooks
        return add(table, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Any,
                                           prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` after loading."""
        table = self._optimizer_load_state_dict_post_hooks
        return add(table, hook, prepend)


def _fitted(param: Tensor, value: Any, group: dict[str, Any], key: Any = None) -> Any:
    """A saved value on the parameter's device, in its dtype; step counts keep theirs."""
    if isinstance(value, Tensor):
        if key == "step":
            if group.get("capturable") or group.get("fused"):
                return value.to(device=param.device, dtype=dt.float32)
            return value
        if param.dtype.is_floating_point:
            return value.to(device=param.device, dtype=param.dtype)
        return value.to(device=param.device)
    if isinstance(value, dict):
        return {k: _fitted(param, v, group, k) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_fitted(param, v, group) for v in value)  # type: ignore[call-arg]
    return value


__all__ = ["Optimizer", "ParamsT", "StateDict", "register_optimizer_step_post_hook",
           "register_optimizer_step_pre_hook",
           "required"]

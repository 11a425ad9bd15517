"""`state_dict` and `load_state_dict`: a module's tensors by dotted name, out and in again."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from lehr.nn import hook as hooks
from lehr.nn.hook import RemovableHandle
from lehr.nn.parameter import Parameter, is_lazy
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

EXTRA = "_extra_state"


class _Found(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class Keys(_Found):
    """What `load_state_dict` found missing in the dictionary, and unexpected there."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, "
                f"unexpected_keys={self.unexpected_keys!r})")

    __str__ = __repr__


class Saved:
    """The part of `Module` that saves and loads."""

    _version = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Any]
    _state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_post_hooks: OrderedDict[int, Any]

    def get_extra_state(self) -> Any:
        """State beyond tensors that state_dict should hold; subclasses define it."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be "
                           "called.")

    def set_extra_state(self, state: Any) -> None:
        """Takes what `get_extra_state` gave; subclasses define it."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be "
                           "called.")

    def _own_state(self) -> dict[str, Any]:
        """Parameters and persistent buffers, without those that are None."""
        kept = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        return {k: v for k, v in (*self._parameters.items(), *kept.items()) if v is not None}

    # -- saving

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> Any:
        """An ordered dictionary from dotted names to tensors, which share the module's memory.

        `keep_vars` gives the parameters themselves instead of detached tensors.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.",
                          FutureWarning, stacklevel=2)
            named: tuple[Any, ...] = (destination, prefix, keep_vars)
            destination, prefix, keep_vars = (*args, *named[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.",
                                  keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            made = hook(self, destination, prefix, local)
            if getattr(hook, "_from_public_api", False):
                if made is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif made is not None:
                destination = made
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Adds this module's own state to `destination`."""
        for name, t in self._own_state().items():
            destination[prefix + name] = t if keep_vars or is_lazy(t) else t.detach()
        if type(self).get_extra_state is not Saved.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    # -- loading

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> Keys:
        """Copies the dictionary's tensors into parameters and buffers of the same names.

        strict   every name must be on both sides, else RuntimeError
        assign   put the dictionary's tensors in the place of the old ones instead of copying
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        own: Any = OrderedDict(state_dict)
        if metadata is not None:
            own._metadata = metadata
        _load(self, own, "", metadata, assign, (missing, unexpected, errors))
        if strict:
            for title, keys in (("Missing", missing), ("Unexpected", unexpected)):
                if keys:
                    listed = ", ".join(f'"{k}"' for k in keys)
                    place = 1 if title == "Unexpected" and missing else 0
                    errors.insert(place, f"{title} key(s) in state_dict: {listed}. ")
        if errors:
            lines = "\n\t".join(errors)
            raise RuntimeError("Error(s) in loading state_dict for "
                               f"{type(self).__name__}:\n\t{lines}")
        return Keys(missing, unexpected)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        """Loads this module's own state from the names that begin with `prefix`."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                 error_msgs)
        own = self._own_state()
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, t in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_one(name, t, key, state_dict[key], assign)
                if problem is not None:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA
        if type(self).set_extra_state is not Saved.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first, dot, _ = key[len(prefix):].partition(".")
                    if first not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def _load_one(self, name: str, t: Any, key: str, given: Any, assign: bool) -> str | None:
        """Loads one tensor; what is wrong with it, or None."""
        if not isinstance(given, Tensor):
            return (f'While copying the parameter named "{key}", expected torch.Tensor or '
                    f"Tensor-like object from checkpoint but received {type(given)}")
        if is_lazy(t):
            return None
        if len(t._shape) == 0 and len(given._shape) == 1:
            given = given.reshape(())
        if tuple(given._shape) != tuple(t._shape):
            return (f"size mismatch for {key}: copying a param with shape {given.shape} from "
                    f"checkpoint, the shape in current model is {t.shape}.")
        if t.device.type == "meta" and given.device.type != "meta" and not assign:
            warnings.warn(f"for {key}: copying from a non-meta parameter in the checkpoint to a "
                          "meta parameter in the current model, which is a no-op. (Did you mean to "
                          "pass `assign=True` to assign items in the state dictionary to their "
                          "corresponding key in the module instead of copying them in place?)",
                          stacklevel=2)
            return None
        try:
            with no_grad():
                if assign:
                    self._assign(name, t, given)
                else:
                    t.copy_(given)
        except Exception as error:  # noqa: BLE001  (reported with the others)
            return (f'While copying the parameter named "{key}", whose dimensions in the model are '
                    f"{t.size()} and whose dimensions in the checkpoint are {given.size()}, an "
                    f"exception occurred : {error.args}.")
        return None

    def _assign(self, name: str, t: Any, given: Any) -> None:
        if isinstance(t, Parameter):
            if isinstance(given, Parameter):
                given.requires_grad_(t.requires_grad)
            else:
                given = Parameter(given, requires_grad=t.requires_grad)
        setattr(self, name, given)

    # -- hooks

    def _register_state_dict_hook(self, hook: Any) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that "
                               "was previously registered via register_state_dict_post_hook")
        return hooks.add(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` after saving; changes it in place."""
        hook._from_public_api = True
        return hooks.add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` before saving."""
        return hooks.add(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Any,
                                           with_module: bool = False) -> RemovableHandle:
        bound = hook if not with_module else (lambda *args: hook(self, *args))
        return hooks.add(self._load_state_dict_pre_hooks, bound)

    def register_load_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected,
        errors)`."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """`hook(module, incompatible_keys)` after loading; may change the lists of keys."""
        return hooks.add(self._load_state_dict_post_hooks, hook)


def _load(module: Any, state: Any, prefix: str, metadata: Any, assign: bool, found: Any) -> None:
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = assign
    missing, unexpected, errors = found
    module._load_from_state_dict(state, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            front = f"{prefix}{name}."
            below = {k: v for k, v in state.items() if k.startswith(front)}
            _load(child, below, front, metadata, assign, found)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, Keys(missing, unexpected)) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are "
                                 "not expected to return new values, if incompatible_keys need to "
                                 "be modified, it should be done inplace.")


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix ("module.") from all keys that have it, in place and in order."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix):]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
                metadata[key[len(prefix):]] = metadata.pop(key)

"""Weight normalization by a hook: <name>_g and <name>_v (Salimans & Kingma, 2016)."""

from __future__ import annotations

from typing import Any

from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.tensor.tensor import Tensor


class WeightNorm:
    """The forward pre-hook that computes the weight."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        """g v / |v|."""
        g, v = (getattr(module, f"{self.name}_{part}") for part in "gv")
        return Tensor.F._weight_norm(v, g, self.dim)  # type: ignore[no-any-return]

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _hook_of(module: Any, name: str, kind: type) -> Any:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:  # type: ignore[attr-defined]
            return key
    return None


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Splits a weight into magnitude and direction (see parametrizations.weight_norm for the newer
    form)."""
    if _hook_of(module, name, WeightNorm) is not None:
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g",
                              Parameter(Tensor.F.norm_except_dim(weight, 2, hook.dim).data))
    module.register_parameter(name + "_v", Parameter(weight.data))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again."""
    key = _hook_of(module, name, WeightNorm)
    if key is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = module._forward_pre_hooks.pop(key).compute_weight(module)
    delattr(module, name)
    for part in "gv":
        del module._parameters[f"{name}_{part}"]
    setattr(module, name, Parameter(weight.data))
    return module

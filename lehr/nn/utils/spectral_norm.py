"""Spectral normalization by a hook: <name>_orig, <name>_u, <name>_v (Miyato et al., 2018)."""

from __future__ import annotations

from typing import Any

from lehr.nn import functional as F
from lehr.nn.module import Module
from lehr.nn.parameter import Parameter
from lehr.nn.utils.weight_norm import _hook_of
from lehr.tensor import random
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class SpectralNorm:
    """The forward pre-hook that computes the weight."""

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0,
                 eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """[outputs, everything else]."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.reshape(weight.size(0), -1)  # type: ignore[no-any-return]

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        """The original over its largest singular value."""
        weight = getattr(module, self.name + "_orig")
        u, v = (getattr(module, f"{self.name}_{part}") for part in "uv")
        matrix = self.reshape_weight_to_matrix(weight)
        mv = Tensor.F.mv
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(mv(Tensor.F.t(matrix), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(mv(matrix, v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()
        return weight / Tensor.F.dot(u, mv(matrix, v))  # type: ignore[no-any-return]

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divides a weight by its spectral norm (see parametrizations.spectral_norm for the newer
    form)."""
    if _hook_of(module, name, SpectralNorm) is not None:
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    hook = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    with no_grad():
        rows, cols = hook.reshape_weight_to_matrix(weight).shape
        u, v = (F.normalize(Tensor.F.normal((size,), 0.0, 1.0, *random.take(None),
                                            dtype=weight.dtype, device=weight.device), dim=0,
                            eps=eps)
                for size in (rows, cols))
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again."""
    key = _hook_of(module, name, SpectralNorm)
    if key is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    hook: Any = module._forward_pre_hooks.pop(key)
    with no_grad():
        weight = hook.compute_weight(module, False)
    delattr(module, name)
    for part in ("_u", "_v"):
        delattr(module, name + part)
    delattr(module, name + "_orig")
    module.register_parameter(name, Parameter(weight.detach()))
    return module

"""Muon: momentum of matrices, made orthogonal."""

from __future__ import annotations

import math
from typing import Any

from lehr.optim.optimizer import ParamsT
from lehr.optim.rate import check
from lehr.optim.stepped import Stepped
from lehr.tensor.tensor import Tensor

# How a matrix's shape scales the learning rate.
RATIOS: dict[str | None, Any] = {
    None: lambda rows, cols: math.sqrt(max(1, rows / cols)),
    "original": lambda rows, cols: math.sqrt(max(1, rows / cols)),
    "match_rms_adamw": lambda rows, cols: 0.2 * math.sqrt(max(rows, cols)),
}


class Muon(Stepped):
    """Momentum orthogonalised by Newton-Schulz iterations in bfloat16 (Jordan et al., 2024).

    For 2-D parameters alone; `adjust_lr_fn` is None, "original" or "match_rms_adamw" (Liu et al.,
    2025).
    """

    op = "muon_step"
    slots = ("momentum_buffer",)

    def __init__(self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1,
                 momentum: float = 0.95, nesterov: bool = True,
                 ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None) -> None:
        check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn not in RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn})
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError("Muon only supports 2D parameters whereas we found a "
                                     "parameter with "
                                     f"size: {p.size()}")

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": Tensor.F.zeros_like(p)}

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        steps = group["ns_steps"]
        if steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        return (group["lr"], group["weight_decay"], group["momentum"], group["nesterov"],
                *group["ns_coefficients"], group["eps"], steps,
                RATIOS[group["adjust_lr_fn"]](*p.shape))

"""Adam and its forms with one rule."""

from __future__ import annotations

from typing import Any

from lehr.optim.optimizer import ParamsT
from lehr.optim.rate import check, check_betas, count
from lehr.optim.stepped import Stepped
from lehr.tensor.tensor import Tensor


class Adam(Stepped):
    """Adam (Kingma & Ba, 2014): p -= lr m^ / (sqrt(v^) + eps).

    m and v are running means of g and g^2 (`betas`), m^ and v^ corrected for their start at 0; with
    `amsgrad` v^ is the greatest so far. `weight_decay` joins the gradient, or with
    `decoupled_weight_decay` shrinks p. `foreach`, `fused`, `capturable` and `differentiable` are
    accepted; there is one implementation.
    """

    op = "adam_step"
    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
                 foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if group["amsgrad"] else 2]
        return {"step": count(), **{name: Tensor.F.zeros_like(p) for name in names}}

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        return (group["lr"], *group["betas"], group["eps"], group["weight_decay"],
                group["decoupled_weight_decay"], group["maximize"])


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2017): p *= 1 - lr weight_decay
    first."""

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 maximize: bool = False, foreach: bool | None = None, capturable: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach,
                         maximize=maximize, capturable=capturable, differentiable=differentiable,
                         fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True

"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from lehr.optim.optimizer import Optimizer, ParamsT
from lehr.optim.rate import check
from lehr.tensor.tensor import Tensor
from lehr.tensor.update import update


class SGD(Optimizer):
    """v = momentum v + (1 - dampening) g; p -= lr v (Nesterov: p -= lr (g + momentum v)).

    `foreach`, `fused` and `differentiable` are accepted; there is one implementation.
    """

    def __init__(self, params: ParamsT, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0,
                 weight_decay: Any = 0, nesterov: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, differentiable: bool = False,
                 fused: bool | None = None) -> None:
        check(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused})

    def _init_state(self, state: dict[str, Any], p: Any, group: dict[str, Any]) -> None:
        # From zeros, the first step is like any other, unless dampening would hold it back, too.
        if group["dampening"] == 0:
            state["momentum_buffer"] = Tensor.F.zeros_like(p)

    def step(self, closure: Any = None) -> Any:
        """One step; `closure` computes the loss again and returns it."""
        return self._stepped(closure)

    def _update(self) -> None:
        for group in self.param_groups:
            momentum = group["momentum"]
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                buffer, first = None, False
                if momentum != 0:
                    state = self._state_of(p, group)
                    buffer = state.get("momentum_buffer")
                    if buffer is None:
                        first = True
                        buffer = state["momentum_buffer"] = Tensor.F.zeros_like(p)
                update("sgd_step", (p, grad, buffer, group["lr"], momentum, group["dampening"],
                                    group["weight_decay"], group["nesterov"], group["maximize"],
                                    first),
                       (0, 2))

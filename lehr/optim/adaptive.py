"""Optimizers with a step size for each element: relatives of Adam and Adagrad."""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.optim.optimizer import ParamsT
from lehr.optim.rate import check, check_betas, count
from lehr.optim.stepped import Stepped
from lehr.tensor.info import finfo
from lehr.tensor.tensor import Tensor


class NAdam(Stepped):
    """Adam with Nesterov momentum (Dozat, 2016)."""

    op = "nadam_step"
    slots = ("exp_avg", "exp_avg_sq", "mu_product", "step")

    def __init__(self, params: ParamsT, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
                 maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        F = Tensor.F
        return {"step": count(), "mu_product": F.full((), 1.0, dtype=dt.float32),
                "exp_avg": F.zeros_like(p), "exp_avg_sq": F.zeros_like(p)}

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        return (group["lr"], *group["betas"], group["eps"], group["weight_decay"],
                group["momentum_decay"], group["decoupled_weight_decay"], group["maximize"])


class RAdam(Stepped):
    """Rectified Adam (Liu et al., 2019)."""

    op = "radam_step"
    slots = ("exp_avg", "exp_avg_sq", "step")

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False,
                 *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable})

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        return (group["lr"], *group["betas"], group["eps"], group["weight_decay"],
                group["decoupled_weight_decay"], group["maximize"])


class Adamax(Stepped):
    """Adam with the infinity norm (Kingma & Ba, 2014)."""

    op = "adamax_step"
    slots = ("exp_avg", "exp_inf", "step")

    def __init__(self, params: ParamsT, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *,
                 maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        return (group["lr"], *group["betas"], group["eps"], group["weight_decay"],
                group["maximize"])


class Adadelta(Stepped):
    """Adadelta (Zeiler, 2012)."""

    op = "adadelta_step"
    slots = ("square_avg", "acc_delta", "step")
    settings = ("lr", "rho", "eps", "weight_decay", "maximize")

    def __init__(self, params: ParamsT, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
                 maximize: bool = False, differentiable: bool = False) -> None:
        check(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable})


class Adagrad(Stepped):
    """Adagrad (Duchi et al., 2011)."""

    op = "adagrad_step"
    slots = ("sum", "step")
    settings = ("lr", "lr_decay", "eps", "weight_decay", "maximize")

    def __init__(self, params: ParamsT, lr: Any = 1e-2, lr_decay: float = 0,
                 weight_decay: float = 0, initial_accumulator_value: float = 0, eps: float = 1e-10,
                 foreach: bool | None = None, *, maximize: bool = False,
                 differentiable: bool = False, fused: bool | None = None) -> None:
        check(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps,
              initial_accumulator_value=initial_accumulator_value)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(self._start(p, group))

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        value = group["initial_accumulator_value"]
        return {"step": count(), "sum": Tensor.F.full_like(
            p, complex(value, value) if p.dtype.is_complex else value)}

    def share_memory(self) -> None:
        """Moves the state to memory shared between processes."""
        for state in self.state.values():
            state["sum"].share_memory_()


class RMSprop(Stepped):
    """Gradients over the root of their mean square (Hinton, 2012), or standard deviation if
    `centered`."""

    op = "rmsprop_step"
    slots = ("square_avg", "momentum_buffer", "grad_avg", "step")
    settings = ("lr", "alpha", "eps", "weight_decay", "momentum", "maximize")

    def __init__(self, params: ParamsT, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0, momentum: float = 0, centered: bool = False,
                 capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        check(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return {"step": count(), **{name: Tensor.F.zeros_like(p) for name in names}}


class Rprop(Stepped):
    """Resilient propagation (Riedmiller & Braun, 1993)."""

    op = "rprop_step"
    slots = ("prev", "step_size", "step")

    def __init__(self, params: ParamsT, lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
                 foreach: bool | None = None, maximize: bool = False,
                 differentiable: bool = False) -> None:
        check(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        F, lr = Tensor.F, group["lr"]
        size = F.zeros_like(p) + F.to_dtype(lr, p.dtype) if isinstance(lr, Tensor) else F.full_like(
            p, complex(lr, lr) if p.dtype.is_complex else lr)
        return {"step": count(), "prev": F.zeros_like(p), "step_size": size}

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        return (*group["etas"], *group["step_sizes"], group["maximize"])


class ASGD(Stepped):
    """Averaged stochastic gradient descent (Polyak & Juditsky, 1992): the average is state "ax"."""

    op = "asgd_step"
    slots = ("eta", "mu", "ax", "step")
    settings = ("lr", "lambd", "alpha", "t0", "weight_decay", "maximize")

    def __init__(self, params: ParamsT, lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
                 t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
                 maximize: bool = False, differentiable: bool = False,
                 capturable: bool = False) -> None:
        check(lr=lr, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        F, lr = Tensor.F, group["lr"]
        eta = (F.clone(F.to_dtype(lr.detach(), dt.float32)) if isinstance(lr, Tensor)
               else F.full((), lr, dtype=dt.float32))
        return {"step": count(), "eta": eta, "mu": F.full((), 1.0, dtype=dt.float32),
                "ax": F.zeros_like(p)}


class Adafactor(Stepped):
    """Second moments of matrices kept as two vectors (Shazeer & Stern, 2018)."""

    op = "adafactor_step"
    slots = ("row_var", "col_var", "variance", "step")

    def __init__(self, params: ParamsT, lr: Any = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
                 weight_decay: float = 0.0, *, foreach: bool | None = None,
                 maximize: bool = False) -> None:
        check(lr=lr, weight_decay=weight_decay)
        if beta2_decay > 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and eps[0] < 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if eps[1] < 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if d < 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize})

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        def zeros(shape: tuple[int, ...]) -> Tensor:
            made: Any = Tensor.F.full(shape, 0.0, dtype=p.dtype, device=p.device)
            return made
        shape = tuple(p.shape)
        if len(shape) < 2:
            return {"step": count(), "variance": zeros(shape)}
        return {"step": count(), "row_var": zeros((*shape[:-1], 1)),
                "col_var": zeros((*shape[:-2], 1, shape[-1]))}

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        eps1, eps2 = group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        return (group["lr"], group["beta2_decay"], eps1, eps2, group["d"], group["weight_decay"],
                group["maximize"])

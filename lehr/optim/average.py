"""Averages of a model's weights over training (Izmailov et al., 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from lehr.base import dtype as dt
from lehr.nn.batch import _BatchNorm
from lehr.nn.module import Module
from lehr.optim.cycle import per_group
from lehr.optim.optimizer import Optimizer
from lehr.optim.schedule import LRScheduler
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor

AvgFn = Callable[[Any, Any, Any], Any]


def get_swa_avg_fn() -> AvgFn:
    """(average, value, how many so far) -> the mean with one more."""
    @no_grad()
    def average(averaged: Any, current: Any, num_averaged: Any) -> Any:
        return averaged + (current - averaged) / (num_averaged + 1)
    return average  # type: ignore[no-any-return]


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """(average, value, _) -> the exponential moving average."""
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] "
                         "range.")

    @no_grad()
    def average(averaged: Any, current: Any, num_averaged: Any) -> Any:
        return decay * averaged + (1 - decay) * current
    return average  # type: ignore[no-any-return]


def _in_place(step: Callable[[Any, Any, Any], None]) -> Callable[..., None]:
    @no_grad()
    def update(averaged: Iterable[Any], current: Iterable[Any], num_averaged: Any) -> None:
        for a, c in zip(averaged, current, strict=True):
            step(a, c, num_averaged)
    return update  # type: ignore[no-any-return]


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """`get_swa_avg_fn` in place, over lists."""
    def step(a: Any, c: Any, n: Any) -> None:
        if a.dtype.is_floating_point or a.dtype.is_complex:
            a.lerp_(c, 1.0 / (float(n) + 1))
        else:
            a.add_((c - a) / (n + 1))
    return _in_place(step)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """`get_ema_avg_fn` in place, over lists."""
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] "
                         "range.")

    def step(a: Any, c: Any, n: Any) -> None:
        if a.dtype.is_floating_point or a.dtype.is_complex:
            a.lerp_(c, 1 - decay)
        else:
            a.copy_(a * decay + c * (1 - decay))
    return _in_place(step)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages, updated by `update_parameters(model)`.

    avg_fn        (average, value, how many so far) -> the new average of one tensor
    multi_avg_fn  the same in place over lists
    use_buffers   averages buffers too, in the place of copying them
    """

    def __init__(self, model: Module, device: Any = None, avg_fn: AvgFn | None = None,
                 multi_avg_fn: Any = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", Tensor.F.full((), 0, dtype=dt.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the model's weights into the averages."""
        own, new = (list(chain(m.parameters(),
                               m.buffers())) if self.use_buffers else list(m.parameters())
                    for m in (self.module, model))
        own = [p.detach() for p in own]
        new = [p.detach().to(a.device) for p, a in zip(new, own, strict=True)]
        if bool(self.n_averaged == 0):
            for a, c in zip(own, new, strict=True):
                a.copy_(c)
        elif self.multi_avg_fn is not None or self.avg_fn is None:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(own, new, self.n_averaged)
        else:
            for a, c in zip(own, new, strict=True):
                a.copy_(self.avg_fn(a, c, self.n_averaged.to(a.device)))
        if not self.use_buffers:
            for a, c in zip(self.module.buffers(), model.buffers(), strict=True):
                a.detach().copy_(c.detach().to(a.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Makes the batch-norm statistics of `model` those of the data in `loader`."""
    layers = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not layers:
        return
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative average
    was_training = model.training
    model.train()
    for input in loader:
        if isinstance(input, (list, tuple)):
            input = input[0]
        model(input if device is None else input.to(device))
    for layer, momentum in layers.items():
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Goes to `swa_lr` in `anneal_epochs` epochs and stays there."""

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10,
                 anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups,
                               strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError("anneal_strategy must by one of 'cos' or 'linear', instead got "
                             f"{anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        out = []
        for group in self.optimizer.param_groups:
            target, lr = group["swa_lr"], group["lr"]
            # The rate at the start, from the one of the step before.
            start = target if before == 1 else (lr - before * target) / (1 - before)
            out.append(target * now + start * (1 - now))
        return out

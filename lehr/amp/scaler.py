"""`GradScaler`: losses scaled up so that half-precision gradients do not vanish."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from lehr.base import dtype as dt
from lehr.tensor import choice
from lehr.tensor.mode import no_grad
from lehr.tensor.policy import has_cuda
from lehr.tensor.tensor import Tensor

# What `step` and `unscale_` have done with an optimizer since the last `update`.
READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """Scales a loss, unscales gradients before a step, and skips steps with inf or NaN.

    init_scale       the factor at the start
    growth_factor    the factor grows by this after `growth_interval` steps without inf or NaN
    backoff_factor   and shrinks by this after one with
    growth_interval  how many steps in a row
    enabled          False makes every method do nothing (or just step)

    `skipped` counts the steps that were skipped.
    """

    _low = False    # whether it has said that the factor is below one

    def __init__(self, device: str = "cuda", init_scale: float = 2.0 ** 16,
                 growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device, self._enabled = device, enabled
        if device == "cuda" and enabled and not has_cuda():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  "
                          "Disabling.", stacklevel=2)
            self._enabled = False
        self._skips: Any = None
        self._scale: Any = None
        self._growth_tracker: Any = None
        self._per_optimizer_states: Any = defaultdict(_fresh)
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale, self._init_growth_tracker = init_scale, 0
            self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
            self._growth_interval = growth_interval

    # -- the factor

    def _check_scale_growth_tracker(self, name: str) -> tuple[Any, Any]:
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None.  This may indicate your "
                                 "script did not use scaler.scale(loss or outputs) earlier in the "
                                 "iteration.")
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, device: Any) -> None:
        F = Tensor.F
        self._scale = F.full((), self._init_scale, dtype=dt.float32, device=device)
        self._growth_tracker = F.full((), self._init_growth_tracker, dtype=dt.int32, device=device)
        if self._skips is None:
            self._skips = F.full((), 0, dtype=dt.int64)

    @property
    def skipped(self) -> int:
        """How many steps were skipped."""
        return 0 if self._skips is None else int(self._skips.item())

    def scale(self, outputs: Any) -> Any:
        """The tensor(s) times the factor; iterables keep their type."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return outputs * self._scale.to(device=outputs.device)
        if isinstance(outputs, Iterable):
            made = [self.scale(x) for x in outputs]
            return type(outputs)(made) if isinstance(outputs, (list, tuple)) else made
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def get_scale(self) -> float:
        """The factor now."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    # -- one step

    def unscale_(self, optimizer: Any) -> None:
        """Divides the optimizer's gradients by the factor, once before its step."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the "
                               "last "
                               "update().")
        if state["stage"] is STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = self._scale.double().reciprocal().float()
        found = Tensor.F.full((), 0.0, dtype=dt.float32, device=self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, found, False)
        state["stage"] = UNSCALED

    def _unscale_grads_(self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor,
                        allow_fp16: bool) -> dict[Any, Tensor]:
        """Divides; gives, for every device, 1 where a gradient is not finite and 0 otherwise."""
        found: dict[Any, Any] = {}
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    grad = p.grad
                    if grad is None:
                        continue
                    if not allow_fp16 and grad.dtype is dt.float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    device = grad.device
                    bad = Tensor.F.logical_not(Tensor.F.isfinite(grad).all())
                    before = found.get(device)
                    found[device] = bad if before is None else Tensor.F.logical_or(before, bad)
                    grad.mul_(inv_scale.to(device))
        return {device: bad.float() for device, bad in found.items()}

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step on unscaled gradients, or nothing where one is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._own_scaling(optimizer, state, args, kwargs)
        if state["stage"] is READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        out = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = STEPPED
        return out

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any,
                        **kwargs: Any) -> Any:
        found = optimizer_state["found_inf_per_device"].values()
        if choice.possible():
            return self._chosen_step(optimizer, list(found), args, kwargs)
        if sum(float(v.item()) for v in found):
            self._skips += 1
            return None
        return optimizer.step(*args, **kwargs)

    def _chosen_step(self, optimizer: Any, found: list[Tensor], args: Any, kwargs: Any) -> Any:
        """The step inside a captured program: every write of it is one of the old and the new."""
        bad = found[0] > 0
        for v in found[1:]:
            bad = Tensor.F.logical_or(bad, v.to(bad.device) > 0)
        self._skips.add_(bad)
        choice.choose(Tensor.F.logical_not(bad))
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            choice.chosen()

    def _own_scaling(self, optimizer: Any, state: dict[str, Any], args: Any, kwargs: Any) -> Any:
        """Optimizers that divide by the factor themselves."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn("GradScaler is going to stop passing itself as a keyword argument to the "
                          "passed optimizer. In the near future GradScaler registers "
                          "`grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer "
                          "and "
                          "let the optimizer use them directly.", FutureWarning, stacklevel=3)
            kwargs = {**kwargs, "grad_scaler": self}
        if state["stage"] is READY:
            self._check_inf_per_device(optimizer)
            optimizer.grad_scale = self._scale
        else:
            optimizer.grad_scale = None
        found = state["found_inf_per_device"]
        optimizer.found_inf = sum(v.to(self._scale.device) for v in found.values())
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf
            state["stage"] = STEPPED

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        one = Tensor.F.full((), 1.0, dtype=dt.float32, device=self._scale.device)
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, one * 0, True)
        return state["found_inf_per_device"]  # type: ignore[no-any-return]

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    def update(self, new_scale: Any = None) -> None:
        """Grows or shrinks the factor after a step, or sets it to `new_scale`."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        with no_grad():
            if new_scale is not None:
                if isinstance(new_scale, Tensor) and (new_scale.numel() != 1
                                                      or new_scale.requires_grad):
                    raise AssertionError("new_scale should be a float or a 1-element float tensor "
                                         "without requires_grad")
                scale.copy_(new_scale) if isinstance(new_scale, Tensor) else scale.fill_(new_scale)
            else:
                self._adapt(scale, tracker)
                if not choice.possible() and scale.device.type == "cpu":
                    self._look(scale)
        self._per_optimizer_states = defaultdict(_fresh)

    def _look(self, scale: Any) -> None:
        """Says once that the factor makes gradients smaller: they are not finite without it."""
        if not self._low and self._init_scale >= 1 > scale.item():
            self._low = True
            warnings.warn(f"GradScaler: {self.skipped} steps were skipped, and the factor has come "
                          f"down to {scale.item():g}; gradients are infinite or NaN whatever it is",
                          stacklevel=3)

    def _adapt(self, scale: Any, tracker: Any) -> None:
        """The factor's rule, on tensors: no value is read."""
        F = Tensor.F
        found = [v.to(scale.device) for state in self._per_optimizer_states.values()
                 for v in state["found_inf_per_device"].values()]
        if not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        bad = found[0]
        for v in found[1:]:
            bad = bad + v
        bad = bad > 0
        count = tracker + 1
        full = F.logical_and(F.eq(count, self._growth_interval), F.logical_not(bad))
        grown = scale * self._growth_factor
        grown = F.where(F.isfinite(grown), grown, scale)
        scale.copy_(F.where(bad, scale * self._backoff_factor, F.where(full, grown, scale)))
        tracker.copy_(F.where(F.logical_or(bad, full), F.zeros_like(count), count))

    # -- settings

    def get_growth_factor(self) -> float:
        """The growth factor."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The backoff factor."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The growth interval."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the growth interval."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return (self._init_growth_tracker if self._growth_tracker is None
                else self._growth_tracker.item())  # type: ignore[no-any-return]

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The factor, its settings, and how many steps went well; empty where disabled."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor,
                "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
                "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gave."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from "
                               "a disabled instance of GradScaler.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError("A GradScaler instance may only be pickled at the beginning "
                                     "of "
                                     "an iteration, or at the end after scaler.update().")
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state


def _fresh() -> dict[str, Any]:
    return {"stage": READY, "found_inf_per_device": {}}


class CudaGradScaler(GradScaler):
    """`torch.cuda.amp.GradScaler`: that of GPUs."""

    def __init__(self, init_scale: float = 65536.0, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval,
                         enabled)


class CpuGradScaler(GradScaler):
    """`torch.cpu.amp.GradScaler`: that of the CPU."""

    def __init__(self, init_scale: float = 65536.0, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)

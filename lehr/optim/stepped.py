"""Optimizers whose step is one op for each parameter."""

from __future__ import annotations

from typing import Any

from lehr.optim.optimizer import Optimizer
from lehr.optim.rate import count
from lehr.tensor.tensor import Tensor
from lehr.tensor.update import update


class Stepped(Optimizer):
    """A subclass names the op and says what it takes.

    op        its name; its arguments are the parameter, the gradient, the state, the settings
    slots     state written by the step, in the op's order (None where a parameter has no such
              state)
    settings  keys of the group that follow
    """

    op: str
    slots: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def step(self, closure: Any = None) -> Any:
        """One step; `closure` computes the loss again and returns it."""
        return self._stepped(closure)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter at its first step; `step` and zeros unless overridden."""
        state = {"step": count()}
        for name in self.slots:
            if name != "step":
                state[name] = Tensor.F.zeros_like(p)
        return state

    def _settings(self, p: Tensor, group: dict[str, Any]) -> tuple[Any, ...]:
        """The op's arguments behind the state."""
        return tuple([group[name] for name in self.settings])

    def _init_state(self, state: dict[str, Any], p: Any, group: dict[str, Any]) -> None:
        state.update(self._start(p, group))

    def _update(self) -> None:
        places = (0, *range(2, 2 + len(self.slots)))
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                state = self._state_of(p, group)
                held = tuple([state.get(name) for name in self.slots])
                update(self.op, (p, grad, *held, *self._settings(p, group)), places)

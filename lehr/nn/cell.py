"""One step of a recurrent network."""

from __future__ import annotations

import math
from typing import Any

from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.linear import empty
from lehr.nn.module import Module
from lehr.tensor.autocast import is_autocast_enabled
from lehr.tensor.tensor import Tensor

State = tuple[Any, ...]

# Mode of a layer -> of the op, states.
MODES = {"RNN_TANH": ("tanh", 1), "RNN_RELU": ("relu", 1), "LSTM": ("lstm", 2), "GRU": ("gru", 1)}


class RNNCellBase(Module):
    """Weights of one step with `num_chunks` gates."""

    input_size: int
    hidden_size: int

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_ih = empty((num_chunks * hidden_size, input_size), device, dtype)
        self.weight_hh = empty((num_chunks * hidden_size, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            made = empty((num_chunks * hidden_size,), device, dtype) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if "bias" in self.__dict__ and self.bias is not True:
            text += f", bias={self.bias}"
        kind = self.__dict__.get("nonlinearity", "tanh")
        return text + ("" if kind == "tanh" else f", nonlinearity={kind}")

    def _run(self, mode: str, input: Tensor, states: State | None, count: int) -> State:
        """The step's result; inputs without a batch dimension get one."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        alone = input.dim() == 1
        x = input.unsqueeze(0) if alone else input
        if x.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.size(1)} expected "
                               f"{self.input_size}")
        if states is None:
            zeros = Tensor.F.full((x.size(0), self.hidden_size), 0.0, dtype=x.dtype,
                                  device=x.device)
            states = (zeros,) * count
        else:
            states = self._checked(states, x.size(0), alone)
        gates = F.linear(x, self.weight_ih, self.bias_ih)
        if count == 2 and gates.dtype != states[1].dtype and is_autocast_enabled(x.device.type):
            gates = gates.to(states[1].dtype)   # the cells keep theirs
        out, cells = Tensor.F.recurrent(
            gates.unsqueeze(0), states[0], states[1] if count == 2 else None, self.weight_hh,
            self.bias_hh, None, mode)
        made = (out.squeeze(0), cells.squeeze(0))[:count]
        return tuple(s.squeeze(0) for s in made) if alone else made  # type: ignore[no-any-return]

    def _checked(self, states: State, batch: Any, alone: bool) -> State:
        out = []
        for i, h in enumerate(states):
            if h.dim() not in (1, 2):
                which = "hidden" if len(states) == 1 else f"hx[{i}]"
                raise ValueError(f"{type(self).__name__}: Expected {which} to be 1D or 2D, got "
                                 f"{h.dim()}D instead")
            h = h.unsqueeze(0) if alone else h
            if h.size(0) != batch:
                raise RuntimeError(f"Input batch size {batch} doesn't match hidden{i} batch size "
                                   f"{h.size(0)}")
            if h.size(1) != self.hidden_size:
                raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {h.size(1)}, "
                                   "expected "
                                   f"{self.hidden_size}")
            out.append(h)
        return tuple(out)


class RNNCell(RNNCellBase):
    """h' = tanh(W x + b + U h + c), or ReLU in the place of tanh."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """[n, input_size], [n, hidden_size] -> [n, hidden_size]."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        made: Any = self._run(self.nonlinearity, input, None if hx is None else (hx,), 1)[0]
        return made


class LSTMCell(RNNCellBase):
    """One step of long short-term memory."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """[n, input_size], ([n, hidden_size], [n, hidden_size]) -> the new (h, c)."""
        return self._run("lstm", input, hx, 2)  # type: ignore[return-value]


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """[n, input_size], [n, hidden_size] -> [n, hidden_size]."""
        made: Any = self._run("gru", input, None if hx is None else (hx,), 1)[0]
        return made


__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]

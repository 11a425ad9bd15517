"""Recurrent layers over whole sequences."""

from __future__ import annotations

import itertools
import math
import numbers
import warnings
from typing import Any

from lehr.nn import functional as F
from lehr.nn import init
from lehr.nn.cell import MODES, State
from lehr.nn.linear import empty
from lehr.nn.module import Module
from lehr.nn.utils.rnn import PackedSequence
from lehr.ops.recurrent import GATES
from lehr.tensor.tensor import Tensor


def over_steps(mode: str, gates: Tensor, state: State, weights: Any,
               reverse: bool) -> tuple[Tensor, State]:
    """One direction of one layer: gates [t, n, g h], states [n, h] -> [t, n, h], the last
    states."""
    h, c = state if len(state) == 2 else (state[0], None)
    out, cells = Tensor.F.recurrent(gates, h, c, *weights, mode, reverse)
    end = 0 if reverse else -1
    last = (out, cells) if c is not None else (out,)
    return out, tuple(x.select(0, end) for x in last)


def over_packed(mode: str, gates: Tensor, state: State, weights: Any, reverse: bool,
                sizes: list[int]) -> tuple[Tensor, State]:
    """The same over packed steps: gates [sum of sizes, g h]; step t is of the first sizes[t]
    sequences. Steps of the same size run together."""
    cat = Tensor.F.cat
    runs = [(size, len(list(group))) for size, group in itertools.groupby(sizes)]
    parts = [part.unflatten(0, (steps, size)) for part, (size, steps) in zip(
        gates.split([size * steps for size, steps in runs], 0), runs, strict=True)]
    first, ended, outs = state, [], []
    if reverse:  # sequences join as their ends are reached
        state = tuple(s[: sizes[-1]] for s in first)
    for part in reversed(parts) if reverse else parts:
        have, want = state[0].size(0), part.size(1)
        if want > have:
            state = tuple(cat([s, f[have:want]], 0) for s, f in zip(state, first, strict=True))
        if want < have:  # sequences drop out as they end
            ended.append(tuple(s[want:] for s in state))
            state = tuple(s[:want] for s in state)
        out, state = over_steps(mode, part, state, weights, reverse)
        outs.append(out.flatten(0, 1))
    if reverse:
        outs.reverse()
    rows = [state, *reversed(ended)]
    return cat(outs, 0), tuple(cat(list(group), 0) for group in zip(*rows, strict=True))


class RNNBase(Module):
    """Weights and settings of `num_layers` recurrent layers, in one or both directions."""

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1,
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False, proj_size: int = 0, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        _check(mode, hidden_size, num_layers, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, proj_size
        gates = GATES[MODES[mode][0]] * hidden_size
        out = proj_size if proj_size > 0 else hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            size = input_size if layer == 0 else out * (2 if bidirectional else 1)
            for suffix in ("", "_reverse")[: 2 if bidirectional else 1]:
                shapes: list[tuple[str, tuple[int, ...]]] = [
                    ("weight_ih", (gates, size)), ("weight_hh", (gates, out))]
                if bias:
                    shapes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
                if proj_size > 0:
                    shapes.append(("weight_hr", (proj_size, hidden_size)))
                names = [f"{name}_l{layer}{suffix}" for name, _ in shapes]
                for name, (_, shape) in zip(names, shapes, strict=True):
                    self.register_parameter(name, empty(shape, device, dtype))
                self._all_weights.append(names)
        self.reset_parameters()

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Nothing: the weights need not lie in one piece."""

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True),
                              ("batch_first", False), ("dropout", 0), ("bidirectional", False)):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    # -- shapes

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Any) -> tuple[Any, ...]:
        """[layers * directions, batch, size of h]."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        directions = 2 if self.bidirectional else 1
        return self.num_layers * directions, batch, self.proj_size or self.hidden_size

    def check_input(self, input: Tensor, batch_sizes: Any) -> None:
        """RuntimeError where the input does not fit."""
        wanted = 2 if batch_sizes is not None else 3
        if input.dim() != wanted:
            raise RuntimeError(f"input must have {wanted} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {input.size(-1)}")

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: Any,
                          msg: str = "Expected hidden size {}, got {}") -> None:
        """RuntimeError where a state does not fit."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.size())))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """A state (or pair of states) [layers, batch, h] in another order of the batch."""
        if permutation is None:
            return hx
        if isinstance(hx, tuple):
            return tuple(self.permute_hidden(h, permutation) for h in hx)
        return hx.index_select(1, permutation)

    def _expected(self, input: Tensor, batch_sizes: Any) -> list[tuple[Any, ...]]:
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return [shape, (*shape[:2], self.hidden_size)][: MODES[self.mode][1]]

    def _start(self, x: Tensor, states: Any, expected: Any, order: Any) -> State:
        """The given states, checked and in the packed order, or zeros."""
        if states is None:
            return tuple(Tensor.F.full(shape, 0.0, dtype=x.dtype,
                                       device=x.device) for shape in expected)
        for i, (h, shape) in enumerate(zip(states, expected, strict=True)):
            name = f"hidden[{i}]" if len(expected) > 1 else "hidden"
            self.check_hidden_size(h, shape, "Expected " + name + " size {}, got {}")
        return tuple(self.permute_hidden(h, order) for h in states)

    # -- running

    def _stacked(self, x: Tensor, states: State, sizes: list[int] | None) -> tuple[Tensor, State]:
        """All layers over [t, n, i] or packed steps."""
        mode = MODES[self.mode][0]
        directions = 2 if self.bidirectional else 1
        lasts: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for way in range(directions):
                at = layer * directions + way
                w_ih, w_hh, b_ih, b_hh, w_hr = self._weights(at)
                gates, weights = F.linear(x, w_ih, b_ih), (w_hh, b_hh, w_hr)
                first = tuple(s[at] for s in states)
                if sizes is None:
                    out, last = over_steps(mode, gates, first, weights, way == 1)
                else:
                    out, last = over_packed(mode, gates, first, weights, way == 1, sizes)
                outs.append(out)
                lasts.append(last)
            x = outs[0] if directions == 1 else Tensor.F.cat(outs, -1)
            if self.dropout > 0 and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, True)
        return x, tuple(Tensor.F.stack(list(group), 0) for group in zip(*lasts, strict=True))

    def _weights(self, at: int) -> tuple[Any, ...]:
        """(w_ih, w_hh, b_ih, b_hh, w_hr) of one layer and direction, None for those absent."""
        found = {name.split("_l")[0]: getattr(self, name) for name in self._all_weights[at]}
        return tuple(found.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh",
                                                  "weight_hr"))

    def _packed(self, packed: PackedSequence, states: Any) -> tuple[PackedSequence, State]:
        x, batch_sizes, order, back = packed
        self.check_input(x, batch_sizes)
        start = self._start(x, states, self._expected(x, batch_sizes), order)
        out, last = self._stacked(x, start, batch_sizes.tolist())
        made = PackedSequence(out, batch_sizes, order, back)
        return made, tuple(self.permute_hidden(s, back) for s in last)

    def _run(self, input: Any, states: Any) -> tuple[Any, State]:
        """`forward` with the states as a tuple."""
        if isinstance(input, PackedSequence):
            return self._packed(input, states)
        if input.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got "
                             f"{input.dim()}D "
                             "instead")
        alone = input.dim() == 2
        self._check_ranks(states, alone)
        batch_dim = 0 if self.batch_first else 1
        x = input.unsqueeze(batch_dim) if alone else input
        if alone and states is not None:
            states = tuple(s.unsqueeze(1) for s in states)
        self.check_input(x, None)
        start = self._start(x, states, self._expected(x, None), None)
        x = x.transpose(0, 1) if self.batch_first else x
        out, last = self._stacked(x, start, None)
        out = out.transpose(0, 1) if self.batch_first else out
        if alone:
            return out.squeeze(batch_dim), tuple(s.squeeze(1) for s in last)
        return out, last

    def _check_ranks(self, states: Any, alone: bool) -> None:
        if states is None:
            return
        wanted, kind = (2, "unbatched 2-D") if alone else (3, "batched 3-D")
        if any(s.dim() != wanted for s in states):
            names, shown = "hx", f"{states[0].dim()}-D tensor"
            if len(states) > 1:
                names = "hx and cx"
                shown = "(" + ", ".join(f"{s.dim()}-D" for s in states) + ") tensors"
            raise RuntimeError(f"For {kind} input, {names} should also be {wanted}-D but got "
                               f"{shown}")


def _check(mode: str, hidden_size: int, num_layers: int, dropout: float, proj_size: int) -> None:
    if (not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1
            or isinstance(dropout, bool)):
        raise ValueError("dropout should be a number in range [0, 1] representing the probability "
                         "of an element being zeroed")
    if dropout > 0 and num_layers == 1:
        warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero "
                      "dropout "
                      f"expects num_layers greater than 1, but got dropout={dropout} and "
                      f"num_layers={num_layers}", stacklevel=4)
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in MODES:
        raise ValueError("Unrecognized RNN mode: " + mode)


def _no_projection(kwargs: dict[str, Any]) -> None:
    if kwargs.get("proj_size"):
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """Layers of h' = tanh(W x + b + U h + c); `nonlinearity` "relu" has max(., 0) instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection(kwargs)
        if len(args) > 3:
            self_nonlinearity, args = args[3], (*args[:3], *args[4:])
        else:
            self_nonlinearity = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if self_nonlinearity not in modes:
            raise ValueError(f"Unknown nonlinearity '{self_nonlinearity}'. Select from 'tanh' or "
                             "'relu'.")
        super().__init__(modes[self_nonlinearity], *args, **kwargs)
        self.nonlinearity = self_nonlinearity

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Tensor]:
        """[t, n, i] (or packed), [layers, n, h] -> [t, n, h], the last h [layers, n, h]."""
        out, last = self._run(input, None if hx is None else (hx,))
        return out, last[0]


class LSTM(RNNBase):
    """Layers of long short-term memory (Hochreiter & Schmidhuber, 1997), h projected to
    `proj_size`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """[t, n, i] (or packed), (h, c) [layers, n, h] -> [t, n, h], the last (h, c)."""
        return self._run(input, hx)  # type: ignore[return-value]


class GRU(RNNBase):
    """Layers of gated recurrent units (Cho et al., 2014)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Tensor]:
        """[t, n, i] (or packed), [layers, n, h] -> [t, n, h], the last h [layers, n, h]."""
        out, last = self._run(input, None if hx is None else (hx,))
        return out, last[0]


__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

"""Recurrent layers: all steps of one layer in one direction.

The bodies are written once, over `F` or over numpy (`Arrays`), so that eager steps cost little more
than their matrix products and a graph sees the steps themselves.
"""

from __future__ import annotations

import numpy

from lehr.ops.contract import multiplied
from lehr.ops.registry import op
from lehr.ops.rule import Spec, check_alike, device_of, same

# Mode -> gates. The input's share of them comes in the order of PyTorch's weights.
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


class Arrays:
    """The functions that the bodies use, on numpy arrays."""

    tanh, sign, zeros_like = numpy.tanh, numpy.sign, numpy.zeros_like
    matmul = staticmethod(multiplied)

    @staticmethod
    def t(x):
        return x.T

    @staticmethod
    def sigmoid(x):
        return 1 / (1 + numpy.exp(-x))

    @staticmethod
    def relu(x):
        return numpy.maximum(x, 0)

    @staticmethod
    def select(x, dim, i):
        return x[i]

    @staticmethod
    def narrow(x, dim, start, length):
        return x[..., start:start + length] if dim else x[start:start + length]

    @staticmethod
    def cat(parts, dim):
        return numpy.concatenate(parts, -1 if dim else 0)

    @staticmethod
    def stack(parts, dim):
        return numpy.stack(parts)

    @staticmethod
    def unsqueeze(x, dim):
        return x[None]


def _parts(F, x, count):
    """The gates along the last dimension."""
    size = x.shape[-1] // count
    return [F.narrow(x, x.ndim - 1, i * size, size) for i in range(count)]


def _hidden(F, h, weight, bias):
    made = F.matmul(h, F.t(weight))
    return made if bias is None else made + bias


def _lstm(F, x, hidden, h, c):
    i, f, g, o = _parts(F, x + hidden, 4)
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c), c


def _gru(F, x, hidden, h, c):
    (xr, xz, xn), (hr, hz, hn) = _parts(F, x, 3), _parts(F, hidden, 3)
    n = F.tanh(xn + F.sigmoid(xr + hr) * hn)
    return n + F.sigmoid(xz + hz) * (h - n), c


def _tanh(F, x, hidden, h, c):
    return F.tanh(x + hidden), c


def _relu(F, x, hidden, h, c):
    return F.relu(x + hidden), c


# (F, the input's share [n, gates h], the state's [n, gates h], h, c) -> the new h and c
STEPS = {"lstm": _lstm, "gru": _gru, "tanh": _tanh, "relu": _relu}


def _forward(F, gates, h, c, weight, bias, projection, mode, reverse):
    steps = range(gates.shape[0])
    outs, cells = [], []
    for t in reversed(steps) if reverse else steps:
        raw, c = STEPS[mode](F, F.select(gates, 0, t), _hidden(F, h, weight, bias), h, c)
        h = raw if projection is None else F.matmul(raw, F.t(projection))
        outs.append(h)
        cells.append(c)
    if reverse:
        outs.reverse()
        cells.reverse()
    out = F.stack(outs, 0)
    return out, F.stack(cells, 0) if mode == "lstm" else F.narrow(F.select(out, 0, 0), 0, 0, 0)


def before(F, first, all_, reverse):
    """The states that the steps began with: [t, n, h]."""
    count = all_.shape[0]
    rest = F.narrow(all_, 0, 1 if reverse else 0, count - 1)
    first = F.unsqueeze(first, 0)
    return F.cat([rest, first] if reverse else [first, rest], 0)


class Lstm:
    """Gradients of an LSTM: what is known of all steps at once, and the walk back."""

    def __init__(self, F, gates, hidden, h, out, c, cells, projection):
        a = gates + hidden
        i, f, g, o = _parts(F, a, 4)
        self.F = F
        self.known = (F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o), F.tanh(cells), c)

    def raw(self):
        """h before its projection."""
        return self.known[3] * self.known[4]

    def step(self, t, dh, dc):
        """(gradients of the gates from the input and from the state, of h but for the state's
        share, of c)"""
        F = self.F
        i, f, g, o, tc, c = (F.select(x, 0, t) for x in self.known)
        dc = dc + dh * o * (1 - tc * tc)
        da = F.cat([dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g),
                    dh * tc * o * (1 - o)], 1)
        return da, da, None, dc * f


class Gru(Lstm):
    """Gradients of a GRU."""

    def __init__(self, F, gates, hidden, h, out, c, cells, projection):
        (xr, xz, xn), (hr, hz, hn) = _parts(F, gates, 3), _parts(F, hidden, 3)
        r = F.sigmoid(xr + hr)
        self.F = F
        self.known = (r, F.sigmoid(xz + hz), F.tanh(xn + r * hn), hn, h)

    def step(self, t, dh, dc):
        F = self.F
        r, z, n, hn, h = (F.select(x, 0, t) for x in self.known)
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * hn * r * (1 - r), dh * (h - n) * z * (1 - z)
        return F.cat([dr, dz, dn], 1), F.cat([dr, dz, dn * r], 1), dh * z, dc


class Tanh(Lstm):
    """Gradients of a plain network with tanh."""

    def __init__(self, F, gates, hidden, h, out, c, cells, projection):
        self.F, self.known = F, 1 - out * out

    def step(self, t, dh, dc):
        da = dh * self.F.select(self.known, 0, t)
        return da, da, None, dc


class Relu(Tanh):
    """Gradients of a plain network with ReLU."""

    def __init__(self, F, gates, hidden, h, out, c, cells, projection):
        self.F, self.known = F, F.sign(out)


BACK = {"lstm": Lstm, "gru": Gru, "tanh": Tanh, "relu": Relu}


def _backward(F, g_out, g_cells, out, cells, gates, h0, c0, weight, bias, projection, mode,
              reverse):
    steps = range(gates.shape[0])
    h = before(F, h0, out, reverse)
    c = None if c0 is None else before(F, c0, cells, reverse)
    back = BACK[mode](F, gates, _hidden(F, h, weight, bias), h, out, c, cells, projection)
    dh = F.zeros_like(h0)
    dc = dh if c0 is None else F.zeros_like(c0)
    inputs, states, totals = [], [], []
    for t in steps if reverse else reversed(steps):
        total = dh if g_out is None else dh + F.select(g_out, 0, t)
        if g_cells is not None and mode == "lstm":
            dc = dc + F.select(g_cells, 0, t)
        raw = total if projection is None else F.matmul(total, projection)
        da, dhidden, rest, dc = back.step(t, raw, dc)
        dh = F.matmul(dhidden, weight)
        dh = dh if rest is None else dh + rest
        inputs.append(da)
        states.append(dhidden)
        totals.append(total)
    if not reverse:
        for made in (inputs, states, totals):
            made.reverse()
    dgates = F.stack(inputs, 0)
    dhidden = F.stack(states, 0) if mode == "gru" else dgates * 1
    none = F.narrow(dh, 0, 0, 0)
    draw = none if projection is None else F.matmul(
        F.t(_rows(F, F.stack(totals, 0))), _rows(F, back.raw()))
    return dgates, dhidden, dh, none * 1 if c0 is None else dc, draw


def _rows(F, x):
    return F.reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))


Arrays.reshape = staticmethod(lambda x, shape: x.reshape(shape))  # type: ignore[attr-defined]


def _checked(gates, h0, c0, weight, projection, mode):
    if mode not in GATES:
        raise ValueError(f"recurrent: unknown mode {mode!r}")
    if gates.ndim != 3 or h0.ndim != 2 or weight.ndim != 2:
        raise RuntimeError(f"recurrent: expected gates [t, n, g], h0 [n, h] and weight [g, h], got "
                           f"{list(gates.shape)}, {list(h0.shape)}, {list(weight.shape)}")
    if isinstance(gates.shape[0], int) and gates.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    if not (same(weight.shape[0], gates.shape[2]) and same(weight.shape[1], h0.shape[1])
            and same(gates.shape[1], h0.shape[0])):
        raise RuntimeError(f"recurrent: gates {list(gates.shape)}, h0 {list(h0.shape)} and weight "
                           f"{list(weight.shape)} do not fit")
    if (mode == "lstm") is not (c0 is not None):
        raise RuntimeError("recurrent: c0 goes with mode 'lstm'")


@op("recurrent(gates: Tensor, h0: Tensor, c0: Tensor | None, weight: Tensor, bias: Tensor | None, "
    "projection: Tensor | None, mode: str, reverse: bool = False) -> "
    "named(out=Tensor, cells=Tensor)")
class recurrent:
    """All steps of a layer: gates [t, n, g h] (the input's share), states [n, h] -> out [t, n, h]
    and an LSTM's cells [t, n, h].

    weight [g h, h] and bias [g h] are the state's; projection [p, h] makes the next h of an LSTM's.
    mode: lstm | gru | tanh | relu. `reverse` begins at the last step.
    """

    where = ""

    def rule(gates, h0, c0, weight, bias, projection, mode, reverse=False):
        check_alike("recurrent", gates, h0, c0, weight, bias, projection)
        _checked(gates, h0, c0, weight, projection, mode)
        where, made = device_of((gates, h0, weight)), gates.dtype
        steps, batch = gates.shape[:2]
        cells = (steps, batch, c0.shape[1]) if mode == "lstm" else (0, h0.shape[1])
        return (Spec((steps, batch, h0.shape[1]), made, where, made),
                Spec(cells, made, where, made))

    def eager(np, *args):
        return _forward(Arrays, *args)

    def decomp(F, *args):
        return _forward(F, *args)

    def vjp(F, g, out, gates, h0, c0, weight, bias, projection, mode, reverse):
        y, cells = out
        dgates, dhidden, dh0, dc0, dproj = F.recurrent_grad(
            g[0], g[1], y, cells, gates, h0, c0, weight, bias, projection, mode, reverse)
        flat = _rows(F, dhidden)

        def of_weight():
            return F.matmul(F.t(flat), _rows(F, before(F, h0, y, reverse)))
        return (dgates, dh0, None if c0 is None else dc0, of_weight,
                None if bias is None else lambda: F.sum(flat, [0]),
                None if projection is None else dproj)

    def samples(s):
        def one(mode, reverse, cell=False, bias=True, projected=False):
            gates = GATES[mode] * 4
            width = 2 if projected else 4
            return s(s.f(3, 2, gates), s.f(2, width), s.f(2, 4) if cell else None,
                     s.f(gates, width), s.f(gates) if bias else None,
                     s.f(2, 4) if projected else None, mode, reverse)
        yield one("lstm", False, True)
        yield one("lstm", True, True, False, True)
        yield one("gru", False)
        yield one("gru", True, bias=False)
        yield one("tanh", True)
        yield one("relu", False)
        yield s.raises(RuntimeError, s.f(0, 2, 4), s.f(2, 4), None, s.f(4, 4), None, None, "tanh")
        yield s.raises(RuntimeError, s.f(3, 2, 4), s.f(2, 4), None, s.f(8, 4), None, None, "tanh")
    dtypes = "float"
    # Rounding of one step goes into the next.
    tolerance = {"float32": (1e-4, 1e-5)}


@op("recurrent_grad(g_out: Tensor | None, g_cells: Tensor | None, out: Tensor, cells: Tensor, "
    "gates: Tensor, h0: Tensor, c0: Tensor | None, weight: Tensor, bias: Tensor | None, "
    "projection: Tensor | None, mode: str, reverse: bool) -> named(gates=Tensor, hidden=Tensor, "
    "h0=Tensor, c0=Tensor, projection=Tensor)")
class recurrent_grad:
    """Gradients of `recurrent`'s gates, of the state's share of them, of h0, c0 and projection (the
    last two are empty where there is none)."""

    where = ""

    def rule(g_out, g_cells, out, cells, gates, h0, c0, weight, bias, projection, mode, reverse):
        check_alike("recurrent_backward", gates, g_out, out, h0, weight, projection)
        where, made = device_of((gates, h0, weight)), gates.dtype
        none = (0, h0.shape[1])
        shapes = (tuple(gates.shape), tuple(gates.shape), tuple(h0.shape),
                  none if c0 is None else tuple(c0.shape),
                  none if projection is None else tuple(projection.shape))
        return tuple(Spec(shape, made, where, made) for shape in shapes)

    def eager(np, *args):
        return _backward(Arrays, *args)

    def decomp(F, *args):
        return _backward(F, *args)

    def samples(s):
        def one(mode, reverse, cell=False, projected=False):
            gates, width = GATES[mode] * 4, 2 if projected else 4
            return s(s.f(3, 2, width), s.f(3, 2, 4) if cell else None, s.f(3, 2, width, pos=True),
                     s.f(3, 2, 4) if cell else s.f(0, width), s.f(3, 2, gates), s.f(2, width),
                     s.f(2, 4) if cell else None, s.f(gates, width), s.f(gates),
                     s.f(2, 4) if projected else None, mode, reverse)
        yield one("lstm", False, True)
        yield one("lstm", True, True, True)
        yield one("gru", True)
        yield one("tanh", False)
    dtypes = "float"
    tolerance = {"float32": (1e-4, 1e-5)}

"""Optimizer steps: one parameter's new value and state from its gradient.

The results are the new values of the written arguments, in order (see `lehr.tensor.update`, which writes them
back). `KERNELS` holds numpy forms that work in place, chunk by chunk of a size that stays in the cache.
"""

from __future__ import annotations

import math

import numpy as np

from lehr.base import dtype as dt
from lehr.ops.registry import op
from lehr.ops.rule import Spec

CHUNK = 16384


def _specs(*written):
    compute = written[0].dtype.wide
    return tuple(Spec(tuple(t.shape), t.dtype, t.device, compute) for t in written)


def _is_zero(x):
    return isinstance(x, (int, float)) and x == 0


def _cast(F, x, like):
    """A 0-d tensor in the dtype of `like`; numbers stay."""
    return F.to_dtype(x, like.dtype) if hasattr(x, "dtype") else x


@op("sgd_step(param: Tensor, grad: Tensor, momentum_buffer: Tensor | None, lr: Tensor | Scalar, momentum: "
    "Scalar, dampening: Scalar, weight_decay: Tensor | Scalar, nesterov: bool, maximize: bool, first: bool) "
    "-> tuple[Tensor, Tensor]")
class sgd_step:
    """Stochastic gradient descent with (Nesterov) momentum (Sutskever et al., 2013).

    Gives the new param and momentum_buffer (param again without one); `first`: the buffer becomes the
    gradient.
    """

    where = ""

    def rule(p, g, buf, *rest):
        return _specs(p, p if buf is None else buf)

    def decomp(F, p, g, buf, lr, momentum, dampening, decay, nesterov, maximize, first):
        g = -g if maximize else g
        g = g if _is_zero(decay) else g + p * decay
        if buf is not None:
            buf = g if first else buf * momentum + g * (1 - dampening)
            g = g + buf * momentum if nesterov else buf
        p = p - g * _cast(F, lr, p)
        return p, p if buf is None else buf

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), *tail)
        yield s(s.f(3, 4), s.f(3, 4), None, 0.1, 0.0, 0.0, 0.0, False, False, False)
        yield one(0.1, 0.9, 0.0, 0.01, False, False, True)
        yield one(0.1, 0.9, 0.5, 0.0, False, True, False)
        yield one(0.1, 0.9, 0.0, 0.1, True, False, False)
    dtypes = "float half"


@op("adam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: Tensor | "
    "None, step: Tensor, lr: Tensor | Scalar, beta1: Tensor | Scalar, beta2: Tensor | Scalar, eps: Scalar, "
    "weight_decay: Scalar, decoupled: bool, maximize: bool) -> "
    "tuple[Tensor, Tensor, Tensor, Tensor, Tensor]")
class adam_step:
    """Adam (Kingma & Ba, 2014), AMSGrad (Reddi et al., 2018) with a maximum, and decoupled weight decay
    (Loshchilov & Hutter, 2017).

    Gives the new param, exp_avg, exp_avg_sq, max_exp_avg_sq (exp_avg_sq again without one) and step, a 0-d
    count. Bias corrections are computed in float64.
    """

    where = ""

    def rule(p, g, m, v, vmax, step, *rest):
        return _specs(p, m, v, v if vmax is None else vmax, step)

    def decomp(F, p, g, m, v, vmax, step, lr, beta1, beta2, eps, decay, decoupled, maximize):
        step = step + 1
        count = F.to_dtype(step, dt.float64)
        g = -g if maximize else g
        if decoupled:
            p = p * _cast(F, 1 - lr * decay, p)
        elif not _is_zero(decay):
            g = g + p * decay
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        top = v if vmax is None else F.maximum(vmax, v)
        size = lr / (1 - F.pow(beta1, count))
        root = F.sqrt(1 - F.pow(beta2, count))
        p = p - m / (F.sqrt(top) / _cast(F, root, p) + eps) * _cast(F, size, p)
        return p, m, v, top, step

    def samples(s):
        def one(most, *tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), most, s.f(domain=(4, 5)), *tail)
        yield one(None, 0.1, 0.9, 0.99, 1e-8, 0.0, False, False)
        yield one(None, 0.1, 0.9, 0.99, 1e-8, 0.1, False, True)
        yield one(None, 0.1, 0.9, 0.999, 1e-6, 0.1, True, False)
        yield one(s.f(3, 4, pos=True), 0.1, 0.9, 0.99, 1e-8, 0.1, True, False)
    dtypes = "float half"


# In place, on flat contiguous arrays of one dtype


def _chunks(n, dtype, count):
    """(slice, scratch arrays of its length) over n elements."""
    size = CHUNK * 4 // dtype.itemsize
    scratch = [np.empty(min(n, size), dtype) for _ in range(count)]
    for start in range(0, n, size):
        end = min(start + size, n)
        yield slice(start, end), [s[: end - start] for s in scratch]


def _gradient(g, p, decay, maximize, out):
    """The gradient with its sign and L2 term; `out` only where it changes."""
    if maximize:
        g = np.negative(g, out=out)
    if decay != 0:
        term = p * p.dtype.type(decay)
        g = np.add(g, term, out=out)
    return g


def _number(x):
    """A number, also of an array of one element."""
    return x.item() if isinstance(x, np.ndarray) else x


def _sgd(p, g, buf, lr, momentum, dampening, decay, nesterov, maximize, first):
    scalar = p.dtype.type
    decay = _number(decay)
    rate, keep, new = scalar(_number(lr)), scalar(momentum), scalar(1 - dampening)
    for part, (changed, tmp) in _chunks(p.size, p.dtype, 2):
        P = p[part]
        G = _gradient(g[part], P, decay, maximize, changed)
        if buf is not None:
            B = buf[part]
            if first:
                B[...] = G
            else:
                B *= keep
                if dampening == 0:
                    B += G
                else:
                    np.multiply(G, new, out=tmp)
                    B += tmp
            if nesterov:
                np.multiply(B, keep, out=tmp)
                tmp += G
                G = tmp
            else:
                G = B
        np.multiply(G, rate, out=tmp)
        P -= tmp


def _adam(p, g, m, v, vmax, step, lr, beta1, beta2, eps, decay, decoupled, maximize):
    count = _number(step) + 1
    step[...] = count
    scalar = p.dtype.type
    lr, beta1, beta2 = _number(lr), _number(beta1), _number(beta2)
    size = lr / (1 - beta1 ** count)
    root = math.sqrt(1 - beta2 ** count)
    # m / (sqrt(v) / root + eps) * size == m / (sqrt(v) + eps root) * (size root)
    small, rate = scalar(eps * root), scalar(size * root)
    new1, keep2, new2, shrink = (scalar(x) for x in (1 - beta1, beta2, 1 - beta2, 1 - lr * decay))
    for part, (changed, tmp) in _chunks(p.size, p.dtype, 2):
        P, M, V = p[part], m[part], v[part]
        if decoupled:
            P *= shrink
        G = _gradient(g[part], P, 0 if decoupled else decay, maximize, changed)
        np.subtract(G, M, out=tmp)
        tmp *= new1
        M += tmp
        np.multiply(G, G, out=tmp)
        tmp *= new2
        V *= keep2
        V += tmp
        if vmax is not None:
            V = np.maximum(vmax[part], V, out=vmax[part])
        np.sqrt(V, out=tmp)
        tmp += small
        np.divide(M, tmp, out=tmp)
        tmp *= rate
        P -= tmp


KERNELS = {"sgd_step": _sgd, "adam_step": _adam}

"""Optimizer steps: one parameter's new value and state from its gradient.

The results are the new values of the written arguments, in order (see `lehr.tensor.update`, which
writes them back). `KERNELS` holds numpy forms that work in place, chunk by chunk of a size that
stays in the cache.
"""

from __future__ import annotations

import math

import numpy as np

from lehr.base import dtype as dt
from lehr.ops.registry import op
from lehr.ops.rule import Spec

CHUNK = 16384


def _specs(*written):
    """Results like the written arguments, computed in the parameter's precision, float32 at
    least."""
    compute = written[0].dtype.wide
    return tuple(Spec(tuple(t.shape), t.dtype, t.device, compute) for t in written)


def _is_zero(x):
    return isinstance(x, (int, float)) and x == 0


def _given(p, *slots):
    """The written arguments' types; a slot that is None counts as the parameter."""
    return _specs(*(p if t is None else t for t in slots))


def _signed(g, maximize):
    return -g if maximize else g


def _decayed(F, p, g, decay, maximize):
    """The gradient with its sign and L2 term."""
    g = _signed(g, maximize)
    return g if _is_zero(decay) else g + p * decay


def _count(F, step):
    """(the step count now, the same in float64)"""
    step = step + 1
    return step, F.to_dtype(step, dt.float64)


def _cast(F, x, like):
    """A 0-d tensor in the dtype of `like`; numbers stay."""
    return F.to_dtype(x, like.dtype) if hasattr(x, "dtype") else x


@op("sgd_step(param: Tensor, grad: Tensor, momentum_buffer: Tensor | None, lr: Tensor | Scalar, "
    "momentum: Scalar, dampening: Scalar, weight_decay: Tensor | Scalar, nesterov: bool, maximize: "
    "bool, first: bool) -> tuple[Tensor, Tensor]")
class sgd_step:
    """Stochastic gradient descent with (Nesterov) momentum (Sutskever et al., 2013).

    Gives the new param and momentum_buffer (param again without one); `first`: the buffer becomes
    the gradient.
    """

    where = ""

    def rule(p, g, buf, *rest):
        return _given(p, p, buf)

    def decomp(F, p, g, buf, lr, momentum, dampening, decay, nesterov, maximize, first):
        g = _decayed(F, p, g, decay, maximize)
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


@op("adam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, max_exp_avg_sq: "
    "Tensor | None, step: Tensor, lr: Tensor | Scalar, beta1: Tensor | Scalar, beta2: Tensor | "
    "Scalar, eps: Scalar, weight_decay: Scalar, decoupled: bool, maximize: bool) -> "
    "tuple[Tensor, Tensor, Tensor, Tensor, Tensor]")
class adam_step:
    """Adam (Kingma & Ba, 2014), AMSGrad (Reddi et al., 2018) with a maximum, and decoupled weight
    decay (Loshchilov & Hutter, 2017).

    Gives the new param, exp_avg, exp_avg_sq, max_exp_avg_sq (exp_avg_sq again without one) and
    step, a 0-d count. Bias corrections are computed in float64.
    """

    where = ""

    def rule(p, g, m, v, vmax, step, *rest):
        return _specs(p, m, v, v if vmax is None else vmax, step)

    def decomp(F, p, g, m, v, vmax, step, lr, beta1, beta2, eps, decay, decoupled, maximize):
        step, count = _count(F, step)
        p = p * _cast(F, 1 - lr * decay, p) if decoupled else p
        g = _decayed(F, p, g, 0 if decoupled else decay, maximize)
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        top = v if vmax is None else F.maximum(vmax, v)
        size = lr / (1 - F.pow(beta1, count))
        root = F.sqrt(1 - F.pow(beta2, count))
        p = p - m / (F.sqrt(top) / _cast(F, root, p) + eps) * _cast(F, size, p)
        return p, m, v, top, step

    def samples(s):
        def one(most, *tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), most,
                     s.f(domain=(4, 5)), *tail)
        yield one(None, 0.1, 0.9, 0.99, 1e-8, 0.0, False, False)
        yield one(None, 0.1, 0.9, 0.99, 1e-8, 0.1, False, True)
        yield one(None, 0.1, 0.9, 0.999, 1e-6, 0.1, True, False)
        yield one(s.f(3, 4, pos=True), 0.1, 0.9, 0.99, 1e-8, 0.1, True, False)
    dtypes = "float half"


@op("nadam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, mu_product: "
    "Tensor, step: Tensor, lr: Tensor | Scalar, beta1: Scalar, beta2: Scalar, eps: Scalar, "
    "weight_decay: Scalar, momentum_decay: Scalar, decoupled: bool, maximize: bool) -> "
    "tuple[Tensor, Tensor, Tensor, Tensor, Tensor]")
class nadam_step:
    """Adam with Nesterov momentum (Dozat, 2016): new param, exp_avg, exp_avg_sq, mu_product,
    step."""

    where = ""

    def rule(p, g, m, v, mu, step, *rest):
        return _specs(p, m, v, mu, step)

    def decomp(F, p, g, m, v, product, step, lr, beta1, beta2, eps, decay, slow, decoupled,
               maximize):
        step, count = _count(F, step)
        p = p * _cast(F, 1 - lr * decay, p) if decoupled else p
        g = _decayed(F, p, g, 0 if decoupled else decay, maximize)
        mu = beta1 * (1 - 0.5 * F.pow(0.96, count * slow))
        after = beta1 * (1 - 0.5 * F.pow(0.96, (count + 1) * slow))
        product = _cast(F, F.to_dtype(product, dt.float64) * mu, product)
        whole = F.to_dtype(product, dt.float64)
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        denom = F.sqrt(v / _cast(F, 1 - F.pow(beta2, count), p)) + eps
        p = p - g / denom * _cast(F, lr * (1 - mu) / (1 - whole), p)
        p = p - m / denom * _cast(F, lr * after / (1 - whole * after), p)
        return p, m, v, product, step

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), s.f(domain=(0.2, 0.5)),
                     s.f(domain=(4, 5)), 0.1, 0.9, 0.99, 1e-6, *tail)
        yield one(0.0, 4e-3, False, False)
        yield one(0.1, 4e-3, True, True)
    dtypes = "float"


@op("radam_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: Tensor, "
    "lr: Tensor | Scalar, beta1: Scalar, beta2: Scalar, eps: Scalar, weight_decay: Scalar, "
    "decoupled: bool, maximize: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]")
class radam_step:
    """Rectified Adam (Liu et al., 2019): new param, exp_avg, exp_avg_sq, step."""

    where = ""

    def rule(p, g, m, v, step, *rest):
        return _specs(p, m, v, step)

    def decomp(F, p, g, m, v, step, lr, beta1, beta2, eps, decay, decoupled, maximize):
        step, count = _count(F, step)
        p = p * _cast(F, 1 - lr * decay, p) if decoupled else p
        g = _decayed(F, p, g, 0 if decoupled else decay, maximize)
        m = m + (g - m) * (1 - beta1)
        v = v * beta2 + g * g * (1 - beta2)
        power = F.pow(beta2, count)
        most = 2 / (1 - beta2) - 1
        rho = most - count * 2 * power / (1 - power)
        late = rho > 5.0
        ratio = (rho - 4) * (rho - 2) * (most / ((most - 4) * (most - 2))) / rho
        rect = F.sqrt(F.where(late, ratio, F.ones_like(ratio)))
        scale = F.sqrt(1 - power)
        plain = lr / (1 - F.pow(beta1, count))
        adaptive = _cast(F, rect * scale * plain, p) / (F.sqrt(v) + eps)
        p = p - m * F.where(late, adaptive, _cast(F, plain, p))
        return p, m, v, step

    def samples(s):
        def one(low, *tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True),
                     s.f(domain=(low, low + 1)), 0.1, 0.9, 0.99, 1e-6, *tail)
        yield one(2, 0.0, False, False)
        yield one(20, 0.1, True, True)
    dtypes = "float"


@op("adamax_step(param: Tensor, grad: Tensor, exp_avg: Tensor, exp_inf: Tensor, step: Tensor, lr: "
    "Tensor | Scalar, beta1: Scalar, beta2: Scalar, eps: Scalar, weight_decay: Scalar, maximize: "
    "bool) -> tuple[Tensor, Tensor, Tensor, Tensor]")
class adamax_step:
    """Adam with a maximum in the place of the second moment (Kingma & Ba, 2014, section 7): new
    param, exp_avg, exp_inf, step."""

    where = ""

    def rule(p, g, m, top, step, *rest):
        return _specs(p, m, top, step)

    def decomp(F, p, g, m, top, step, lr, beta1, beta2, eps, decay, maximize):
        step, count = _count(F, step)
        g = _decayed(F, p, g, decay, maximize)
        m = m + (g - m) * (1 - beta1)
        top = F.maximum(top * beta2, F.abs(g) + eps)
        return p - m / top * _cast(F, lr / (1 - F.pow(beta1, count)), p), m, top, step

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), s.f(domain=(4, 5)), 0.1,
                     0.9, 0.99, 1e-6, *tail)
        yield one(0.0, False)
        yield one(0.1, True)
    dtypes = "float"


@op("adadelta_step(param: Tensor, grad: Tensor, square_avg: Tensor, acc_delta: Tensor, step: "
    "Tensor, lr: Tensor | Scalar, rho: Scalar, eps: Scalar, weight_decay: Scalar, maximize: bool) "
    "-> tuple[Tensor, Tensor, Tensor, Tensor]")
class adadelta_step:
    """Adadelta (Zeiler, 2012): new param, square_avg, acc_delta, step."""

    where = ""

    def rule(p, g, square, acc, step, *rest):
        return _specs(p, square, acc, step)

    def decomp(F, p, g, square, acc, step, lr, rho, eps, decay, maximize):
        g = _decayed(F, p, g, decay, maximize)
        square = square * rho + g * g * (1 - rho)
        delta = F.sqrt(acc + eps) / F.sqrt(square + eps) * g
        acc = acc * rho + delta * delta * (1 - rho)
        return p - delta * _cast(F, lr, p), square, acc, step + 1

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), s.f(3, 4, pos=True),
                     s.f(domain=(4, 5)), 0.1, 0.9, 1e-6, *tail)
        yield one(0.0, False)
        yield one(0.1, True)
    dtypes = "float"


@op("adagrad_step(param: Tensor, grad: Tensor, sum: Tensor, step: Tensor, lr: Tensor | Scalar, "
    "lr_decay: Scalar, eps: Scalar, weight_decay: Scalar, maximize: bool) -> tuple[Tensor, Tensor, "
    "Tensor]")
class adagrad_step:
    """Adagrad (Duchi et al., 2011): new param, sum, step."""

    where = ""

    def rule(p, g, total, step, *rest):
        return _specs(p, total, step)

    def decomp(F, p, g, total, step, lr, slow, eps, decay, maximize):
        g = _decayed(F, p, g, decay, maximize)
        rate = lr / (1 + F.to_dtype(step, dt.float64) * slow)
        total = total + g * g
        return p - g / (F.sqrt(total) + eps) * _cast(F, rate, p), total, step + 1

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), s.f(domain=(4, 5)), 0.1, *tail)
        yield one(0.0, 1e-6, 0.0, False)
        yield one(0.1, 1e-6, 0.1, True)
    dtypes = "float"


@op("rmsprop_step(param: Tensor, grad: Tensor, square_avg: Tensor, momentum_buffer: Tensor | None, "
    "grad_avg: Tensor | None, step: Tensor, lr: Tensor | Scalar, alpha: Scalar, eps: Scalar, "
    "weight_decay: Scalar, momentum: Scalar, maximize: bool) -> tuple[Tensor, Tensor, Tensor, "
    "Tensor, Tensor]")
class rmsprop_step:
    """RMSprop (Hinton, 2012), centred where `grad_avg` is given (Graves, 2013): new param,
    square_avg, momentum_buffer, grad_avg, step."""

    where = ""

    def rule(p, g, square, buf, mean, step, *rest):
        return _given(p, p, square, buf, mean, step)

    def decomp(F, p, g, square, buf, mean, step, lr, alpha, eps, decay, momentum, maximize):
        g = _decayed(F, p, g, decay, maximize)
        square = square * alpha + g * g * (1 - alpha)
        spread = square
        if mean is not None:
            mean = mean + (g - mean) * (1 - alpha)
            spread = square - mean * mean
        step_ = g / (F.sqrt(spread) + eps)
        if buf is not None:
            buf = step_ = buf * momentum + step_
        p = p - step_ * _cast(F, lr, p)
        return p, square, p if buf is None else buf, p if mean is None else mean, step + 1

    def samples(s):
        def one(buf, mean, *tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4, domain=(1, 2)), buf, mean, s.f(domain=(4, 5)),
                     0.1, 0.9, 1e-6, *tail)
        yield one(None, None, 0.0, 0.0, False)
        yield one(s.f(3, 4), s.f(3, 4, domain=(-0.1, 0.1)), 0.1, 0.9, True)
    dtypes = "float"


@op("rprop_step(param: Tensor, grad: Tensor, prev: Tensor, step_size: Tensor, step: Tensor, minus: "
    "Scalar, plus: Scalar, low: Scalar, high: Scalar, maximize: bool) -> tuple[Tensor, Tensor, "
    "Tensor, Tensor]")
class rprop_step:
    """Resilient propagation (Riedmiller & Braun, 1993): new param, prev, step_size, step."""

    where = ""

    def rule(p, g, prev, size, step, *rest):
        return _specs(p, prev, size, step)

    def decomp(F, p, g, prev, size, step, minus, plus, low, high, maximize):
        g = _signed(g, maximize)
        agree = g * prev
        size = F.where(agree > 0, size * plus, F.where(agree < 0, size * minus, size))
        size = F.clamp(size, low, high)
        g = F.where(agree < 0, F.zeros_like(g), g)
        return p - F.sign(g) * size, g, size, step + 1

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True), s.f(domain=(4, 5)), 0.5,
                     1.2, 1e-6, 50, *tail)
        yield one(False)
        yield one(True)
    dtypes = "float"


@op("asgd_step(param: Tensor, grad: Tensor, eta: Tensor, mu: Tensor, ax: Tensor, step: Tensor, lr: "
    "Tensor | Scalar, lambd: Scalar, alpha: Scalar, t0: Scalar, weight_decay: Scalar, maximize: "
    "bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]")
class asgd_step:
    """Averaged stochastic gradient descent (Polyak & Juditsky, 1992): new param, eta, mu, ax,
    step."""

    where = ""

    def rule(p, g, eta, mu, ax, step, *rest):
        return _specs(p, eta, mu, ax, step)

    def decomp(F, p, g, eta, mu, ax, step, lr, lambd, alpha, t0, decay, maximize):
        step, count = _count(F, step)
        g = _decayed(F, p, g, decay, maximize)
        wide = F.to_dtype(eta, dt.float64)
        p = p * _cast(F, 1 - wide * lambd, p) - g * _cast(F, eta, p)
        ax = F.where(mu == 1, p, ax + (p - ax) * _cast(F, mu, p))
        eta = _cast(F, lr / F.pow(1 + count * (lambd * lr), alpha), eta)
        mu = _cast(F, 1 / F.clamp(count - t0, 1.0), mu)
        return p, eta, mu, ax, step

    def samples(s):
        def one(*tail):
            return s(s.f(3, 4), s.f(3, 4), s.f(domain=(0.1, 0.2)), s.f(domain=(0.5, 0.9)),
                     s.f(3, 4), s.f(domain=(4, 5)), 0.1, 1e-4, 0.75, 1.0, *tail)
        yield one(0.0, False)
        yield one(0.1, True)
    dtypes = "float"


@op("adafactor_step(param: Tensor, grad: Tensor, row_var: Tensor | None, col_var: Tensor | None, "
    "variance: Tensor | None, step: Tensor, lr: Tensor | Scalar, beta2_decay: Scalar, eps1: "
    "Scalar, eps2: Scalar, d: Scalar, weight_decay: Scalar, maximize: bool) -> "
    "tuple[Tensor, Tensor, Tensor, Tensor, Tensor]")
class adafactor_step:
    """Adafactor (Shazeer & Stern, 2018): second moments of matrices as an outer product of row_var
    and col_var; new param, row_var, col_var, variance, step."""

    where = ""

    def rule(p, g, row, col, var, step, *rest):
        return _given(p, p, row, col, var, step)

    def decomp(F, p, g, row, col, var, step, lr, fade, eps1, eps2, d, decay, maximize):
        step, count = _count(F, step)
        g = _signed(g, maximize)
        fresh = _cast(F, F.pow(count, fade), p)
        size = 1
        for n in p.shape:
            size = size * n
        root = F.sqrt(F.mean(F.to_dtype(p, dt.float64) * p)) if size != 0 else 0.0
        rate = F.clamp(root, eps2) * F.minimum(lr + count * 0, F.rsqrt(count))
        p = p if _is_zero(decay) else p * _cast(F, 1 - lr * decay, p)
        square = g * g
        if row is None:
            var = var + (square - var) * fresh
            guess = var
        else:
            row = row + (F.mean(square, [-1], True) - row) * fresh
            col = col + (F.mean(square, [-2], True) - col) * fresh
            guess = F.matmul(row, col) / F.clamp(F.mean(row, [-2], True), eps1)
        move = F.rsqrt(F.clamp(guess, eps1 * eps1)) * g
        most = F.clamp(F.sqrt(F.mean(move * move)) / d, 1.0)
        p = p - move * _cast(F, rate / F.to_dtype(most, dt.float64), p)
        return p, *(p if t is None else t for t in (row, col, var)), step

    def samples(s):
        tail = (s.f(domain=(4, 5)), 0.1, -0.8, 1e-7, 1e-3, 1.0)
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, 1, pos=True), s.f(1, 4, pos=True), None, *tail, 0.0,
                False)
        yield s(s.f(4), s.f(4), None, None, s.f(4, pos=True), *tail, 0.1, True)
    dtypes = "float"


@op("muon_step(param: Tensor, grad: Tensor, momentum_buffer: Tensor, lr: Scalar, weight_decay: "
    "Scalar, momentum: Scalar, nesterov: bool, a: Scalar, b: Scalar, c: Scalar, eps: Scalar, "
    "steps: int, ratio: Scalar) -> tuple[Tensor, Tensor]")
class muon_step:
    """Momentum made orthogonal by Newton-Schulz iterations in bfloat16 (Jordan et al., 2024): new
    param and momentum_buffer. `ratio` scales the rate by the matrix's shape."""

    where = ""

    def rule(p, g, buf, *rest):
        return _specs(p, buf)

    def decomp(F, p, g, buf, lr, decay, momentum, nesterov, a, b, c, eps, steps, ratio):
        buf = buf + (g - buf) * (1 - momentum)
        x = g + (buf - g) * momentum if nesterov else buf
        x = F.to_dtype(x, dt.bfloat16)
        tall = p.shape[0] > p.shape[1]
        x = F.t(x) if tall else x
        x = x / F.clamp(F.linalg_vector_norm(x), eps)
        for _ in range(steps):
            gram = F.matmul(x, F.t(x))
            x = F.addmm(x, F.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        x = F.t(x) if tall else x
        p = p * (1 - lr * decay) - _cast(F, x, p) * (lr * ratio)
        return p, buf

    def samples(s):
        def one(*shape):
            return s(s.f(*shape), s.f(*shape), s.f(*shape), 0.1, 0.1, 0.9, True, 3.4445, -4.775,
                     2.0315, 1e-7, 2, 1.0)
        yield one(3, 4)
        yield one(4, 3)
    dtypes = "float"
    # A product of bfloat16 matrices: three digits.
    tolerance = {"float32": (1e-2, 1e-2), "float64": (1e-2, 1e-2)}


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

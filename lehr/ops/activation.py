"""Activation functions. Gradients read the result where that is enough (relu, selu's relatives,
tanh)."""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import approximation, rule, sample
from lehr.ops.convert import formatted
from lehr.ops.layout import contiguous
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec

NN = "nn"


def _numeric(name):
    """`rule.unary` of op `name` that refuses bool."""
    def typed(x, *rest) -> Spec:
        if x.dtype is dt.bool_:
            raise RuntimeError(f"Boolean inputs not supported for {name}")
        return rule.unary(x)
    return typed


def _widened(name):
    """`rule.float_unary` of op `name`, whose first steps are in the input's own dtype; no bool."""
    def typed(x, *rest) -> Spec:
        if x.dtype is dt.bool_:
            raise NotImplementedError(f'"{name}" not implemented for \'Bool\'')
        return rule.float_unary(x)._replace(compute=x.dtype)
    return typed


def _with(*calls):
    """`samples` of one tensor and, for each of `calls`, further positional arguments."""
    def samples(s):
        yield s(s.any(3, 4))
        yield s(s.any())
        for args in calls:
            yield s(s.any(3, 4), *args)
    return samples


@op("relu(input: Tensor) -> Tensor")
class relu:
    """max(input, 0); NaN stays NaN."""

    kind, rule, where, exact = POINTWISE, _numeric("relu"), EVERYWHERE, True
    aliases = ("nn.functional.relu",)
    dtypes, samples = "int float half", sample.unary((3, 4), ())

    def eager(np, x):
        return np.maximum(x, 0)

    def decomp(F, x):
        return F.clamp_min(x, 0)

    def vjp(F, g, out, x):
        return F.where(F.le(out, 0), 0, g)  # NaN takes the gradient, as in PyTorch


@op("relu6(input: Tensor) -> Tensor")
class relu6:
    """min(max(input, 0), 6)."""

    kind, rule, where, exact = POINTWISE, _numeric("relu6"), NN, True
    dtypes, samples = "int float half", sample.unary(domain=(-3.0, 9.0))

    def eager(np, x):
        return np.minimum(np.maximum(x, 0), 6)

    def decomp(F, x):
        return F.clamp_max(F.clamp_min(x, 0), 6)

    def vjp(F, g, out, x):
        return F.where(F.bitwise_and(F.gt(out, 0), F.lt(out, 6)), g, 0)


@op("hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor")
class hardtanh:
    """min(max(input, min_val), max_val)."""

    kind, where, exact = POINTWISE, NN, True
    dtypes = "int float half"

    def rule(x, low=-1.0, high=1.0):
        if low > high:
            raise ValueError("min_val cannot be greater than max_val")
        if x.dtype is dt.uint8 and (low < 0 or high < 0):
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
        return _numeric("hardtanh")(x)

    def decomp(F, x, low, high):
        if x.dtype.is_integer:
            low, high = int(low), int(high)
        return F.clamp_max(F.clamp_min(x, low), high)

    def vjp(F, g, out, x, low, high):
        return F.where(F.bitwise_and(F.gt(x, low), F.lt(x, high)), g, 0)

    def samples(s):
        yield s(s.any(3, 4), 0.0, 2.0)
        if s.dtype is not dt.uint8:
            yield s(s.any(3, 4))
        yield s.raises(ValueError, s.f(3), 1.0, 0.0, match="greater than max_val")


@op("leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor")
class leaky_relu:
    """input where positive, negative_slope * input elsewhere."""

    kind, rule, where = POINTWISE, rule.floating("leaky_relu"), NN
    dtypes, samples = "float half", _with((0.2,), (-0.5,))

    def eager(np, x, slope):
        low = x * x.dtype.type(slope)
        if 0 <= slope <= 1:  # several times faster than a choice by condition
            return np.maximum(x, low)
        return np.where(x > 0, x, low)

    def decomp(F, x, slope):
        return F.where(F.gt(x, 0), x, F.mul(x, slope))

    def vjp(F, g, out, x, slope):
        return F.where(F.gt(x, 0), g, F.mul(g, slope))


@op("prelu(input: Tensor, weight: Tensor) -> Tensor")
class prelu:
    """leaky_relu with a learnt slope: one, or one a channel (dimension 1)."""

    kind, where = POINTWISE, "function method"
    aliases, dtypes = ("nn.functional.prelu",), "float half"

    def rule(x, weight):
        if x.dtype is not weight.dtype:
            raise RuntimeError("prelu: Type promoting not supported. Got "
                               f"{x.dtype} and {weight.dtype}")
        if len(weight.shape) > 1:
            raise RuntimeError("prelu: Expected `weight` to be a scalar or 1D tensor, but got: "
                               "ndim = "
                               f"{len(weight.shape)}")
        channels = x.shape[1] if len(x.shape) > 1 else 1
        count = rule.numel(weight.shape)
        if not (isinstance(count, int) and count == 1) and not rule.same(count, channels):
            raise RuntimeError("Mismatch of parameter numbers and input channel size. Found "
                               "parameter "
                               f"numbers = {count} and channel size = {channels}.")
        return rule.unary(x)

    def layout(spec, x, weight):
        return formatted(x, None)

    def decomp(F, x, weight):
        return F.where(F.gt(x, 0), x, F.mul(x, _by_channel(F, weight, x.ndim)))

    def vjp(F, g, out, x, weight):
        def slopes():
            lost = F.where(F.gt(x, 0), 0, F.mul(g, x))
            dims = [d for d in range(x.ndim) if d != 1 or weight.ndim == 0 or weight.shape[0] == 1]
            total = F.sum(lost, dims) if dims else lost
            return F.view(total, weight.shape) if weight.ndim else total
        return lambda: F.where(F.gt(x, 0), g, F.mul(g, _by_channel(F, weight, x.ndim))), slopes

    def samples(s):
        yield s(s.f(2, 3, 4), s.f(3))._replace(derive=False)
        yield s(s.f(2, 3), s.f(1))._replace(derive=False)
        yield s(s.f(5), s.f(1))._replace(derive=False)
        yield s(s.f(2, 3), s.f())._replace(derive=False)
        yield s.raises(RuntimeError, s.f(2, 3), s.f(4), match="channel size")


def _by_channel(F, weight, ndim):
    """A per-channel vector shaped to multiply an input with channels in dimension 1."""
    if weight.ndim == 0 or ndim < 2:
        return F.view(weight, (1,) * ndim) if weight.ndim and ndim == 0 else weight
    return F.view(weight, (1, weight.shape[0], *(1,) * (ndim - 2)))


@op("elu(input: Tensor, alpha: Scalar = 1.0) -> Tensor")
class elu:
    """input where positive, alpha * (exp(input) - 1) elsewhere."""

    kind, rule, where = POINTWISE, rule.floating("elu"), NN
    dtypes, samples = "float half", _with((0.5,), (-0.5,))

    def eager(np, x, alpha):
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))

    def decomp(F, x, alpha):
        return F.where(F.gt(x, 0), x, F.mul(F.expm1(F.clamp_max(x, 0)), alpha))

    def vjp(F, g, out, x, alpha):
        low = F.mul(F.mul(g, alpha), F.exp(F.clamp_max(x, 0)))
        return F.where(F.le(x, 0), low, g)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@op("selu(input: Tensor) -> Tensor")
class selu:
    """scale * elu(input, alpha) with the constants of Klambauer et al. 2017."""

    kind, rule, where = POINTWISE, rule.floating("selu"), "function"
    aliases, dtypes, samples = ("nn.functional.selu",), "float half", _with()

    def decomp(F, x):
        low = F.mul(F.expm1(F.clamp_max(x, 0)), SELU_ALPHA * SELU_SCALE)
        return F.where(F.gt(x, 0), F.mul(x, SELU_SCALE), low)

    def vjp(F, g, out, x):
        # exp(x) on the negative side is out / (alpha scale) + 1.
        return F.mul(g, F.where(F.le(out, 0), F.add(out, SELU_ALPHA * SELU_SCALE), SELU_SCALE))


@op("celu(input: Tensor, alpha: Scalar = 1.0) -> Tensor")
class celu:
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1))."""

    kind, where = POINTWISE, "function"
    aliases, dtypes, samples = ("nn.functional.celu",), "float half", _with((0.5,), (2.0,))

    def rule(x, alpha=1.0):
        if isinstance(alpha, (int, float)) and alpha == 0:
            raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
        return rule.floating("celu")(x)

    def decomp(F, x, alpha):
        low = F.mul(F.expm1(F.div(F.clamp_max(x, 0), alpha)), alpha)
        return F.where(F.gt(x, 0), x, low)

    def vjp(F, g, out, x, alpha):
        return F.where(F.le(x, 0), F.mul(g, F.exp(F.div(F.clamp_max(x, 0), alpha))), g)


GELU_MODES = ("none", "tanh")
TANH_SCALE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715


@op("gelu(input: Tensor, *, approximate: str = 'none') -> Tensor")
class gelu:
    """input times the normal distribution function at input; "tanh" is the approximation of
    Hendrycks and Gimpel 2016."""

    kind, where = POINTWISE, NN
    dtypes = "float half"

    def rule(x, approximate="none"):
        if approximate not in GELU_MODES:
            raise RuntimeError("approximate argument must be either none or tanh.")
        return rule.floating("gelu")(x)

    def eager(np, x, approximate):
        if approximate == "tanh":
            inner = x * x
            inner *= TANH_CUBE
            inner += 1
            inner *= x
            inner *= TANH_SCALE
            out = np.tanh(inner)
        else:
            out = approximation.erf(x * x.dtype.type(math.sqrt(0.5)))
        out = np.asarray(out)
        out += 1
        out *= 0.5      # first: numbers may be as large as they get
        out *= x
        return out

    def decomp(F, x, approximate):
        return F.mul(F.mul(x, 0.5), F.add(_gelu_gate(F, x, approximate), 1))

    def vjp(F, g, out, x, approximate):
        return F.gelu_grad(g, x, approximate)

    def samples(s):
        # PyTorch's vectorised kernel makes NaN of +inf; the right value is inf.
        yield s(s.any(3, 4))._replace(derive=False)
        yield s(s.any(12, nonfinite=True))._replace(parity=False)
        yield s(s.any(3, 4), approximate="tanh")
        yield s.raises(RuntimeError, s.f(3), approximate="sigmoid", match="none or tanh")


def _gelu_gate(F, x, approximate):
    """erf(x / sqrt 2), or its approximation by tanh."""
    if approximate == "tanh":
        return F.tanh(F.mul(F.mul(F.add(F.mul(F.mul(x, x), TANH_CUBE), 1), x), TANH_SCALE))
    return F.erf(F.mul(x, math.sqrt(0.5)))


@op("gelu_grad(grad: Tensor, input: Tensor, approximate: str) -> Tensor")
class gelu_grad:
    """The gradient of `gelu`'s input: grad times the derivative."""

    kind, where, dtypes = POINTWISE, "", "float half"

    def rule(g, x, approximate):
        rule.check_floating("gelu_backward", x)
        return rule.binary(g, x)

    def eager(np, g, x, approximate):
        if approximate == "tanh":
            gate = np.tanh((x * x * TANH_CUBE + 1) * x * TANH_SCALE)
            slope = (x * x * (3 * TANH_CUBE) + 1) * (TANH_SCALE / 2)
            density = (1 - gate * gate) * slope
        else:
            gate = approximation.erf(x * x.dtype.type(math.sqrt(0.5)))
            density = np.exp(x * x * -0.5) * x.dtype.type(1 / math.sqrt(2 * math.pi))
        return g * ((gate + 1) * 0.5 + x * density)

    def decomp(F, g, x, approximate):
        half = F.mul(F.add(_gelu_gate(F, x, approximate), 1), 0.5)
        if approximate == "tanh":
            gate = _gelu_gate(F, x, approximate)
            slope = F.mul(F.add(F.mul(F.mul(x, x), 3 * TANH_CUBE), 1), TANH_SCALE / 2)
            density = F.mul(F.rsub(F.mul(gate, gate), 1), slope)
        else:
            density = F.mul(F.exp(F.mul(F.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return F.mul(g, F.add(half, F.mul(x, density)))

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4), "none")
        yield s(s.f(3, 4), s.f(3, 4), "tanh")


@op("silu(input: Tensor) -> Tensor")
class silu:
    """input * sigmoid(input)."""

    kind, rule, where, dtypes = POINTWISE, rule.floating("silu"), NN, "float half"
    samples = _with()

    def eager(np, x):
        out = np.negative(x, out=np.empty_like(x))
        np.exp(out, out=out)
        out += 1
        return np.divide(x, out, out=out)

    def decomp(F, x):
        return F.div(x, F.add(F.exp(F.neg(x)), 1))

    def vjp(F, g, out, x):
        gate = F.sigmoid(x)
        return F.mul(F.mul(g, gate), F.add(F.mul(x, F.rsub(gate, 1)), 1))


@op("mish(input: Tensor) -> Tensor")
class mish:
    """input * tanh(softplus(input)) (Misra 2019)."""

    kind, rule, where, dtypes = POINTWISE, rule.floating("mish"), NN, "float half"
    samples = _with()

    def decomp(F, x):
        return F.mul(x, F.tanh(F.softplus(x)))

    def vjp(F, g, out, x):
        gate = F.tanh(F.softplus(x))
        slope = F.mul(F.mul(x, F.sigmoid(x)), F.rsub(F.mul(gate, gate), 1))
        return F.mul(g, F.add(gate, slope))


@op("softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor")
class softplus:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input exceeds threshold."""

    kind, rule, where = POINTWISE, rule.floating("softplus"), NN
    dtypes, samples = "float half", _with((2.0,), (0.5, 1.0))

    def eager(np, x, beta, threshold):
        scaled = x * x.dtype.type(beta)
        soft = np.log1p(np.exp(np.minimum(scaled, threshold))) / beta
        return np.where(scaled > threshold, x, soft)

    def decomp(F, x, beta, threshold):
        scaled = F.mul(x, beta)
        # Clamped before exp, so that the side not chosen has no infinite gradient.
        soft = F.div(F.log1p(F.exp(F.clamp_max(scaled, threshold))), beta)
        return F.where(F.gt(scaled, threshold), x, soft)

    def vjp(F, g, out, x, beta, threshold):
        scaled = F.mul(x, beta)
        return F.where(F.gt(scaled, threshold), g, F.mul(g, F.sigmoid(scaled)))


@op("logsigmoid(input: Tensor) -> Tensor")
class logsigmoid:
    """log(sigmoid(input)) = min(input, 0) - log(1 + exp(-abs(input)))."""

    kind, rule, where, dtypes = POINTWISE, rule.floating("log_sigmoid"), NN, "float half"
    samples = _with()

    def layout(spec, x):
        return contiguous(spec.shape)

    def eager(np, x):
        return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))

    def decomp(F, x):
        return F.sub(F.clamp_max(x, 0), F.log1p(F.exp(F.neg(F.abs(x)))))

    def vjp(F, g, out, x):
        return F.mul(g, F.sigmoid(F.neg(x)))


@op("softsign(input: Tensor) -> Tensor")
class softsign:
    """input / (1 + abs(input))."""

    kind, rule, where, dtypes = POINTWISE, _widened("softsign"), NN, "float half"
    samples = _with()

    def decomp(F, x):
        return F.div(x, F.add(F.abs(x), 1))

    def vjp(F, g, out, x):
        scale = F.add(F.abs(x), 1)
        return F.div(g, F.mul(scale, scale))


@op("tanhshrink(input: Tensor) -> Tensor")
class tanhshrink:
    """input - tanh(input)."""

    kind, rule, where, dtypes = POINTWISE, _widened("tanhshrink"), NN, "float half"
    samples = _with()

    def decomp(F, x):
        return F.sub(x, F.tanh(x))

    def vjp(F, g, out, x):
        gate = F.tanh(x)
        return F.mul(g, F.mul(gate, gate))


@op("hardsigmoid(input: Tensor) -> Tensor")
class hardsigmoid:
    """min(max(input + 3, 0), 6) / 6."""

    kind, rule, where, dtypes = POINTWISE, rule.floating("hardsigmoid"), NN, "float half"
    samples = sample.unary(domain=(-5.0, 5.0))

    def decomp(F, x):
        return F.div(F.clamp_max(F.clamp_min(F.add(x, 3), 0), 6), 6)

    def vjp(F, g, out, x):
        return F.where(F.bitwise_and(F.gt(x, -3), F.lt(x, 3)), F.div(g, 6), 0)


@op("hardswish(input: Tensor) -> Tensor")
class hardswish:
    """input * hardsigmoid(input)."""

    kind, rule, where, dtypes = POINTWISE, rule.floating("hardswish"), NN, "float half"
    samples = sample.unary(domain=(-5.0, 5.0))

    def decomp(F, x):
        return F.div(F.mul(x, F.clamp_max(F.clamp_min(F.add(x, 3), 0), 6)), 6)

    def vjp(F, g, out, x):
        slope = F.add(F.div(x, 3), 0.5)
        return F.where(F.le(x, -3), 0, F.where(F.lt(x, 3), F.mul(g, slope), g))


@op("hardshrink(input: Tensor, lambd: Scalar = 0.5) -> Tensor")
class hardshrink:
    """0 where abs(input) <= lambd, input elsewhere."""

    kind, rule, where, exact = POINTWISE, rule.floating("hardshrink"), "function method", True
    aliases, dtypes, samples = ("nn.functional.hardshrink",), "float half", _with((1.5,))

    def decomp(F, x, lambd):
        return F.where(F.le(F.abs(x), lambd), 0, x)

    def vjp(F, g, out, x, lambd):
        return F.where(F.gt(F.abs(x), lambd), g, 0)  # none for NaN, as in PyTorch


@op("softshrink(input: Tensor, lambd: float = 0.5) -> Tensor")
class softshrink:
    """input moved toward 0 by lambd, 0 where it is nearer than that."""

    kind, where, exact = POINTWISE, NN, True
    dtypes = "float half"

    def rule(x, lambd=0.5):
        if lambd < 0:
            raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
        return rule.floating("softshrink")(x)

    def decomp(F, x, lambd):
        # x * 0 keeps a NaN.
        inner = F.where(F.lt(x, -lambd), F.add(x, lambd), F.mul(x, 0))
        return F.where(F.gt(x, lambd), F.sub(x, lambd), inner)

    def vjp(F, g, out, x, lambd):
        return F.where(F.gt(F.abs(x), lambd), g, 0)  # none for NaN, as in PyTorch

    def samples(s):
        yield from _with((1.5,))(s)
        yield s.raises(RuntimeError, s.f(3), -0.5, match="greater or equal to 0")


@op("threshold(input: Tensor, threshold: float, value: float) -> Tensor")
class threshold:
    """input where it exceeds threshold, value elsewhere."""

    kind, rule, where, exact = POINTWISE, _numeric("threshold"), "function", True
    aliases, dtypes = ("nn.functional.threshold",), "int float half"

    def decomp(F, x, limit, value):
        if x.dtype.is_integer:
            limit, value = int(limit), int(value)
        return F.where(F.le(x, limit), value, x)

    def vjp(F, g, out, x, limit, value):
        return F.where(F.le(x, limit), 0, g)

    def samples(s):
        yield s(s.any(3, 4), 1.0, 20.0)


@op("glu(input: Tensor, dim: int = -1) -> Tensor")
class glu:
    """The first half along `dim` times the sigmoid of the second."""

    where, dtypes = NN, "float half"

    def rule(x, dim=-1):
        if not x.shape:
            raise RuntimeError("glu does not support 0-dimensional tensors")
        d = rule.dim_of(dim, len(x.shape))
        n = x.shape[d]
        if not rule.same(n % 2, 0):
            raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {n}")
        shape = (*x.shape[:d], n // 2, *x.shape[d + 1:])
        return rule.floating("glu")(x)._replace(shape=shape)

    def decomp(F, x, dim):
        half = x.shape[dim] // 2
        return F.mul(F.narrow(x, dim, 0, half), F.sigmoid(F.narrow(x, dim, half, half)))

    def samples(s):
        yield s(s.f(3, 4))
        yield s(s.f(2, 4, 3), 1)
        yield s.raises(RuntimeError, s.f(3, 3), match="must be even")
        yield s.raises(RuntimeError, s.f(), match="0-dimensional")

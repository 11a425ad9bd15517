"""Rounding, signs and the parts of floating numbers."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, op
from lehr.ops.rule import Spec

HALVES = (0.5, 1.5, 2.5, -0.5, -1.5, -2.5)


def _spelled(name):
    """Integers are already whole."""
    return ({dt.INT: "{input}", dt.FLOAT: f"lehr_{name}_{{t}}({{input}})"},
            {dt.INT: "{input}", dt.FLOAT: f"lehr_{name}({{input}})"})


def _whole(name):
    def typed(x, *rest) -> Spec:
        if x.dtype is dt.bool_:
            raise NotImplementedError(f'"{name}" not implemented for \'Bool\'')
        return rule.unary(x)
    return typed


def _halves(s):
    yield s(s.any(3, 4))
    yield s(s.any())
    if s.dtype.category == dt.FLOAT:
        x = s.f(len(HALVES))
        x[:] = HALVES
        yield s(x)


def _flat(F, g, out, x):
    return F.zeros_like(g)


@op("floor(input: Tensor) -> Tensor")
class floor:
    kind, rule, where, vjp = POINTWISE, _whole("floor"), EVERYWHERE, _flat
    c, triton = _spelled("floor")
    dtypes, samples = "int float half", _halves

    def eager(np, x):
        return np.floor(x) if x.dtype.kind == "f" else x


@op("ceil(input: Tensor) -> Tensor")
class ceil:
    kind, rule, where, vjp = POINTWISE, _whole("ceil"), EVERYWHERE, _flat
    c, triton = _spelled("ceil")
    dtypes, samples = "int float half", _halves

    def eager(np, x):
        return np.ceil(x) if x.dtype.kind == "f" else x


@op("trunc(input: Tensor) -> Tensor")
class trunc:
    """Toward zero."""

    kind, rule, where, vjp, aliases = POINTWISE, _whole("trunc"), EVERYWHERE, _flat, ("fix",)
    c, triton = _spelled("trunc")
    dtypes, samples = "int float half", _halves

    def eager(np, x):
        return np.trunc(x) if x.dtype.kind == "f" else x


@op("round(input: Tensor, *, decimals: int = 0) -> Tensor")
class round:
    """To the nearest whole number, halves to even; to the nearest multiple of 10**-decimals."""

    kind, where, aliases = POINTWISE, EVERYWHERE, ("special.round",)

    def rule(x, decimals=0):
        if decimals and x.dtype.is_integer:
            raise NotImplementedError(f'"round" with decimals is not implemented for '
                                      f'{rule.label(x.dtype)}')
        return _whole("round")(x)

    c, triton = _spelled("rint")
    dtypes = "int float half"

    def eager(np, x, decimals):
        if decimals == 0:
            return np.rint(x) if x.dtype.kind == "f" else x
        scale = x.dtype.type(10.0 ** abs(decimals))
        return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale

    def decomp(F, x, decimals):
        if decimals == 0:
            return NotImplemented
        scale = 10.0 ** abs(decimals)
        if decimals > 0:
            return F.div(F.round(F.mul(x, scale)), scale)
        return F.mul(F.round(F.div(x, scale)), scale)

    def vjp(F, g, out, x, decimals):
        return F.zeros_like(g)

    def samples(s):
        yield from _halves(s)
        if s.dtype in (dt.float32, dt.float64):
            yield s(s.any(3, 4), decimals=2)
            yield s(s.f(3, 4, domain=(-300, 300)), decimals=-1)


@op("frac(input: Tensor) -> Tensor")
class frac:
    """input - trunc(input)."""

    kind, rule, where = POINTWISE, rule.floating("frac"), EVERYWHERE
    dtypes, samples = "float half", sample.unary()

    def eager(np, x):
        return x - np.trunc(x)

    def decomp(F, x):
        return F.sub(x, F.trunc(x))

    def vjp(F, g, out, x):
        return g


@op("copysign(input: Tensor, other: Tensor | Scalar) -> Tensor")
class copysign:
    """The magnitude of input with the sign of other (of -0.0 too)."""

    kind, rule, where = POINTWISE, rule.float_binary, EVERYWHERE
    c, triton = "lehr_copysign_{t}({input}, {other})", "lehr_copysign({input}, {other})"
    samples = sample.operands()

    def eager(np, x, y):
        return np.copysign(x, y)

    def vjp(F, g, out, x, y):
        ratio = F.where(F.eq(x, 0), 0, F.div(out, x))
        return F.mul(g, ratio), lambda: F.zeros_like(g)


def _same_type(x, values) -> Spec:
    if x.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return rule.binary(x, values)


@op("heaviside(input: Tensor, values: Tensor) -> Tensor")
class heaviside:
    """0 below zero, 1 above, `values` at zero; 0 for NaN."""

    kind, rule, where, nondiff = POINTWISE, _same_type, EVERYWHERE, True

    def decomp(F, x, values):
        return F.where(F.eq(x, 0), values, F.gt(x, 0))

    def samples(s):
        yield s(s.any(3, 4, low=0, high=2), s.any(4))
        yield s.raises(RuntimeError, s.f(3), s.i(3), match="different dtypes")


@op("nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None,"
    " neginf: float | None = None) -> Tensor")
class nan_to_num:
    """NaN and infinities replaced: by 0 and by the largest numbers of the dtype where not given."""

    kind, where, exact = POINTWISE, EVERYWHERE, True

    def rule(x, *rest):
        # Not widened for half precision: the largest numbers are the input's own.
        return Spec(tuple(x.shape), x.dtype, x.device)

    def decomp(F, x, nan, posinf, neginf):
        if x.dtype.category < dt.FLOAT:
            return F.clone(x)
        low, high = LIMITS[x.dtype.name]
        out = F.where(F.ne(x, x), 0.0 if nan is None else nan, x)
        out = F.where(F.eq(out, float("inf")), high if posinf is None else posinf, out)
        return F.where(F.eq(out, float("-inf")), low if neginf is None else neginf, out)

    def vjp(F, g, out, x, nan, posinf, neginf):
        return F.where(F.isfinite(x), g, 0)

    def samples(s):
        yield s(s.any(12, nonfinite=True))
        yield s(s.any(12, nonfinite=True), 1.5, posinf=2.0, neginf=-3.0)


# Least and largest finite numbers.
LIMITS = {"float16": (-65504.0, 65504.0),
          "bfloat16": (-3.3895313892515355e38, 3.3895313892515355e38),
          "float32": (-3.4028234663852886e38, 3.4028234663852886e38),
          "float64": (-1.7976931348623157e308, 1.7976931348623157e308)}


@op("nextafter(input: Tensor, other: Tensor) -> Tensor")
class nextafter:
    """The next representable number from input toward other."""

    kind, where, host, exact = POINTWISE, EVERYWHERE, True, True
    dtypes, samples = "float half", sample.binary()

    def rule(x, y):
        spec = rule.numeric("nextafter", dt.FLOAT)(x, y)
        return spec._replace(compute=None)  # a step in half precision is none in float32

    def eager(np, x, y):
        kinds = [[dt.of_numpy(v.dtype) for v in (x, y) if bool(v.ndim) is full]
                 for full in (True, False)]
        made = dt.result_type(*kinds, []).np
        return np.nextafter(x.astype(made), y.astype(made))

    def vjp(F, g, out, x, y):
        return lambda: F.where(F.eq(x, y), 0, g), lambda: F.mul(g, 0)


@op("frexp(input: Tensor) -> named(mantissa=Tensor, exponent=Tensor)")
class frexp:
    """input = mantissa * 2 ** exponent with mantissa in [0.5, 1); the exponent is int32."""

    kind, where, nondiff, host = POINTWISE, "function method", (1,), True
    dtypes = "float half"

    def rule(x):
        if x.dtype.is_integer:
            raise RuntimeError("torch.frexp() only supports floating-point dtypes")
        shape = tuple(x.shape)
        return (Spec(shape, x.dtype, x.device, x.dtype), Spec(shape, dt.int32, x.device))

    def eager(np, x):
        return np.frexp(x)

    def vjp(F, g, out, x):
        return None if g[0] is None else F.div(g[0], F.exp2(out[1]))

    def samples(s):
        yield s(s.any(3, 4))
        yield s.raises(RuntimeError, s.i(3), match="floating-point")

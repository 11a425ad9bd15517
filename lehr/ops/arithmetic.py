"""Addition to powers: the ops behind Python's arithmetic operators, and their close relatives."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.registry import EVERYWHERE, POINTWISE, REDUCE, op
from lehr.ops.rule import Spec, same


def _kinds(boolean, other):
    """A spelling that differs for bool."""
    return {dt.BOOL: boolean, dt.INT: other, dt.FLOAT: other}


def _is_one(number):
    """A known factor of 1; a run-time number never is."""
    return isinstance(number, (int, float)) and number == 1


def _scaled(x, y, alpha=1) -> Spec:
    spec = rule.elementwise((x, y))
    made = spec.dtype
    if made.category < dt.FLOAT and dt.category_of(alpha) > dt.INT:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating "
                           "point "
                           "number.")
    if made.category > dt.BOOL and dt.category_of(alpha) == dt.BOOL:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    return spec


def _difference(x, y, alpha=1) -> Spec:
    operands = [v.dtype if rule.is_tensor(v) else dt.of_category(dt.category_of(v)) for v in (x, y)]
    if dt.bool_ in operands:
        both, instead = (
            ("two bool tensors", "Use the `^` or `logical_xor()` operator instead.")
            if operands[0] is operands[1] else
            ("a bool tensor", "If you are trying to invert a mask, use the `~` or `logical_not()` "
                              "operator instead."))
        raise RuntimeError(f"Subtraction, the `-` operator, with {both} is not supported. "
                           f"{instead}")
    return _scaled(x, y, alpha)


def _with_alpha(s):
    yield from sample.binary()(s)
    yield s(s.any(5), 2)
    yield s(s.any(5), 2.5)
    if s.dtype.category == dt.FLOAT:
        yield s(s.any(3, 4), s.any(4), alpha=2.5)
    if s.dtype.category > dt.BOOL:
        yield s(s.any(3, 4), s.any(4), alpha=-3)
    if s.dtype.category == dt.INT:
        yield s.raises(RuntimeError, s.any(3), s.any(3), alpha=2.5, match="floating point")


@op("add(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor")
class add:
    """input + alpha * other."""

    kind, rule, where, exact = POINTWISE, _scaled, EVERYWHERE, True
    c = triton = _kinds("{input} | {other}", "{input} + {other}")
    samples = _with_alpha

    def eager(np, x, y, alpha):
        return np.add(x, y if _is_one(alpha) else np.multiply(alpha, y))

    def decomp(F, x, y, alpha):
        return NotImplemented if _is_one(alpha) else F.add(x, F.mul(y, alpha))

    def vjp(F, g, out, x, y, alpha):
        return g, g if _is_one(alpha) else lambda: F.mul(g, alpha)


@op("sub(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor")
class sub:
    """input - alpha * other; bool operands are refused."""

    kind, rule, where, exact, aliases = POINTWISE, _difference, EVERYWHERE, True, ("subtract",)
    c = triton = "{input} - {other}"
    dtypes, samples = "int float half", _with_alpha

    def eager(np, x, y, alpha):
        return np.subtract(x, y if _is_one(alpha) else np.multiply(alpha, y))

    def decomp(F, x, y, alpha):
        return NotImplemented if _is_one(alpha) else F.sub(x, F.mul(y, alpha))

    def vjp(F, g, out, x, y, alpha):
        return g, lambda: F.neg(g) if _is_one(alpha) else F.mul(F.neg(g), alpha)


@op("rsub(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor")
class rsub:
    """other - alpha * input."""

    where, dtypes = "function", "int float half"

    def rule(x, y, alpha=1):
        return _difference(y, x, alpha)

    def decomp(F, x, y, alpha):
        return F.sub(y, x, alpha=alpha)

    def samples(s):
        yield s(s.any(3, 4), s.any(4))
        yield s(s.any(3, 4), 2, alpha=3)


@op("mul(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class mul:
    kind, rule, where, aliases = POINTWISE, rule.binary, EVERYWHERE, ("multiply",)
    c = triton = _kinds("{input} & {other}", "{input} * {other}")
    samples = sample.operands()

    def eager(np, x, y):
        return np.multiply(x, y)

    def vjp(F, g, out, x, y):
        return lambda: F.mul(g, y), lambda: F.mul(g, x)


ROUNDINGS = (None, "floor", "trunc")


def _quotient(x, y, rounding_mode=None) -> Spec:
    if rounding_mode not in ROUNDINGS:
        raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but "
                           "found "
                           f"{rounding_mode!r}")
    if rounding_mode is None:
        return rule.elementwise((x, y), floating=True)
    return rule.numeric(f"div_{rounding_mode}")(x, y)


def _divisor(np, x, y):
    """Integer division by zero is an error, as in PyTorch on the CPU."""
    if np.asarray(y).dtype.kind in "iu" and np.any(np.equal(y, 0)) and np.size(x):
        raise RuntimeError("ZeroDivisionError")
    return y


def _checked(F, x, y):
    """`checks` of a division of integers, which a divisor of 0 stops."""
    whole = all(v.dtype.category <= dt.INT if rule.is_tensor(v) else dt.category_of(v) <= dt.INT
                for v in (x, y))
    if not whole or rule.is_tensor(x) and same(rule.numel(x.shape), 0):
        return
    if rule.is_tensor(y):
        F.check_divisor(y)
    elif isinstance(y, (bool, int)) and y == 0:
        F.check_divisor(F.full((), 0, dtype=dt.int64, device=x.device))


@op("check_divisor(input: Tensor) -> Tensor")
class check_divisor:
    """Stops the program where an integer is 0; gives the greatest of 1 // input, which nobody
    needs: the op is there for the error."""

    kind, where, nondiff, stops = REDUCE, "", True, True

    def rule(x):
        return Spec((), dt.int64, x.device)

    def eager(np, x):
        quotients = np.floor_divide(1, _divisor(np, np.ones(1), x).astype(np.int64))
        return quotients.max(initial=np.iinfo(np.int64).min)

    def lower(L, idx, x):
        return L.reduce("max", tuple(x.shape), lambda k: L.op(
            "floor_divide", L.const(1, dt.int64), L.cast(L.at(x, k), dt.int64)))

    def samples(s):
        yield s(s.i(3, 4, low=1))
        yield s(s.i(3, low=-4, high=0))
        yield s(s.i(0))
        yield s.raises(RuntimeError, s.i(3, low=0, high=1), match="ZeroDivisionError")


def _flat(F, g, out, x, y):
    """The gradient of a step function."""
    return lambda: F.zeros_like(g), lambda: F.zeros_like(g)


def _division(s):
    yield from sample.operands(away_from_zero=True)(s)
    if s.dtype.category < dt.FLOAT:
        yield s.raises(RuntimeError, s.any(3), s.any(3) * 0, match="ZeroDivisionError")
    else:
        yield s(s.f(6, nonfinite=True), s.f(6, away_from_zero=True))
        yield s(s.f(3, 4), 0.0)


@op("div(input: Tensor | Scalar, other: Tensor | Scalar, *,"
    " rounding_mode: str | None = None) -> Tensor")
class div:
    """input / other; "floor" and "trunc" round the quotient and keep integers."""

    kind, rule, where = POINTWISE, _quotient, EVERYWHERE
    aliases = ("divide",)
    c, triton = "{input} / {other}", "lehr_div({input}, {other})"

    def eager(np, x, y, rounding_mode):
        if rounding_mode is None:
            return np.true_divide(x, y)
        return (_floor if rounding_mode == "floor" else _trunc)(np, x, y)

    def decomp(F, x, y, rounding_mode):
        if rounding_mode is None:
            return NotImplemented
        return (F.floor_divide if rounding_mode == "floor" else F.trunc_divide)(x, y)

    def vjp(F, g, out, x, y, rounding_mode):
        if rounding_mode is not None:
            return lambda: F.zeros_like(g), lambda: F.zeros_like(g)
        return lambda: F.div(g, y), lambda: F.mul(F.neg(g), F.div(F.div(x, y), y))

    def samples(s):
        yield from sample.operands(away_from_zero=True)(s)
        for mode in ("floor", "trunc"):
            if s.dtype is not dt.bool_:
                yield s(s.any(3, 4), s.any(3, 4, away_from_zero=True), rounding_mode=mode)
                yield s(s.any(3, 4), 2, rounding_mode=mode)
                yield s(s.any(3, 4), -1.5, rounding_mode=mode)
            else:
                yield s.raises(NotImplementedError, s.any(3), s.any(3), rounding_mode=mode)
        yield s.raises(RuntimeError, s.any(3), 2, rounding_mode="up", match="rounding_mode")


@op("true_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class true_divide:
    where, rule = EVERYWHERE, rule.float_binary

    def decomp(F, x, y):
        return F.div(x, y)

    def samples(s):
        yield s(s.any(3, 4), s.any(4, away_from_zero=True))


def _floor(np, x, y):
    return np.floor_divide(x, _divisor(np, x, y))


def _trunc(np, x, y):
    if np.result_type(x, y).kind == "f":
        return np.trunc(np.true_divide(x, y))
    quotient = np.floor_divide(x, _divisor(np, x, y))
    inexact = np.not_equal(np.multiply(quotient, y), x)
    return np.where(inexact & (np.less(x, 0) != np.less(y, 0)), quotient + 1, quotient)


@op("floor_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class floor_divide:
    """Floor of the quotient; integers stay integers, and their division by zero is an error."""

    kind, rule, where = POINTWISE, rule.numeric("floor_divide"), EVERYWHERE
    c, triton = "lehr_floor_divide_{t}({input}, {other})", "lehr_floor_divide({input}, {other})"
    eager, vjp, dtypes, samples = _floor, _flat, "int float half", _division
    checks = _checked


@op("trunc_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class trunc_divide:
    """The quotient rounded toward zero (`div` with rounding_mode="trunc")."""

    kind, rule, where = POINTWISE, rule.numeric("trunc_divide"), ""
    c, triton = "lehr_trunc_divide_{t}({input}, {other})", "lehr_trunc_divide({input}, {other})"
    eager, vjp, dtypes, samples = _trunc, _flat, "int float half", _division
    checks = _checked


@op("remainder(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor")
class remainder:
    """Remainder with the sign of the divisor (Python's %)."""

    kind, rule, where = POINTWISE, rule.numeric("remainder"), EVERYWHERE
    c, triton = "lehr_remainder_{t}({input}, {other})", "lehr_remainder({input}, {other})"
    dtypes, samples, checks = "int float half", _division, _checked

    def eager(np, x, y):
        return np.remainder(x, _divisor(np, x, y))

    def vjp(F, g, out, x, y):
        return g, lambda: F.mul(F.neg(g), F.floor_divide(x, y))


@op("fmod(input: Tensor, other: Tensor | Scalar) -> Tensor")
class fmod:
    """Remainder with the sign of the dividend (C's fmod)."""

    kind, rule, where = POINTWISE, rule.numeric("fmod"), EVERYWHERE
    c, triton = "lehr_fmod_{t}({input}, {other})", "lehr_fmod({input}, {other})"
    dtypes, samples, checks = "int float half", _division, _checked

    def eager(np, x, y):
        return np.fmod(x, _divisor(np, x, y))

    def vjp(F, g, out, x, y):
        return g, lambda: F.mul(F.neg(g), F.trunc_divide(x, y))


def _negated(x) -> Spec:
    if x.dtype is dt.bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. If you "
                           "are "
                           "trying to invert a mask, use the `~` or `logical_not()` operator "
                           "instead.")
    return rule.unary(x)


@op("neg(input: Tensor) -> Tensor")
class neg:
    kind, rule, where, exact, aliases = POINTWISE, _negated, EVERYWHERE, True, ("negative",)
    c, triton = "-{input}", {dt.INT: "-{input}", dt.FLOAT: "{input} * -1.0"}  # 0 - x has no -0
    dtypes = "int float half"

    def eager(np, x):
        return np.negative(x)

    def vjp(F, g, out, x):
        return F.neg(g)

    def samples(s):
        yield s(s.any(3, 4))
        yield s.raises(RuntimeError, s.b(3), match="Negation")


@op("abs(input: Tensor) -> Tensor")
class abs:
    kind, where, aliases = POINTWISE, EVERYWHERE, ("absolute",)
    c, triton = dict.fromkeys((dt.INT, dt.FLOAT), "lehr_abs_{t}({input})"), "tl.abs({input})"
    dtypes = "int float half"

    def rule(x):
        return rule.numeric("abs")(x)._replace(dtype=x.dtype.to_real())

    def eager(np, x):
        return np.abs(x)

    def vjp(F, g, out, x):
        return F.mul(g, F.sgn(x))

    samples = sample.unary((3, 4), (), nonfinite=True)


def _sign(np, x):
    # numpy keeps NaN; PyTorch's sign of NaN is 0.
    if x.dtype.kind in "bc":
        return x if x.dtype.kind == "b" else np.sign(x)
    return (np.greater(x, 0).astype(np.int8) - np.less(x, 0).astype(np.int8)).astype(x.dtype)


SIGN = _kinds("{input}", "({input} > 0) - ({input} < 0)")
TRITON_SIGN = _kinds("{input}", "lehr_sign({input})")


@op("sign(input: Tensor) -> Tensor")
class sign:
    """-1, 0 or 1; 0 for NaN."""

    kind, rule, where = POINTWISE, rule.unary, EVERYWHERE
    c, triton, eager = SIGN, TRITON_SIGN, _sign
    samples = sample.unary()

    def vjp(F, g, out, x):
        return F.zeros_like(g)


@op("sgn(input: Tensor) -> Tensor")
class sgn:
    """`sign`; of a complex number, the number over its magnitude."""

    kind, rule, where = POINTWISE, rule.unary, EVERYWHERE
    c, triton, eager = SIGN, TRITON_SIGN, _sign
    samples = sample.unary()

    def vjp(F, g, out, x):
        if not x.dtype.is_complex:
            return F.zeros_like(g)
        # What is left of g across the direction of x, over the distance from 0.
        unit = F.sgn(x)
        across = F.sub(g, F.mul(unit, F.real(F.mul(g, F.conj(unit)))))
        return F.where(F.eq(x, 0), 0, F.div(across, F.abs(x)))


@op("square(input: Tensor) -> Tensor")
class square:
    kind, where = POINTWISE, EVERYWHERE
    samples = sample.unary()

    def rule(x):
        # The square of a bool is the power x**2, an int64.
        compute = dt.int64 if x.dtype is dt.bool_ else x.dtype
        return Spec(tuple(x.shape), compute, x.device, compute)

    def eager(np, x):
        return np.multiply(x, x)

    def decomp(F, x):
        return F.mul(x, x)

    def vjp(F, g, out, x):
        return F.mul(g, F.mul(x, 2))


@op("reciprocal(input: Tensor) -> Tensor")
class reciprocal:
    kind, rule, where = POINTWISE, rule.float_unary, EVERYWHERE
    samples = sample.unary(away_from_zero=True)

    def eager(np, x):
        return np.true_divide(x.dtype.type(1), x)

    def decomp(F, x):
        return F.div(1, x)

    def vjp(F, g, out, x):
        return F.mul(F.neg(g), F.mul(out, out))


@op("positive(input: Tensor) -> Tensor")
class positive:
    """The input itself; bool is refused."""

    where, dtypes, samples = "function method", "int float half", sample.unary()

    def rule(x):
        if x.dtype is dt.bool_:
            raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
        return rule.unary(x)

    def decomp(F, x):
        return F.alias(x)


def _triple(x, y, z, value=1) -> Spec:
    return rule.elementwise((x, y, z))


def _triple_samples(s):
    yield s(s.any(3, 4), s.any(3, 4), s.any(4, away_from_zero=True))
    yield s(s.any(3, 4), s.any(3, 1), s.any(4, away_from_zero=True), value=3)
    if s.dtype.category == dt.FLOAT:
        yield s(s.any(2, 3), s.any(2, 3), s.any(3, away_from_zero=True), value=-0.5)


@op("addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor")
class addcmul:
    """input + value * tensor1 * tensor2."""

    kind, rule, where = POINTWISE, _triple, EVERYWHERE
    dtypes, samples = "int float half", _triple_samples

    def eager(np, x, a, b, value):
        return x + (a if _is_one(value) else value * a) * b

    def decomp(F, x, a, b, value):
        if type(value) is float and not (x.dtype.is_floating_point or a.dtype.is_floating_point
                                         or b.dtype.is_floating_point):
            value = int(value)      # integers are scaled by integers
        return F.add(x, F.mul(a if _is_one(value) else F.mul(a, value), b))

    def vjp(F, g, out, x, a, b, value):
        return g, lambda: F.mul(F.mul(g, b), value), lambda: F.mul(F.mul(g, a), value)


@op("addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor")
class addcdiv:
    """input + value * tensor1 / tensor2; integers are refused."""

    kind, where = POINTWISE, EVERYWHERE
    dtypes = "float half"

    def rule(x, a, b, value=1):
        if a.dtype.is_integer and b.dtype.is_integer:
            raise RuntimeError("Integer division with addcdiv is no longer supported; divide "
                               "first, as in "
                               "input + value * torch.trunc(tensor1 / tensor2)")
        return _triple(x, a, b)

    def eager(np, x, a, b, value):
        return x + (a if _is_one(value) else value * a) / b

    def decomp(F, x, a, b, value):
        return F.add(x, F.div(a if _is_one(value) else F.mul(a, value), b))

    def vjp(F, g, out, x, a, b, value):
        return (g, lambda: F.div(F.mul(g, value), b),
                lambda: F.div(F.mul(F.mul(F.neg(g), value), F.div(a, b)), b))

    def samples(s):
        yield from _triple_samples(s)
        yield s.raises(RuntimeError, s.i(3), s.i(3), s.i(3, low=1), match="addcdiv")


def _blend(x, end, weight) -> Spec:
    for other in (end, weight):
        if rule.is_tensor(other) and other.dtype is not x.dtype:
            raise RuntimeError(f"expected dtype {x.dtype} for `end` and `weight` but got dtype "
                               f"{other.dtype}")
    if x.dtype.is_integer:
        raise NotImplementedError(f'"lerp" not implemented for {rule.label(x.dtype)}')
    return rule.elementwise([v for v in (x, end, weight) if rule.is_tensor(v)])


@op("lerp(input: Tensor, end: Tensor, weight: Tensor | Scalar) -> Tensor")
class lerp:
    """input + weight * (end - input), written from the nearer end so that weight 1 gives `end`
    exactly."""

    kind, rule, where, dtypes = POINTWISE, _blend, EVERYWHERE, "float half"

    def eager(np, x, end, weight):
        gap = end - x
        return np.where(np.abs(weight) < 0.5, x + weight * gap, end - gap * (1 - weight))

    def decomp(F, x, end, weight):
        gap = F.sub(end, x)
        near = F.add(x, F.mul(gap, weight))
        far = F.sub(end, F.mul(gap, F.rsub(weight, 1) if rule.is_tensor(weight) else 1 - weight))
        if rule.is_tensor(weight):
            return F.where(F.lt(F.abs(weight), 0.5), near, far)
        if isinstance(weight, (int, float)):
            return near if -0.5 < weight < 0.5 else far
        return near

    def vjp(F, g, out, x, end, weight):
        return (lambda: F.mul(g, F.rsub(weight, 1) if rule.is_tensor(weight) else 1 - weight),
                lambda: F.mul(g, weight), lambda: F.mul(g, F.sub(end, x)))

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, 4, domain=(-0.4, 1.4)))
        yield s(s.f(3, 4), s.f(4), 0.3)
        yield s(s.f(3, 4), s.f(4), 0.9)
        yield s.raises(NotImplementedError, s.i(3), s.i(3), 0.5, match="lerp")

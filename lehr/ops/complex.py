"""Complex numbers: parts, conjugation, polar form.

No back end lowers complex arithmetic; a compiled program runs these (and every op on complex
operands) as host calls. Gradients follow PyTorch's convention: the gradient of a real result with
respect to z = x + iy is d/dx + i d/dy, so a holomorphic op's rule is conjugated
(`ops.expand.pullback` does that); the rules here, which are not holomorphic, are written out.
"""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule, sample
from lehr.ops.convert import formatted
from lehr.ops.layout import contiguous
from lehr.ops.registry import POINTWISE, VIEW, op
from lehr.ops.rule import Spec

METHOD = "function method"


def _complex(s, *shape):
    """Complex values of the precision under test."""
    pairs = s.f(*shape, 2, dtype=dt.float64).astype(s.floating.to_complex().to_real().np)
    return pairs.view(s.floating.to_complex().np)[..., 0]


def _pair(a, b, name):
    if a.dtype is not b.dtype or a.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(f"{name}: expected both inputs to be Float or Double tensors of one "
                           f"type, but got {rule.LABELS[a.dtype.name]} and "
                           f"{rule.LABELS[b.dtype.name]}")
    shape = rule.broadcast(tuple(a.shape), tuple(b.shape))
    return Spec(shape, a.dtype.to_complex(), rule.device_of((a, b)), a.dtype)


def _joined(np, re, im):
    """re + i im, put together without arithmetic (infinities stay where they are)."""
    out = np.empty(np.broadcast_shapes(re.shape, im.shape),
                   np.complex64 if re.dtype == np.float32 else np.complex128)
    out.real, out.imag = re, im
    return out


def _parts_samples(s):
    yield s(s.f(3, 4), s.f(3, 4))
    yield s(s.f(3, 4), s.f(4))
    yield s.raises(RuntimeError, s.f(3), s.i(3), match="expected both")


@op("complex(real: Tensor, imag: Tensor) -> Tensor")
class complex:
    """real + i imag."""

    kind, where, host, dtypes = POINTWISE, "function", True, "float"
    samples = _parts_samples

    def rule(re, im):
        return _pair(re, im, "complex")

    def eager(np, re, im):
        return _joined(np, re, im)

    def vjp(F, g, out, re, im):
        return lambda: F.real(g), lambda: F.imag(g)


@op("polar(abs: Tensor, angle: Tensor) -> Tensor")
class polar:
    """abs * exp(i angle)."""

    kind, where, host, dtypes = POINTWISE, "function", True, "float"

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4))._replace(derive=False)
        yield s(s.f(3, 4), s.f(4))._replace(derive=False)

    def rule(length, angle):
        return _pair(length, angle, "polar")

    def eager(np, length, angle):
        return _joined(np, length * np.cos(angle), length * np.sin(angle))

    def vjp(F, g, out, length, angle):
        unit = F.polar(F.ones_like(length), angle)
        return (lambda: F.real(F.mul(g, F.conj(unit))),
                lambda: F.real(F.mul(g, F.conj(F.mul(out, 1j)))))


def _part(x) -> Spec:
    return Spec(tuple(x.shape), x.dtype.to_real(), x.device)


def _complex_only(name):
    def typed(x) -> Spec:
        if not x.dtype.is_complex:
            raise RuntimeError(f"{name} is not implemented for tensors with non-complex dtypes.")
        return _part(x)
    return typed


def _doubled(x, first):
    """(shape, strides, offset) of every second real number in a complex tensor's memory."""
    return tuple(x.shape), tuple(2 * st for st in x.strides), 2 * x.offset + first


@op("real(input: Tensor) -> Tensor")
class real:
    """The real part, sharing memory; a real tensor's is the tensor itself."""

    kind, rule, where, host, exact = VIEW, _part, "function property", True, True
    dtypes = "float"

    def layout(x):
        return (_doubled(x, 0) if x.dtype.is_complex
                else (tuple(x.shape), tuple(x.strides), x.offset))

    def eager(np, x):
        return np.real(x)

    def inverse(F, base, value):
        return F.complex(value, F.imag(base)) if base.dtype.is_complex else value

    def vjp(F, g, out, x):
        return g

    def samples(s):
        yield s(_complex(s, 3, 4))
        yield s(s.f(3))


@op("imag(input: Tensor) -> Tensor")
class imag:
    """The imaginary part, sharing memory."""

    kind, rule, where, host, exact = VIEW, _complex_only("imag"), "function property", True, True
    dtypes = "float"

    def layout(x):
        _complex_only("imag")(x)
        return _doubled(x, 1)

    def eager(np, x):
        return np.imag(x)

    def inverse(F, base, value):
        return F.complex(F.real(base), value)

    def vjp(F, g, out, x):
        return F.mul(g, 1j)

    def samples(s):
        yield s(_complex(s, 3, 4))
        yield s.raises(RuntimeError, s.f(3), match="non-complex")


@op("conj(input: Tensor) -> Tensor")
class conj:
    """The complex conjugate; a real tensor's own values."""

    kind, rule, where, host, exact = POINTWISE, rule.unary, METHOD, True, True
    aliases, dtypes = ("conj_physical",), "float"

    def eager(np, x):
        return np.conj(x)

    def vjp(F, g, out, x):
        return F.conj(g)

    def samples(s):
        yield s(_complex(s, 3, 4))
        yield s(s.f(3))


@op("resolve_conj(input: Tensor) -> Tensor")
class resolve_conj:
    """The input: conjugation is never deferred here."""

    rule, where, samples = rule.unary, METHOD, sample.unary()

    def decomp(F, x):
        return F.alias(x)


@op("resolve_neg(input: Tensor) -> Tensor")
class resolve_neg:
    """The input: negation is never deferred here."""

    rule, where, samples = rule.unary, METHOD, sample.unary()

    def decomp(F, x):
        return F.alias(x)


@op("angle(input: Tensor) -> Tensor")
class angle:
    """The argument of a complex number; pi for negative real numbers, 0 for others, NaN for NaN."""

    kind, where, host, dtypes = POINTWISE, METHOD, True, "float int bool"

    def rule(x):
        made = x.dtype.to_real() if x.dtype.is_complex else rule.as_float(x.dtype)
        return Spec(tuple(x.shape), made, x.device)

    def layout(spec, x):
        return contiguous(spec.shape) if x.dtype.is_complex else formatted(x, None)

    def eager(np, x):
        if x.dtype.kind == "c":
            return np.angle(x)
        return np.where(np.isnan(x), np.nan, np.where(np.less(x, 0), np.pi, 0.0))

    def vjp(F, g, out, x):
        if not x.dtype.is_complex:
            return F.zeros_like(g)
        re, im = F.real(x), F.imag(x)
        square = F.add(F.mul(re, re), F.mul(im, im))
        scale = F.where(F.eq(square, 0), 0, F.div(g, square))
        return F.complex(F.mul(F.neg(im), scale), F.mul(re, scale))

    def samples(s):
        yield s(s.any(3, 4))
        if s.dtype.category == dt.FLOAT:
            yield s(_complex(s, 3, 4))


def _as_real(x) -> Spec:
    if not x.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return Spec((*x.shape, 2), x.dtype.to_real(), x.device)


@op("view_as_real(input: Tensor) -> Tensor")
class view_as_real:
    """The real and imaginary parts as a last dimension of size 2, sharing memory."""

    kind, rule, where, host, exact, dtypes = VIEW, _as_real, "function", True, True, "float"

    def layout(x):
        shape = _as_real(x).shape
        return shape, (*(2 * st for st in x.strides), 1), 2 * x.offset

    def eager(np, x):
        return np.stack([np.real(x), np.imag(x)], -1)

    def inverse(F, base, value):
        return F.view_as_complex(value)

    def vjp(F, g, out, x):
        return F.view_as_complex(F.clone(g, memory_format="contiguous_format"))

    def samples(s):
        yield s(_complex(s, 3, 4))
        yield s(_complex(s))
        yield s.raises(RuntimeError, s.f(3), match="only supported for complex")


def _as_complex(x) -> Spec:
    if x.dtype not in (dt.float32, dt.float64):
        raise RuntimeError("view_as_complex is only supported for floating point tensors, but got "
                           f"a tensor of scalar type: {rule.LABELS[x.dtype.name]}")
    if not x.shape or x.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    return Spec(tuple(x.shape[:-1]), x.dtype.to_complex(), x.device)


@op("view_as_complex(input: Tensor) -> Tensor")
class view_as_complex:
    """A last dimension of size 2 as real and imaginary parts, sharing memory."""

    kind, rule, where, host, exact, dtypes = VIEW, _as_complex, "function", True, True, "float"

    def layout(x):
        shape = _as_complex(x).shape
        *strides, last = x.strides
        if last != 1:
            raise RuntimeError("Tensor must have a last dimension with stride 1")
        if any(st % 2 for n, st in zip(shape, strides, strict=True) if n != 1):
            raise RuntimeError("Tensor must have a stride divisible by 2 for all but last "
                               "dimension")
        if x.offset % 2:
            raise RuntimeError("Tensor must have a storage_offset divisible by 2")
        return shape, tuple(st // 2 for st in strides), x.offset // 2

    def eager(np, x):
        return _joined(np, x[..., 0], x[..., 1])

    def inverse(F, base, value):
        return F.view_as_real(value)

    def vjp(F, g, out, x):
        return F.view_as_real(g)

    def samples(s):
        yield s(s.f(3, 4, 2))._replace(derive=False)
        yield s(s.f(2))._replace(derive=False)
        yield s.raises(RuntimeError, s.f(3), match="last dimension of size 2")
        yield s.raises(RuntimeError, s.i(2), match="floating point")

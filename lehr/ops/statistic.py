"""Variances and norms.

Variances are computed in two passes: the mean, then the squared differences from it.
"""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import rule
from lehr.ops.reduce import METHOD, count, kept
from lehr.ops.registry import REDUCE, op
from lehr.ops.rule import Spec


def _spread_rule(name, pair):
    def typed(x, dim=None, correction=1, keepdim=False):
        if x.dtype.is_integer:
            raise RuntimeError(f"{name} only support floating point and complex dtypes")
        spec = rule.reduce(x, dim, keepdim)
        return (spec, spec) if pair else spec
    return typed


def _freedom(F, x, dim, correction):
    """Elements minus correction, at least 0; no correction given means 1."""
    n = count(F, x.shape, dim)
    less = 1 if correction is None else correction
    if isinstance(n, int) and isinstance(less, (int, float)):
        return n - less if n > less else 0
    return F.clamp_min(F.sub(n, less), 0)


def _variance(F, x, dim, correction, keepdim):
    """(variance, mean), the mean with its dimensions kept."""
    center = F.mean(x, dim, True)
    gap = F.sub(x, center)
    return F.div(F.sum(F.mul(gap, gap), dim, keepdim), _freedom(F, x, dim, correction)), center


def _variance_grad(F, g, x, dim, correction, keepdim):
    gap = F.sub(x, F.mean(x, dim, True))
    scale = F.div(kept(F, g, x.shape, dim, keepdim), _freedom(F, x, dim, correction))
    return F.mul(F.mul(scale, 2), gap)


def _root_grad(F, g, root):
    """The gradient of the variance from that of its root; 0 where the root is 0."""
    return F.where(F.eq(root, 0), 0, F.div(g, F.mul(root, 2)))


def _numpy_variance(np, x, dim, correction, keepdim):
    dims = rule.dims_of(dim, x.ndim)
    n = rule.numel(x.shape[d] for d in dims)
    center = np.add.reduce(x, axis=dims, keepdims=True) / x.dtype.type(n)
    gap = x - center
    total = np.add.reduce(np.multiply(gap, gap), axis=dims, keepdims=keepdim)
    less = 1 if correction is None else correction
    freedom = n - less if n > less else 0
    return total / x.dtype.type(freedom), center.reshape(np.shape(total))


def _variances(s):
    for kwargs in ({}, {"correction": 0}, {"correction": 2, "keepdim": True}):
        for dim in (None, 1, [0, 2]):
            yield s(s.f(2, 3, 4), dim, **kwargs)
    yield s(s.f(3, 1), 1)
    yield s(s.f())
    yield s.raises(RuntimeError, s.i(3), match="only support floating point")


SPREAD = ("dim: int | list[int] | None = None, *, correction: Scalar | None = None,"
          " keepdim: bool = False")


@op(f"var(input: Tensor, {SPREAD}) -> Tensor")
class var:
    """The mean squared difference from the mean, with n - correction as divisor; correction None
    is 1."""

    kind, rule, where = REDUCE, _spread_rule("var", False), METHOD
    dtypes, samples = "float half", _variances

    def eager(np, x, dim, correction, keepdim):
        return _numpy_variance(np, x, dim, correction, keepdim)[0]

    def decomp(F, x, dim, correction, keepdim):
        return _variance(F, x, dim, correction, keepdim)[0]

    def vjp(F, g, out, x, dim, correction, keepdim):
        return _variance_grad(F, g, x, dim, correction, keepdim)


@op(f"std(input: Tensor, {SPREAD}) -> Tensor")
class std:
    """The square root of `var`."""

    kind, rule, where = REDUCE, _spread_rule("std", False), METHOD
    dtypes, samples = "float half", _variances

    def eager(np, x, dim, correction, keepdim):
        return np.sqrt(_numpy_variance(np, x, dim, correction, keepdim)[0])

    def decomp(F, x, dim, correction, keepdim):
        return F.sqrt(_variance(F, x, dim, correction, keepdim)[0])

    def vjp(F, g, out, x, dim, correction, keepdim):
        return _variance_grad(F, _root_grad(F, g, out), x, dim, correction, keepdim)


def _with_mean(F, g, made, x, dim, correction, keepdim):
    """The gradient of a (spread, mean) pair; `made` that of the variance."""
    parts = []
    if made is not None:
        parts.append(_variance_grad(F, made, x, dim, correction, keepdim))
    if g[1] is not None:
        share = F.div(kept(F, g[1], x.shape, dim, keepdim), count(F, x.shape, dim))
        parts.append(F.expand(share, x.shape))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else F.add(*parts)


@op(f"var_mean(input: Tensor, {SPREAD}) -> tuple[Tensor, Tensor]")
class var_mean:
    """`var` and `mean`."""

    kind, rule, where = REDUCE, _spread_rule("var_mean", True), "function"
    dtypes, samples = "float half", _variances

    def eager(np, x, dim, correction, keepdim):
        return _numpy_variance(np, x, dim, correction, keepdim)

    def decomp(F, x, dim, correction, keepdim):
        return (_variance(F, x, dim, correction, keepdim)[0], F.mean(x, dim, keepdim))

    def vjp(F, g, out, x, dim, correction, keepdim):
        return _with_mean(F, g, g[0], x, dim, correction, keepdim)


@op(f"std_mean(input: Tensor, {SPREAD}) -> tuple[Tensor, Tensor]")
class std_mean:
    """`std` and `mean`."""

    kind, rule, where = REDUCE, _spread_rule("std_mean", True), "function"
    dtypes, samples = "float half", _variances

    def eager(np, x, dim, correction, keepdim):
        made, center = _numpy_variance(np, x, dim, correction, keepdim)
        return np.sqrt(made), center

    def decomp(F, x, dim, correction, keepdim):
        return (F.sqrt(_variance(F, x, dim, correction, keepdim)[0]), F.mean(x, dim, keepdim))

    def vjp(F, g, out, x, dim, correction, keepdim):
        made = None if g[0] is None else _root_grad(F, g[0], out[0])
        return _with_mean(F, g, made, x, dim, correction, keepdim)


def _unbiased(name, places, pair):
    """The older overloads of op `name`, with a bool `unbiased` in the place of `correction`."""
    results = "tuple[Tensor, Tensor]" if pair else "Tensor"
    typed = _spread_rule(name, pair)

    @op(f"{name}_unbiased_dim(input: Tensor, dim: int | list[int] | None, unbiased: bool = True,"
        f" keepdim: bool = False) -> {results}")
    class along:
        __doc__ = f"`{name}` with correction 1 or 0."
        kind, api, where, dtypes = REDUCE, name, places, "float half"

        def rule(x, dim, unbiased=True, keepdim=False):
            return typed(x, dim, None, keepdim)

        def decomp(F, x, dim, unbiased, keepdim):
            return getattr(F, name)(x, dim, correction=int(unbiased), keepdim=keepdim)

        def samples(s):
            yield s(s.f(2, 3, 4), 1, False)
            yield s(s.f(2, 3, 4), [0, 2], True, True)

    @op(f"{name}_unbiased(input: Tensor, unbiased: bool = True) -> {results}")
    class whole:
        __doc__ = f"`{name}` of all elements with correction 1 or 0."
        kind, api, where, dtypes = REDUCE, name, places, "float half"

        def rule(x, unbiased=True):
            return typed(x)

        def decomp(F, x, unbiased):
            return getattr(F, name)(x, None, correction=int(unbiased))

        def samples(s):
            yield s(s.f(2, 3), False)
            yield s(s.f(2, 3), unbiased=True)


for _name, _places, _pair in (("var", METHOD, False), ("std", METHOD, False),
                              ("var_mean", "function", True), ("std_mean", "function", True)):
    _unbiased(_name, _places, _pair)


def _norm_rule(x, ord=2, dim=None, keepdim=False, dtype=None) -> Spec:
    made = dtype or x.dtype
    if made.is_integer:
        raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as "
                           "input. "
                           f"Got {rule.LABELS[made.name]}")
    spec = rule.reduce(x, dim, keepdim, made)
    empty = rule.numel(x.shape[d] for d in rule.dims_of(dim, len(x.shape)))
    if isinstance(empty, int) and empty == 0 and ord in (math.inf, -math.inf):
        raise RuntimeError(f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor "
                           "because the operation does not have an identity")
    return spec._replace(dtype=made.to_real())


# Powers whose norm has a shorter way.
NORMS = {
    0: lambda F, x, dim, keepdim: F.to_dtype(F.sum(F.ne(x, 0), dim, keepdim), x.dtype),
    1: lambda F, x, dim, keepdim: F.sum(F.abs(x), dim, keepdim),
    2: lambda F, x, dim, keepdim: F.sqrt(F.sum(F.mul(x, x), dim, keepdim)),
    math.inf: lambda F, x, dim, keepdim: F.amax(F.abs(x), () if dim is None else dim, keepdim),
    -math.inf: lambda F, x, dim, keepdim: F.amin(F.abs(x), () if dim is None else dim, keepdim),
}


@op("linalg_vector_norm(x: Tensor, ord: Scalar = 2, dim: int | list[int] | None = None,"
    " keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor")
class linalg_vector_norm:
    """(sum of abs(x)**ord) ** (1/ord) over `dim`; 0 counts the nonzeros, inf and -inf are
    extrema."""

    kind, rule, where = REDUCE, _norm_rule, "linalg"
    dtypes = "float half"

    def eager(np, x, ord, dim, keepdim, dtype):
        dims = rule.dims_of(dim, x.ndim)
        if ord == 2 and len(dims) == x.ndim and x.flags.c_contiguous and x.dtype.kind == "f":
            flat = x.reshape(-1)
            return np.sqrt(np.dot(flat, flat)).reshape((1,) * x.ndim if keepdim else ())
        size = np.abs(x)
        if ord in (np.inf, -np.inf):
            return (np.max if ord > 0 else np.min)(size, axis=dims, keepdims=keepdim)
        if ord in (0, 1, 2):
            size = np.not_equal(size, 0) if ord == 0 else size if ord == 1 else size * size
            made = np.sum(size, axis=dims, keepdims=keepdim)
            return np.sqrt(made) if ord == 2 else made
        return np.sum(size ** ord, axis=dims, keepdims=keepdim) ** (1.0 / ord)

    def decomp(F, x, ord, dim, keepdim, dtype):
        if ord in NORMS:
            return NORMS[ord](F, x, dim, keepdim)
        return F.pow(F.sum(F.pow(F.abs(x), ord), dim, keepdim), 1.0 / ord)

    def vjp(F, g, out, x, ord, dim, keepdim, dtype):
        g, norm = kept(F, g, x.shape, dim, keepdim), kept(F, out, x.shape, dim, keepdim)
        return _norm_grad(F, g, norm, x, ord, dim)

    def samples(s):
        for ord in (2, 1, 0, 3, 0.5, 1.5, math.inf, -math.inf):
            yield s(s.f(3, 4), ord, 1)
            yield s(s.f(2, 3, 4), ord, [0, 2], True)
        yield s(s.f(2, 3))
        yield s(s.f())
        yield s(s.f(3, 0), 2, 1)
        yield s.raises(RuntimeError, s.f(0), math.inf, match="empty")


def _norm_grad(F, g, norm, x, ord, dim):
    """Zero wherever the norm or the element is 0 and the slope would be undefined."""
    if ord == 0:
        return F.zeros_like(x)
    if ord == 1:
        return F.mul(g, F.sgn(x))
    if ord == 2:
        return F.mul(x, F.where(F.eq(norm, 0), 0, F.div(g, norm)))
    if ord in (math.inf, -math.inf):
        mask = F.eq(F.abs(x), norm)
        return F.mul(F.sgn(x), F.where(mask, F.div(g, F.sum(mask, dim, True)), 0))
    flat = F.bitwise_or(F.eq(x, 0), F.eq(norm, 0))
    ratio = F.pow(F.where(flat, 1, F.div(F.abs(x), norm)), ord - 1)
    return F.where(flat, 0, F.mul(F.mul(F.sgn(x), ratio), g))


def _any_norm_rule(x, p="fro", dim=None, keepdim=False, dtype=None) -> Spec:
    if p == "nuc":
        made = dtype or x.dtype
        dims = rule.dims_of(dim, len(x.shape))
        if len(dims) != 2:
            raise RuntimeError("norm of order 'nuc' is that of matrices: dim has to name two "
                               f"dimensions, got {dim} of {len(x.shape)}")
        return Spec(rule.reduced_shape(tuple(x.shape), dims, keepdim), made.to_real(), x.device,
                    made)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm of order {p!r} is a matrix norm; call linalg.matrix_norm")
    return _norm_rule(x, 2 if p is None or p == "fro" else p, dim, keepdim, dtype)


@op("norm(input: Tensor, p: Scalar | str | None = 'fro', dim: int | list[int] | None = None,"
    " keepdim: bool = False, dtype: dtype | None = None) -> Tensor")
class norm:
    """The vector norm of order p over `dim`; "fro" is order 2."""

    kind, rule, where = REDUCE, _any_norm_rule, METHOD
    dtypes = "float half"

    def decomp(F, x, p, dim, keepdim, dtype):
        if p == "nuc":
            dims = rule.dims_of(dim, x.ndim) if dim is None else dim
            return F.linalg_matrix_norm(x, p, dims, keepdim)
        return F.linalg_vector_norm(x, 2 if p is None or p == "fro" else p, dim, keepdim)

    def samples(s):
        if s.floating in (dt.float32, dt.float64):
            yield s(s.f(2, 3), "nuc")
            yield s(s.f(2, 3, 2), "nuc", (0, 2), True)
        yield s(s.f(2, 3))
        yield s(s.f(2, 3), 1)
        yield s(s.f(2, 3, 4), 2, 1)
        yield s(s.f(2, 3, 4), 3, [0, 2], True)
        yield s(s.f(2, 3), "fro", (0, 1))
        yield s(s.f(2, 3), p=math.inf, dim=1)
        yield s.raises(RuntimeError, s.f(2, 2), "nuclear", match="matrix", parity=False)


@op("dist(input: Tensor, other: Tensor, p: Scalar = 2) -> Tensor")
class dist:
    """The p-norm of input - other."""

    kind, where, dtypes = REDUCE, METHOD, "float half"

    def rule(x, y, p=2):
        spec = rule.float_binary(x, y)
        return spec._replace(shape=())

    def decomp(F, x, y, p):
        return F.linalg_vector_norm(F.sub(x, y), p)

    def samples(s):
        yield s(s.f(3, 4), s.f(4))
        yield s(s.f(3), s.f(3), 3)


@op("renorm(input: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor")
class renorm:
    """The slices along `dim`, scaled down where their p-norm exceeds maxnorm."""

    kind, where, dtypes = REDUCE, "function method inplace", "float half"

    def rule(x, p, dim, maxnorm):
        if len(x.shape) < 2:
            raise RuntimeError("renorm: input needs at least 2 dimensions, got "
                               f"{len(x.shape)} dimensions")
        rule.dim_of(dim, len(x.shape))
        return rule.unary(x)

    def decomp(F, x, p, dim, maxnorm):
        d = rule.dim_of(dim, x.ndim)
        size = F.linalg_vector_norm(x, p, [i for i in range(x.ndim) if i != d], True)
        # The small term is PyTorch's guard against division by zero.
        scale = F.where(F.gt(size, maxnorm), F.div(maxnorm, F.add(size, 1e-7)), 1.0)
        return F.mul(x, scale)

    def samples(s):
        yield s(s.f(3, 4), 2, 0, 1.0)
        yield s(s.f(2, 3, 4), 1, -1, 5)
        yield s.raises(RuntimeError, s.f(3), 2, 0, 1.0, match="at least 2 dimensions")


def _square(x, *rest) -> Spec:
    if len(x.shape) > 2:
        raise RuntimeError("cov(): expected input to have two or fewer dimensions but got an input "
                           f"with {len(x.shape)} dimensions")
    made = rule.as_float(x.dtype)
    names = ("correction", "fweights", "aweights")
    for name, weight in zip(names, rest, strict=False):
        if not rule.is_tensor(weight):
            continue
        real = name == "aweights"
        if weight.dtype.category != (dt.FLOAT if real else dt.INT):
            kind = "floating point" if real else "integral"
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with "
                               f"{weight.dtype} dtype")
        if len(weight.shape) > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got "
                               f"{name} with {len(weight.shape)} dimensions")
        n, many = x.shape[-1] if x.shape else 1, rule.numel(weight.shape)
        if not rule.same(n, many):
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are "
                               f"observations in the input but got {many} != {n}")
        made = dt.result_type([made, weight.dtype], [], []) if real else made
    shape = (x.shape[0],) * 2 if len(x.shape) == 2 and x.shape[0] != 1 else ()
    return Spec(shape, made, x.device, made)


@op("cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,"
    " aweights: Tensor | None = None) -> Tensor")
class cov:
    """The covariance matrix of the rows, over observations in columns with frequencies `fweights`
    and weights `aweights`."""

    where, rule, dtypes = METHOD, _square, "float int half"

    def decomp(F, x, correction, fweights, aweights):
        rows = x if x.ndim == 2 else F.view(x, (1, -1))
        n = rows.shape[1]
        if fweights is None and aweights is None:
            center = F.mean(rows, 1, True)
            weighted = gap = F.sub(rows, center)
            left = n - correction
            freedom = (max(left, 0) if isinstance(left, int)
                       else F.clamp_min(F.size_value(left), 0))
        else:
            given = [w for w in (fweights, aweights) if w is not None]
            weight = given[0] if len(given) == 1 else F.mul(*given)
            total = F.sum(weight)
            gap = F.sub(rows, F.div(F.sum(F.mul(rows, weight), 1, True), total))
            weighted = F.mul(gap, weight)
            less = correction if aweights is None else F.div(
                F.mul(F.sum(F.mul(weight, aweights)), correction), total)
            freedom = F.clamp_min(F.sub(total, less), 0)
        made = F.div(F.matmul(weighted, F.transpose(gap, 0, 1)), freedom)
        return F.view(made, ()) if rows.shape[0] == 1 else made

    def samples(s):
        yield s(s.any(3, 5))
        yield s(s.f(6))
        yield s(s.f(3, 5), correction=0)
        yield s(s.f(3, 5), fweights=s.i(5, low=1, high=4), aweights=s.f(5, pos=True))
        yield s(s.f(3, 5), aweights=s.f(5, pos=True))
        yield s.raises(RuntimeError, s.f(2, 2, 2), match="two or fewer dimensions")


@op("corrcoef(input: Tensor) -> Tensor")
class corrcoef:
    """The correlation coefficients of the rows, in [-1, 1]."""

    where, rule, dtypes = METHOD, _square, "float half"

    def decomp(F, x):
        made = F.cov(x)
        if made.ndim == 0:
            return F.div(made, made)
        spread = F.sqrt(F.diagonal(made))
        ratio = F.div(F.div(made, F.unsqueeze(spread, 1)), F.unsqueeze(spread, 0))
        return F.clamp(ratio, -1, 1)

    def samples(s):
        yield s(s.f(3, 5))
        yield s(s.f(6))

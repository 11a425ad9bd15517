"""Reductions over dimensions: sums, products, extrema, truth, and what is made of them.

The primitives take `(input, dim, keepdim, ...)`: `dim` None or empty means all dimensions. Half
precision accumulates in float32 and is rounded once.
"""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.ops import rule
from lehr.ops.registry import REDUCE, op
from lehr.ops.rule import Shape, Spec

METHOD = "function method"


def dims_at(x, dim) -> tuple[int, ...]:
    return rule.dims_of(dim, len(x.shape))


def spread(F, g, shape: Shape, dim, keepdim: bool):
    """A reduced value at every element that went into it: `g` expanded to `shape`."""
    if not keepdim:
        for d in rule.dims_of(dim, len(shape)):
            g = F.unsqueeze(g, d)
    return F.expand(g, shape)


def kept(F, g, shape: Shape, dim, keepdim: bool):
    """A reduced value with the reduced dimensions put back as size 1."""
    if not keepdim:
        for d in rule.dims_of(dim, len(shape)):
            g = F.unsqueeze(g, d)
    return g


def count(F, shape: Shape, dim):
    """How many elements are reduced: an int, or a 0-d int64 tensor of a symbolic size."""
    n = rule.numel(shape[d] for d in rule.dims_of(dim, len(shape)))
    return n if isinstance(n, int) else F.size_value(n)


def reductions(*calls, dims=(None, 0, -1, [0, 2]), **options):
    """`samples` of a reduction: each of `dims` and both of `keepdim`, empty and 0-d tensors."""
    def samples(s):
        yield s(s.any(2, 3, 4, **options))
        for dim in dims[1:]:
            yield s(s.any(2, 3, 4, **options), dim)
            yield s(s.any(2, 3, 4, **options), dim, True)
        yield s(s.any(**options), 0)
        yield s(s.any(3, 0, 2), 0)
        yield s.raises(IndexError, s.any(2, 3), 2, match="out of range")
        for kwargs in calls:
            yield s(s.any(2, 3, 4, **options), 1, **kwargs)
    return samples


@op("sum(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, *,"
    " dtype: dtype | None = None) -> Tensor")
class sum:
    """The sum over `dim`, 0 of nothing. Integers and bool add up in int64."""

    kind, rule, where, monoid, exact = REDUCE, rule.sum_like, METHOD, "sum", True
    samples = reductions({"dtype": dt.float64})

    def eager(np, x, dim, keepdim, dtype):
        return np.add.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)

    def vjp(F, g, out, x, dim, keepdim, dtype):
        return spread(F, g, x.shape, dim, keepdim)


def _mean_rule(x, dim=None, keepdim=False, dtype=None) -> Spec:
    made = dtype or x.dtype
    if made.is_integer:
        raise RuntimeError("mean(): could not infer output dtype. Input dtype must be either a "
                           "floating "
                           f"point or complex dtype. Got: {rule.LABELS[made.name]}")
    return rule.reduce(x, dim, keepdim, dtype)


@op("mean(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, *,"
    " dtype: dtype | None = None) -> Tensor")
class mean:
    """The sum over `dim` by the number of elements; NaN of nothing."""

    kind, rule, where = REDUCE, _mean_rule, METHOD
    dtypes = "float half"

    def eager(np, x, dim, keepdim, dtype):
        dims = rule.dims_of(dim, x.ndim)
        n = rule.numel(x.shape[d] for d in dims)
        return np.true_divide(np.add.reduce(x, axis=dims, keepdims=keepdim), x.dtype.type(n))

    def decomp(F, x, dim, keepdim, dtype):
        return F.div(F.sum(x, dim, keepdim), count(F, x.shape, dim))

    def vjp(F, g, out, x, dim, keepdim, dtype):
        return spread(F, F.div(g, count(F, x.shape, dim)), x.shape, dim, keepdim)

    def samples(s):
        yield from reductions({"dtype": dt.float64})(s)
        yield s.raises(RuntimeError, s.i(3), match="could not infer output dtype")


@op("prod(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, *,"
    " dtype: dtype | None = None) -> Tensor")
class prod:
    """The product over `dim`, 1 of nothing. Integers and bool multiply in int64."""

    kind, rule, where, monoid = REDUCE, rule.sum_like, METHOD, "prod"

    def eager(np, x, dim, keepdim, dtype):
        return np.multiply.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)

    def vjp(F, g, out, x, dim, keepdim, dtype):
        if x.ndim == 0:
            return g
        dims = rule.dims_of(dim, x.ndim)
        rest = _others(F, x, dims)
        return F.mul(spread(F, g, x.shape, dim, keepdim), rest)

    def samples(s):
        yield from reductions({"dtype": dt.float64}, dims=(None, 0, -1))(s)
        if s.dtype.category == dt.FLOAT:
            x = s.f(3, 4)
            x[0, 1] = x[2, 2] = x[2, 3] = 0
            yield s(x, 1)
            yield s(x[:2])


def _others(F, x, dims: tuple[int, ...]):
    """At each element the product of the others along `dims`: what precedes times what follows, so
    that zeros need no division."""
    rest = [d for d in range(x.ndim) if d not in dims]
    order = (*rest, *dims)
    lead = tuple(x.shape[d] for d in rest)
    n = rule.numel(x.shape[d] for d in dims)
    if isinstance(n, int) and n == 0:
        return x
    flat = F.reshape(F.permute(x, order), (*lead, n))
    one = F.full((*lead, 1), 1, dtype=x.dtype, device=x.device)
    last = len(lead)
    before = F.cumprod(F.cat([one, F.narrow(flat, last, 0, n - 1)], last), last)
    back = F.flip(F.cat([F.narrow(flat, last, 1, n - 1), one], last), [last])
    after = F.flip(F.cumprod(back, last), [last])
    made = F.reshape(F.mul(before, after), tuple(x.shape[d] for d in order))
    return F.permute(made, tuple(order.index(d) for d in range(x.ndim)))


def _nonempty(name, x, dim, error=IndexError):
    """An error where an extremum of nothing is asked for; `error`: its type if over all
    dimensions."""
    for d in dims_at(x, dim):
        if isinstance(x.shape[d], int) and x.shape[d] == 0:
            if dim is None or dim == ():
                raise error(f"{name}(): Expected reduction dim to be specified for input.numel() "
                            "== 0. "
                            "Specify the reduction dim with the 'dim' argument.")
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _extremum(name):
    def typed(x, dim=(), keepdim=False) -> Spec:
        _nonempty(name, x, dim, RuntimeError)
        return rule.reduce(x, dim, keepdim)
    return typed


def _shared_by_ties(F, g, out, x, dim, keepdim):
    """The gradient of an extremum, split evenly between the elements that attain it."""
    mask = F.eq(x, kept(F, out, x.shape, dim, keepdim))
    ties = F.sum(mask, dim, True)
    return F.where(mask, F.div(kept(F, g, x.shape, dim, keepdim), ties), 0)


def _ties(s):
    yield from reductions(dims=((), 0, -1, [0, 2]))(s)
    yield s(s.i(4, 5, low=0, high=2, dtype=s.dtype) if s.dtype.category else s.b(4, 5), 1)
    yield s.raises(RuntimeError, s.any(2, 0), match="numel() == 0")
    yield s.raises(IndexError, s.any(2, 0), 1, match="non-zero size")


@op("amax(input: Tensor, dim: int | list[int] = (), keepdim: bool = False) -> Tensor")
class amax:
    """The largest element over `dim`; NaN wins. Ties share the gradient evenly."""

    kind, rule, where, monoid, vjp = REDUCE, _extremum("amax"), METHOD, "max", _shared_by_ties
    samples = _ties

    def eager(np, x, dim, keepdim):
        return np.maximum.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)


@op("amin(input: Tensor, dim: int | list[int] = (), keepdim: bool = False) -> Tensor")
class amin:
    """The smallest element over `dim`; NaN wins. Ties share the gradient evenly."""

    kind, rule, where, monoid, vjp = REDUCE, _extremum("amin"), METHOD, "min", _shared_by_ties
    samples = _ties

    def eager(np, x, dim, keepdim):
        return np.minimum.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)


def _whole(name):
    def typed(x) -> Spec:
        if rule.numel(x.shape) == 0:
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for "
                               "input.numel() == 0. "
                               "Specify the reduction dim with the 'dim' argument.")
        return Spec((), x.dtype, x.device, x.dtype)
    return typed


def _whole_samples(s):
    yield s(s.any(2, 3))
    yield s(s.any())
    yield s(s.any(6, low=0, high=2))
    yield s.raises(RuntimeError, s.any(2, 0), match="numel() == 0")


@op("max(input: Tensor) -> Tensor")
class max:
    """The largest element."""

    kind, rule, where, samples = REDUCE, _whole("max"), METHOD, _whole_samples

    def decomp(F, x):
        return F.amax(x)


@op("min(input: Tensor) -> Tensor")
class min:
    """The smallest element."""

    kind, rule, where, samples = REDUCE, _whole("min"), METHOD, _whole_samples

    def decomp(F, x):
        return F.amin(x)


def _indexed(name):
    def typed(x, dim, keepdim=False) -> tuple[Spec, Spec]:
        d = rule.dim_of(dim, len(x.shape))
        if x.shape:
            _nonempty(name, x, d)
        shape = rule.reduced_shape(tuple(x.shape), dims_at(x, d), keepdim)
        return Spec(shape, x.dtype, x.device, x.dtype), Spec(shape, dt.int64, x.device)
    return typed


def _at_index(F, g, out, x, dim, keepdim):
    """The gradient at the element whose index was reported."""
    if g[0] is None:
        return None
    if x.ndim == 0:
        return g[0]
    d = rule.dim_of(dim, x.ndim)
    places = F.arange(x.shape[d], device=x.device)
    places = F.view(places, tuple(x.shape[d] if i == d else 1 for i in range(x.ndim)))
    hit = F.eq(places, kept(F, out[1], x.shape, d, keepdim))
    return F.where(hit, kept(F, g[0], x.shape, d, keepdim), 0)


def _indexed_samples(s):
    yield s(s.any(2, 3, 4), 1)
    yield s(s.any(2, 3, 4), -1, True)
    yield s(s.any(4, 6, low=0, high=2), 1)
    yield s(s.any(), 0)
    yield s(s.any(0, 3), 1)
    if s.dtype.category == dt.FLOAT:
        yield s(s.f(4, 9, nonfinite=True), dim=0)
    yield s.raises(IndexError, s.any(2, 3), 2, match="out of range")
    yield s.raises(IndexError, s.any(2, 0), 1, match="non-zero size")


def _pick(np, x, dim, keepdim, find):
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    at = np.expand_dims(find(x, axis=dim), dim)
    values = np.take_along_axis(x, at, dim)
    return (values, at) if keepdim else (np.squeeze(values, dim), np.squeeze(at, dim))


@op("max_dim(input: Tensor, dim: int, keepdim: bool = False) -> named(values=Tensor,"
    " indices=Tensor)")
class max_dim:
    """The largest elements along `dim` and where the first of each lies."""

    kind, api, rule, where, vjp = REDUCE, "max", _indexed("max"), METHOD, _at_index
    nondiff, samples = (1,), _indexed_samples

    def eager(np, x, dim, keepdim):
        return _pick(np, x, dim, keepdim, np.argmax)

    def decomp(F, x, dim, keepdim):
        return F.amax(x, dim, keepdim), F.argmax(_ordered(F, x), dim, keepdim)


@op("min_dim(input: Tensor, dim: int, keepdim: bool = False) -> named(values=Tensor,"
    " indices=Tensor)")
class min_dim:
    """The smallest elements along `dim` and where the first of each lies."""

    kind, api, rule, where, vjp = REDUCE, "min", _indexed("min"), METHOD, _at_index
    nondiff, samples = (1,), _indexed_samples

    def eager(np, x, dim, keepdim):
        return _pick(np, x, dim, keepdim, np.argmin)

    def decomp(F, x, dim, keepdim):
        return F.amin(x, dim, keepdim), F.argmin(_ordered(F, x), dim, keepdim)


@op("aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False)"
    " -> named(min=Tensor, max=Tensor)")
class aminmax:
    """The smallest and the largest element, of all or along `dim`."""

    where = METHOD

    def rule(x, dim=None, keepdim=False):
        if dim is None:
            spec = _whole("aminmax")(x)
            spec = spec._replace(shape=(1,) * len(x.shape) if keepdim else ())
        else:
            spec = _extremum("aminmax")(x, dim, keepdim)
        return spec, spec

    def decomp(F, x, dim, keepdim):
        dims = () if dim is None else dim
        return F.amin(x, dims, keepdim), F.amax(x, dims, keepdim)

    def samples(s):
        yield s(s.any(2, 3))
        yield s(s.any(2, 3), dim=1, keepdim=True)
        yield s(s.any(), dim=0)


def _index_rule(name):
    def typed(x, dim=None, keepdim=False) -> Spec:
        rule.no_bool(f"{name}(): does not support bool input", x)
        if dim is None or x.shape:
            _nonempty(name, x, dim)
        return rule.reduce(x, dim, keepdim)._replace(dtype=dt.int64)
    return typed


def _ordered(F, x):
    """bool as numbers, which `argmax` takes alone."""
    return F.to_dtype(x, dt.uint8) if x.dtype is dt.bool_ else x


def _index_samples(s):
    yield s(s.any(2, 3, 4))
    yield s(s.any(2, 3, 4), 1)
    yield s(s.any(2, 3, 4), -1, True)
    yield s(s.any(2, 3, 4), None, True)
    yield s(s.any(4, 6, low=0, high=2), 1)
    yield s(s.any(), 0)
    yield s(s.any())
    if s.dtype.category == dt.FLOAT:
        yield s(s.f(4, 9, nonfinite=True), dim=0)
    yield s.raises(IndexError, s.any(2, 3), 2, match="out of range")
    yield s.raises(IndexError, s.any(2, 0), match="numel() == 0")


def _first(np, x, dim, keepdim, find):
    if dim is None or x.ndim == 0:
        at = np.asarray(find(x.reshape(-1)))
        return at.reshape((1,) * x.ndim) if keepdim else at
    return find(x, axis=dim, keepdims=keepdim)


@op("argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor")
class argmax:
    """Where the first largest element lies along `dim`, or in the flattened input. NaN is
    largest."""

    kind, rule, where, monoid, nondiff = REDUCE, _index_rule("argmax"), METHOD, "argmax", True
    dtypes, samples = "int float half", _index_samples

    def eager(np, x, dim, keepdim):
        return _first(np, x, dim, keepdim, np.argmax)


@op("argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor")
class argmin:
    """Where the first smallest element lies along `dim`, or in the flattened input. NaN is
    smallest."""

    kind, rule, where, monoid, nondiff = REDUCE, _index_rule("argmin"), METHOD, "argmin", True
    dtypes, samples = "int float half", _index_samples

    def eager(np, x, dim, keepdim):
        return _first(np, x, dim, keepdim, np.argmin)


def _truth(x, dim=None, keepdim=False) -> Spec:
    made = dt.uint8 if x.dtype is dt.uint8 else dt.bool_
    return rule.reduce(x, dim, keepdim)._replace(dtype=made, compute=dt.bool_)


@op("any(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False) -> Tensor")
class any:
    """Whether some element over `dim` is nonzero (NaN is). The result is bool, of uint8 uint8."""

    kind, rule, where, monoid, nondiff = REDUCE, _truth, METHOD, "any", True
    samples = reductions(low=0, high=2)

    def eager(np, x, dim, keepdim):
        return np.logical_or.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)


@op("all(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False) -> Tensor")
class all:
    """Whether every element over `dim` is nonzero (NaN is). The result is bool, of uint8 uint8."""

    kind, rule, where, monoid, nondiff = REDUCE, _truth, METHOD, "all", True
    samples = reductions(low=0, high=2)

    def eager(np, x, dim, keepdim):
        return np.logical_and.reduce(x, axis=rule.dims_of(dim, x.ndim), keepdims=keepdim)


@op("count_nonzero(input: Tensor, dim: int | list[int] | None = None) -> Tensor")
class count_nonzero:
    """How many elements over `dim` are nonzero, int64."""

    kind, where, nondiff = REDUCE, METHOD, True

    def rule(x, dim=None):
        return rule.reduce(x, dim)._replace(dtype=dt.int64)

    def decomp(F, x, dim):
        return F.sum(F.ne(x, 0), dim)

    def samples(s):
        for dim in (None, 0, -1, [0, 2]):
            yield s(s.any(2, 3, 4, low=0, high=2), dim)


@op("nansum(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, *,"
    " dtype: dtype | None = None) -> Tensor")
class nansum:
    """`sum` with NaN counted as 0."""

    kind, rule, where = REDUCE, rule.sum_like, METHOD
    samples = reductions(nonfinite=True)

    def decomp(F, x, dim, keepdim, dtype):
        return F.sum(F.where(F.ne(x, x), 0, x), dim, keepdim)

    def vjp(F, g, out, x, dim, keepdim, dtype):
        return F.where(F.ne(x, x), 0, kept(F, g, x.shape, dim, keepdim))


@op("nanmean(input: Tensor, dim: int | list[int] | None = None, keepdim: bool = False, *,"
    " dtype: dtype | None = None) -> Tensor")
class nanmean:
    """The mean of the elements that are not NaN."""

    kind, rule, where = REDUCE, _mean_rule, METHOD
    dtypes, samples = "float half", reductions(nonfinite=True)

    def decomp(F, x, dim, keepdim, dtype):
        present = F.sum(F.eq(x, x), dim, keepdim)
        return F.div(F.nansum(x, dim, keepdim), present)

    def vjp(F, g, out, x, dim, keepdim, dtype):
        present = F.eq(x, x)
        share = F.div(kept(F, g, x.shape, dim, keepdim), F.sum(present, dim, True))
        return F.where(present, share, 0)


def _logsumexp_rule(x, dim, keepdim=False) -> Spec:
    made = rule.as_float(x.dtype)
    return rule.reduce(x, dim, keepdim)._replace(dtype=made, compute=made)


@op("logsumexp(input: Tensor, dim: int | list[int], keepdim: bool = False) -> Tensor")
class logsumexp:
    """log(sum(exp(input))) over `dim`, without overflow; -inf of nothing."""

    kind, rule, where = REDUCE, _logsumexp_rule, METHOD
    aliases = ("special.logsumexp",)

    def decomp(F, x, dim, keepdim):
        if rule.numel(x.shape) == 0:
            return F.log(F.sum(F.exp(x), dim, keepdim))
        top = F.amax(x, dim, True)
        top = F.where(F.isinf(top), 0, top)
        total = F.log(F.sum(F.exp(F.sub(x, top)), dim, True))
        made = F.add(total, top)
        return made if keepdim else F.sum(made, dim)

    def vjp(F, g, out, x, dim, keepdim):
        weight = F.exp(F.sub(x, kept(F, out, x.shape, dim, keepdim)))
        return F.mul(kept(F, g, x.shape, dim, keepdim), weight)

    def samples(s):
        yield s(s.any(2, 3), 0)
        yield s(s.any(2, 3), [0, 1], True)
        yield s(s.any(), 0)
        yield s(s.any(3, 0), 1)
        if s.dtype.category == dt.FLOAT:
            yield s(s.f(3, 9, nonfinite=True), 0)
            yield s(s.f(3, 4, domain=(80.0, 90.0)), -1)


@op("trace(input: Tensor) -> Tensor")
class trace:
    """The sum of the diagonal of a matrix."""

    kind, where = REDUCE, METHOD

    def rule(x):
        if len(x.shape) != 2:
            raise RuntimeError("trace: expected a matrix, but got tensor with dim "
                               f"{len(x.shape)}")
        made = dt.int64 if x.dtype.is_integer else x.dtype
        return Spec((), made, x.device, made)

    def decomp(F, x):
        return F.sum(F.diagonal(x))

    def samples(s):
        yield s(s.any(3, 3))
        yield s(s.any(2, 4))
        yield s.raises(RuntimeError, s.any(3), match="expected a matrix")

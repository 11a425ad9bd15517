"""Distances and similarities of rows of numbers."""

from __future__ import annotations

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import rule
from lehr.ops.registry import op
from lehr.ops.rule import Spec, device_of, dim_of, reduced_shape, same

TOLERANCE = {"float32": (1e-5, 1e-5), "float64": (1e-11, 1e-11), "float16": (5e-3, 5e-3),
             "bfloat16": (4e-2, 4e-2)}  # order of summation


@op("cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor")
class cosine_similarity:
    """Sum over dim of x1 / max(|x1|, eps) * x2 / max(|x2|, eps)."""

    where, tolerance, dtypes = "nn function", TOLERANCE, "float half"

    def rule(x, y, dim=1, eps=1e-8):
        shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
        made = rule.operands_type((x, y))
        if made.category != dt.FLOAT:
            raise RuntimeError("expected common dtype to be floating point, yet common dtype is "
                               f"{made}")
        return Spec(reduced_shape(shape, (dim_of(dim, len(shape)),), False), made,
                    device_of((x, y)), made)

    def decomp(F, x, y, dim, eps):
        if not x.ndim and not y.ndim:
            x, y = F.unsqueeze(x, 0), F.unsqueeze(y, 0)
        at = dim_of(dim, max(x.ndim, y.ndim)) - max(x.ndim, y.ndim)
        size = rule.broadcast(tuple(x.shape), tuple(y.shape))[at]

        def unit(t):
            shape = (1,) * (-at - t.ndim) + tuple(t.shape)  # the norm is that of the broadcast
            whole = (*shape[:at], size, *shape[len(shape) + at + 1:])
            t = F.expand(t, whole)
            return t / F.clamp_min(F.linalg_vector_norm(t, 2, at, True), eps)
        return F.sum(unit(x) * unit(y), at)

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4))
        yield s(s.f(3, 4, 2), s.f(1, 4, 2), 2)
        yield s(s.f(3, 4), s.f(3, 4), -2, 0.1)
        yield s(s.f(1, 2, 3), s.f(2, 1, 3), -2)
        yield s(s.f(4), s.f(2, 4), 0)
        yield s(s.f(4), s.f(4), 0)
        yield s.raises(RuntimeError, s.f(3, 4), s.f(3, 5))


@op("pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool "
    "= False) -> Tensor")
class pairwise_distance:
    """The p-norm of x1 - x2 + eps over the last dimension."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, y, p=2.0, eps=1e-6, keepdim=False):
        shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
        made = rule.as_float(rule.operands_type((x, y)))
        return Spec(reduced_shape(shape, (len(shape) - 1,), keepdim), made, device_of((x, y)), made)

    def decomp(F, x, y, p, eps, keepdim):
        return F.linalg_vector_norm(x - y + eps, p, -1, keepdim)

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4))
        yield s(s.f(3, 4), s.f(1, 4), 1.0, keepdim=True)
        yield s(s.f(4), s.f(4), 3.0)


MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
         "donot_use_mm_for_euclid_dist")


@op("cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "
    "'use_mm_for_euclid_dist_if_necessary') -> Tensor")
class cdist:
    """The p-norm distances [.., n, m] of rows [.., n, d] and [.., m, d].

    Euclidean ones of more than 25 rows come from a matrix product, unless `compute_mode` says
    otherwise. """

    where, dtypes = "function", "float"
    # cancellation in the product form
    tolerance = {"float32": (1e-4, 1e-4), "float64": (1e-8, 1e-7)}

    def rule(x, y, p=2.0, compute_mode=MODES[0]):
        if len(x.shape) < 2 or len(y.shape) < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, got: {len(x.shape)}D "
                               f"and {len(y.shape)}D")
        if not same(x.shape[-1], y.shape[-1]):
            raise RuntimeError("X1 and X2 must have the same number of columns. X1: "
                               f"{x.shape[-1]} X2: {y.shape[-1]}")
        if p < 0:
            raise RuntimeError("cdist only supports non-negative p values")
        if compute_mode not in MODES:
            raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
        head = rule.broadcast(tuple(x.shape[:-2]), tuple(y.shape[:-2]))
        made = rule.as_float(rule.operands_type((x, y)))
        return Spec((*head, x.shape[-2], y.shape[-2]), made, device_of((x, y)), made)

    def decomp(F, x, y, p, compute_mode):
        n, m = x.shape[-2], y.shape[-2]
        many = decide(n, ">", 25) or decide(m, ">", 25)
        if p == 2 and (compute_mode == MODES[1] or (compute_mode == MODES[0] and many)):
            square = (F.sum(x * x, -1, True) + F.transpose(F.sum(y * y, -1, True), -2, -1)
                      - F.matmul(x, F.transpose(y, -2, -1)) * 2.0)
            none = square <= 0  # its derivative is 0, not infinite
            return F.where(none, 0.0, F.sqrt(F.where(none, 1.0, square)))
        return F.linalg_vector_norm(F.unsqueeze(x, -2) - F.unsqueeze(y, -3), p, -1)

    def samples(s):
        yield s(s.f(3, 4), s.f(5, 4))
        yield s(s.f(2, 3, 4), s.f(1, 5, 4), 1.0)
        yield s(s.f(30, 4), s.f(27, 4))
        yield s(s.f(3, 4), s.f(5, 4), float("inf"))
        yield s(s.f(3, 4), s.f(5, 4), 2.0, MODES[1])
        yield s.raises(RuntimeError, s.f(3, 4), s.f(5, 3))
        yield s.raises(RuntimeError, s.f(3, 4), s.f(5, 4), -1.0)


@op("pdist(input: Tensor, p: float = 2.0) -> Tensor")
class pdist:
    """The p-norm distances of all pairs of rows i < j of [n, d], row-major: [n (n - 1) / 2]."""

    where, tolerance, dtypes = "nn function", TOLERANCE, "float"

    def rule(x, p=2.0):
        if len(x.shape) != 2:
            raise RuntimeError(f"pdist only supports 2D tensors, got: {len(x.shape)}D")
        if p < 0:
            raise RuntimeError("pdist only supports non-negative p values")
        n = x.shape[0]
        return Spec((n * (n - 1) // 2,), x.dtype, x.device, x.dtype)

    def decomp(F, x, p):
        pairs = F.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
        first = F.index_select(x, 0, F.select(pairs, 0, 0))
        second = F.index_select(x, 0, F.select(pairs, 0, 1))
        return F.linalg_vector_norm(first - second, p, -1)

    def samples(s):
        yield s(s.f(4, 3))
        yield s(s.f(4, 3), 1.0)
        yield s(s.f(1, 3))
        yield s.raises(RuntimeError, s.f(4, 3, 2))


def _cross_rule(x, y, dim=None):
    shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
    if dim is not None:
        at = dim_of(dim, len(shape))
        if len(x.shape) != len(y.shape):
            raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
        if not same(x.shape[at], 3) or not same(y.shape[at], 3):
            raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got "
                               f"{x.shape[at]} and {y.shape[at]}")
    elif not any(isinstance(s, int) and s == 3 for s in shape):
        raise RuntimeError("no dimension of size 3 in input")
    made = rule.operands_type((x, y))
    return Spec(shape, made, device_of((x, y)), made)


def _crossed(F, x, y, at):
    def turned(t, by):
        return F.cat([F.narrow(t, at, by, 3 - by), F.narrow(t, at, 0, by)], at)
    shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
    x, y = F.expand(x, shape), F.expand(y, shape)
    return turned(x, 1) * turned(y, 2) - turned(x, 2) * turned(y, 1)


@op("linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor")
class linalg_cross:
    """The vector product along a dimension of size 3."""

    where, rule, dtypes = "linalg", _cross_rule, "float half int"
    tolerance = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}  # torch rounds the products

    def decomp(F, x, y, dim):
        return _crossed(F, x, y, dim_of(dim, max(x.ndim, y.ndim)))

    def samples(s):
        yield s(s.any(4, 3), s.any(4, 3))
        yield s(s.any(3, 4), s.any(3, 1), dim=0)
        yield s.raises(RuntimeError, s.any(3, 4), s.any(3, 4))


@op("cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor")
class cross:
    """The vector product along `dim`, or along the first dimension of size 3."""

    rule, dtypes, tolerance = _cross_rule, "float half int", linalg_cross.tolerance

    def decomp(F, x, y, dim):
        shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
        at = shape.index(3) if dim is None else dim_of(dim, len(shape))
        return _crossed(F, x, y, at)

    def samples(s):
        yield s(s.any(4, 3), s.any(4, 3))
        yield s(s.any(3, 4, 3), s.any(3, 4, 3))
        yield s(s.any(3, 4, 3), s.any(3, 4, 3), 2)
        yield s.raises(RuntimeError, s.any(2, 4), s.any(2, 4))

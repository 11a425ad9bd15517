"""Losses that compare elements: each is a formula and a reduction ("none", "mean", "sum").

`size_average` and `reduce` are PyTorch's older spelling of `reduction`. Half precision is computed
in float32 and rounded once. Losses over classes are in `classify`.
"""

from __future__ import annotations

import math

from lehr.base import dtype as dt
from lehr.ops import layout as place
from lehr.ops import rule
from lehr.ops.reduce import count
from lehr.ops.registry import op
from lehr.ops.rule import Spec, device_of

# Order of summation; torch rounds half precision before it sums.
TOLERANCE = {"float32": (1e-5, 1e-5), "float64": (1e-11, 1e-11), "float16": (5e-3, 5e-3),
             "bfloat16": (4e-2, 4e-2)}

OLD = "size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean'"


def reduction_of(size_average, reduce, reduction, more=()):
    """The reduction's name from both spellings."""
    if size_average is not None or reduce is not None:
        if reduce is None or reduce:
            return "mean" if size_average is None or size_average else "sum"
        return "none"
    if reduction not in ("none", "mean", "sum", *more):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(F, x, reduction):
    """`x` reduced to a number, or as it is."""
    return {"none": lambda: x, "mean": lambda: F.mean(x), "sum": lambda: F.sum(x)}[reduction]()


def typed(shape, reduction, operands):
    """The type of a loss of elements [*shape]."""
    made = rule.as_float(rule.operands_type(operands))
    return Spec(tuple(shape) if reduction == "none" else (), made, device_of(operands), made)


def elementwise(*operands, reduction):
    operands = [t for t in operands if t is not None]
    return typed(rule.broadcast(*(tuple(t.shape) for t in operands)), reduction, operands)


def _pair(*calls, target=None, **options):
    """`samples`: input and target of one shape, with the reductions and more calls."""
    def samples(s):
        def pair(*shape):
            return s.f(*shape, **options), (target or (lambda s, *n: s.f(*n)))(s, *shape)
        yield s(*pair(3, 4))
        for reduction in ("none", "sum", "mean"):
            yield s(*pair(3, 4), reduction=reduction)
        for kwargs in calls:
            yield s(*pair(2, 5), **kwargs)
        yield s(*pair(3, 4), reduction="other")._replace(error=ValueError)
    return samples


def _weighted(F, loss, weight, reduction):
    """An elementwise loss with weights: the mean is over the weights."""
    if weight is None:
        return reduced(F, loss, reduction)
    loss = loss * weight
    return F.sum(loss) / F.sum(weight) if reduction == "mean" else reduced(F, loss, reduction)


def _same_weight(x, weight):
    if weight is not None and tuple(weight.shape) != tuple(x.shape):
        raise ValueError("Weights and input must have the same size.")


@op(f"mse_loss(input: Tensor, target: Tensor, {OLD}, weight: Tensor | None = None) -> Tensor")
class mse_loss:
    """(input - target) ** 2."""

    where, tolerance = "nn", TOLERANCE
    dtypes, samples = "float half", _pair()

    def rule(x, t, size_average=None, reduce=None, reduction="mean", weight=None):
        _same_weight(x, weight)
        return elementwise(x, t, weight, reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, t, size_average, reduce, reduction, weight):
        d = x - t
        return _weighted(F, d * d, weight, reduction_of(size_average, reduce, reduction))


@op(f"l1_loss(input: Tensor, target: Tensor, {OLD}, weight: Tensor | None = None) -> Tensor")
class l1_loss:
    """|input - target|."""

    where, tolerance = "nn", TOLERANCE
    dtypes, samples = "float half", _pair()
    rule = mse_loss.rule

    def decomp(F, x, t, size_average, reduce, reduction, weight):
        return _weighted(F, F.abs(x - t), weight, reduction_of(size_average, reduce, reduction))


@op(f"smooth_l1_loss(input: Tensor, target: Tensor, {OLD}, beta: float = 1.0) -> Tensor")
class smooth_l1_loss:
    """0.5 d ** 2 / beta where |d| < beta, else |d| - 0.5 beta (Girshick, 2015)."""

    where, tolerance = "nn", TOLERANCE
    dtypes, samples = "float half", _pair({"beta": 0.5}, {"beta": 0.0})

    def rule(x, t, size_average=None, reduce=None, reduction="mean", beta=1.0):
        if beta < 0:
            raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
        return elementwise(x, t, reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, t, size_average, reduce, reduction, beta):
        d = F.abs(x - t)
        if beta:
            d = F.where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta)
        return reduced(F, d, reduction_of(size_average, reduce, reduction))


@op("huber_loss(input: Tensor, target: Tensor, reduction: str = 'mean', delta: float = 1.0, "
    "weight: Tensor | None = None) -> Tensor")
class huber_loss:
    """0.5 d ** 2 where |d| <= delta, else delta * (|d| - 0.5 delta) (Huber, 1964)."""

    where, tolerance = "nn", TOLERANCE
    dtypes, samples = "float half", _pair({"delta": 0.5})

    def rule(x, t, reduction="mean", delta=1.0, weight=None):
        if delta <= 0:
            raise RuntimeError("huber_loss does not support non-positive values for delta.")
        _same_weight(x, weight)
        return elementwise(x, t, weight, reduction=reduction_of(None, None, reduction))

    def decomp(F, x, t, reduction, delta, weight):
        d = F.abs(x - t)
        d = F.where(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta)
        return _weighted(F, d, weight, reduction)


@op(f"kl_div(input: Tensor, target: Tensor, {OLD}, log_target: bool = False) -> Tensor")
class kl_div:
    """target * (log(target) - input), input a log-probability; 'batchmean' divides the sum by the
    first size."""

    where, tolerance = "nn", TOLERANCE
    dtypes = "float half"

    def rule(x, t, size_average=None, reduce=None, reduction="mean", log_target=False):
        how = reduction_of(size_average, reduce, reduction, ("batchmean",))
        return elementwise(x, t, reduction=how)

    def decomp(F, x, t, size_average, reduce, reduction, log_target):
        how = reduction_of(size_average, reduce, reduction, ("batchmean",))
        loss = F.exp(t) * (t - x) if log_target else F.xlogy(t, t) - t * x
        if how == "batchmean":
            return F.sum(loss) / count(F, x.shape[:1], None)
        return reduced(F, loss, how)

    def samples(s):
        for reduction in ("none", "sum", "mean", "batchmean"):
            yield s(s.f(3, 4), s.f(3, 4, pos=True), reduction=reduction)
        yield s(s.f(3, 4), s.f(3, 4), reduction="sum", log_target=True)


def _same_size(x, t, text):
    if tuple(x.shape) != tuple(t.shape):
        raise ValueError(text.format(list(t.shape), list(x.shape)))


@op("binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, "
    "size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> "
    "Tensor")
class binary_cross_entropy:
    """-(t log x + (1 - t) log(1 - x)) * weight, logarithms at least -100; input in [0, 1]."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, weight=None, size_average=None, reduce=None, reduction="mean"):
        _same_size(x, t,
                   "Using a target size ({}) that is different to the input size ({}) is "
                   "deprecated. "
                         "Please ensure they have the same size.")
        return elementwise(x, t, weight, reduction=reduction_of(size_average, reduce, reduction))

    def layout(spec, x, t, *rest):
        shape = tuple(spec.shape)
        return place.pointwise(shape, [(tuple(v.shape), tuple(v.strides)) for v in (x, t)] if shape
                               else [((), ())])

    def eager(np, x, t, weight, size_average, reduce, reduction):
        if not ((x >= 0) & (x <= 1)).all():
            raise RuntimeError("all elements of input should be between 0 and 1")
        loss = (t - 1) * np.maximum(np.log1p(-x), -100) - t * np.maximum(np.log(x), -100)
        loss = loss if weight is None else loss * weight
        how = reduction_of(size_average, reduce, reduction)
        return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[how]()

    def decomp(F, x, t, weight, size_average, reduce, reduction):
        outside = F.logical_not(F.logical_and(F.ge(x, 0), F.le(x, 1)))
        F.check_index(F.to_dtype(outside, dt.int64), 1, False)      # 1 stops the program
        loss = ((t - 1) * F.clamp_min(F.log1p(-x), -100.0)
                - t * F.clamp_min(F.log(x), -100.0))
        loss = loss if weight is None else loss * weight
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def vjp(F, g, out, x, t, weight, size_average, reduce, reduction):
        how = reduction_of(size_average, reduce, reduction)
        g = g / count(F, x.shape, None) if how == "mean" else g
        h = g if weight is None else g * weight

        def target():
            return h * (F.clamp_min(F.log1p(-x), -100.0) - F.clamp_min(F.log(x), -100.0))
        # as PyTorch: the derivative without the bound of -100, its denominator bounded instead
        return (lambda: h * (x - t) / F.clamp_min((1 - x) * x, 1e-12), target,
                lambda: g * F.binary_cross_entropy(x, t, reduction="none"))

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"reduction": "sum"}):
            yield s(s.f(3, 4, domain=(0.05, 0.95)), s.f(3, 4, domain=(0.0, 1.0)), **kwargs)
        yield s(s.f(3, 4, domain=(0.05, 0.95)), s.f(3, 4, domain=(0.0, 1.0)),
                s.f(4, pos=True))
        yield s.raises(ValueError, s.f(3, 4, domain=(0.0, 1.0)), s.f(4, domain=(0.0, 1.0)))
        yield s.raises(RuntimeError, s.f(3, domain=(1.5, 2.0)), s.f(3, domain=(0.0, 1.0)))


@op("binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = "
    "None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "
    "'mean', pos_weight: Tensor | None = None) -> Tensor")
class binary_cross_entropy_with_logits:
    """(1 - t) x - (1 + (pos_weight - 1) t) log sigmoid(x), times weight."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
        _same_size(x, t, "Target size ({}) must be the same as input size ({})")
        return elementwise(x, t, weight, pos_weight,
                           reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, t, weight, size_average, reduce, reduction, pos_weight):
        log = F.logsigmoid(x)
        if pos_weight is not None:
            log = log * ((pos_weight - 1) * t + 1)
        loss = (1 - t) * x - log
        loss = loss if weight is None else loss * weight
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"reduction": "sum"},
                       {"weight": s.f(4, pos=True), "pos_weight": s.f(4, pos=True)}):
            yield s(s.f(3, 4), s.f(3, 4, domain=(0.0, 1.0)), **kwargs)
        yield s(s.f(3, 4, domain=(-90.0, 90.0)), s.f(3, 4, domain=(0.0, 1.0)))
        yield s.raises(ValueError, s.f(3, 4), s.f(4))


@op("poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, "
    "size_average: bool | None = None, eps: float = 1e-08, reduce: bool | None = None, "
    "reduction: str = 'mean') -> Tensor")
class poisson_nll_loss:
    """exp(x) - t x, or x - t log(x + eps) for `log_input` False; `full` adds Stirling's term where
    t > 1."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None,
             reduction="mean"):
        return elementwise(x, t, reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, t, log_input, full, size_average, eps, reduce, reduction):
        loss = F.exp(x) - t * x if log_input else x - t * F.log(x + eps)
        if full:
            stirling = t * F.log(t) - t + F.log(t * (2 * math.pi)) * 0.5
            loss = loss + F.where(t > 1, stirling, 0.0)
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4, pos=True))
        yield s(s.f(3, 4), s.f(3, 4, pos=True), True, True, reduction="sum")
        yield s(s.f(3, 4, pos=True), s.f(3, 4, pos=True), False, reduction="none")


def _variance(x, var):
    """The shape of var against x's: the same, or the last size left out or 1, or one that
    broadcasts."""
    if not hasattr(var, "shape"):
        return None
    shape = tuple(var.shape)
    if shape == tuple(x.shape):
        return shape
    if shape == tuple(x.shape[:-1]):
        return (*shape, 1)
    try:
        if rule.broadcast(tuple(x.shape), shape) == tuple(x.shape):
            return shape
    except RuntimeError:
        pass
    raise ValueError(f"var is of incorrect size: {list(shape)} for an input of {list(x.shape)}")


@op("gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, "
    "eps: float = 1e-06, reduction: str = 'mean') -> Tensor")
class gaussian_nll_loss:
    """0.5 (log v + (x - t) ** 2 / v), v = max(var, eps) with the derivative of var; `full` adds
    log(2 pi) / 2."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, var, full=False, eps=1e-6, reduction="mean"):
        _variance(x, var)
        return elementwise(x, t, reduction=reduction_of(None, None, reduction))

    def decomp(F, x, t, var, full, eps, reduction):
        shape = _variance(x, var)
        if shape is None:
            v = F.full((), max(var, eps), dtype=x.dtype, device=x.device)
        else:
            var = F.reshape(var, shape)
            v = var + F.detach(F.clamp_min(var, eps) - var)
        d = x - t
        loss = (F.log(v) + d * d / v) * 0.5
        return reduced(F, loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)

    def samples(s):
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, 4, pos=True))
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, 1, pos=True), full=True, reduction="sum")
        yield s(s.f(3, 4), s.f(3, 4), s.f(3, pos=True), reduction="none")


@op(f"hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, {OLD}) -> Tensor")
class hinge_embedding_loss:
    """x where target is 1, max(0, margin - x) where it is -1."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, margin=1.0, size_average=None, reduce=None, reduction="mean"):
        spec = elementwise(x, t, reduction=reduction_of(size_average, reduce, reduction))
        return spec._replace(dtype=rule.as_float(x.dtype), compute=rule.as_float(x.dtype))

    def decomp(F, x, t, margin, size_average, reduce, reduction):
        loss = F.where(t != 1, F.clamp_min(margin - x, 0.0), 0.0) + F.where(t != -1, x, 0.0)
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def samples(s):
        for reduction in ("none", "mean", "sum"):
            yield s(s.f(3, 4), s.f(3, 4) * 0 + (2 * s.b(3, 4) - 1).astype(s.floating.np),
                    reduction=reduction)
        yield s(s.f(3, 4), s.f(3, 4) * 0 + (2 * s.b(3, 4) - 1).astype(s.floating.np), 0.25)


@op(f"soft_margin_loss(input: Tensor, target: Tensor, {OLD}) -> Tensor")
class soft_margin_loss:
    """log(1 + exp(-target * input))."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"
    samples = _pair()

    def rule(x, t, size_average=None, reduce=None, reduction="mean"):
        return elementwise(x, t, reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, t, size_average, reduce, reduction):
        return reduced(F, F.log1p(F.exp(-t * x)), reduction_of(size_average, reduce, reduction))


@op("margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, "
    f"{OLD}) -> Tensor")
class margin_ranking_loss:
    """max(0, margin - target * (input1 - input2))."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, y, t, margin=0.0, size_average=None, reduce=None, reduction="mean"):
        if not len(x.shape) == len(y.shape) == len(t.shape):
            raise RuntimeError("margin_ranking_loss : All input tensors should have same "
                               f"dimension but got sizes: input1: {list(x.shape)}, input2: "
                               f"{list(y.shape)}, target: {list(t.shape)} ")
        return elementwise(x, y, t, reduction=reduction_of(size_average, reduce, reduction))

    def decomp(F, x, y, t, margin, size_average, reduce, reduction):
        loss = F.clamp_min(-t * (x - y) + margin, 0.0)
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def samples(s):
        for reduction in ("none", "mean", "sum"):
            yield s(s.f(3, 4), s.f(3, 4), s.f(3, 4), 0.5, reduction=reduction)
        yield s.raises(RuntimeError, s.f(3, 4), s.f(3, 4), s.f(4))


@op("multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, "
    "size_average: bool | None = None, reduce: bool | None = None, reduction: str = 'mean') -> "
    "Tensor")
class multilabel_soft_margin_loss:
    """Binary cross entropy of every class [.., c], averaged over the classes."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, t, weight=None, size_average=None, reduce=None, reduction="mean"):
        shape = rule.broadcast(tuple(x.shape), tuple(t.shape))
        return typed(shape[:-1], reduction_of(size_average, reduce, reduction), (x, t))

    def decomp(F, x, t, weight, size_average, reduce, reduction):
        loss = -(t * F.logsigmoid(x) + (1 - t) * F.logsigmoid(-x))
        loss = loss if weight is None else loss * weight
        return reduced(F, F.mean(loss, -1), reduction_of(size_average, reduce, reduction))

    def samples(s):
        for reduction in ("none", "mean", "sum"):
            yield s(s.f(3, 4), s.f(3, 4, domain=(0.0, 1.0)), reduction=reduction)
        yield s(s.f(3, 4), s.f(3, 4, domain=(0.0, 1.0)), s.f(4, pos=True))


@op("cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, "
    f"{OLD}) -> Tensor")
class cosine_embedding_loss:
    """1 - cos of the rows [n, d] where target [n] is 1, max(0, cos - margin) where it is -1."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, y, t, margin=0.0, size_average=None, reduce=None, reduction="mean"):
        if len(t.shape) not in (0, 1) or len(x.shape) != len(t.shape) + 1:
            raise RuntimeError(f"{len(t.shape)}D target tensor expects {len(t.shape) + 1}D input "
                               f"tensors, but found inputs with sizes {list(x.shape)} and "
                               f"{list(y.shape)}.")
        shape = rule.broadcast(tuple(x.shape), tuple(y.shape))
        spec = typed(shape[:-1], reduction_of(size_average, reduce, reduction), (x, y))
        return spec

    def decomp(F, x, y, t, margin, size_average, reduce, reduction):
        eps = 1e-12
        along = F.sum(x * y, -1)
        cos = along / F.sqrt((F.sum(x * x, -1) + eps) * (F.sum(y * y, -1) + eps))
        loss = F.where(t == 1, 1 - cos, 0.0) + F.where(t == -1, F.clamp_min(cos - margin, 0.0), 0.0)
        return reduced(F, loss, reduction_of(size_average, reduce, reduction))

    def samples(s):
        for reduction in ("none", "mean", "sum"):
            sign = (2 * s.b(4) - 1).astype(s.floating.np)
            yield s(s.f(4, 3), s.f(4, 3), sign, 0.1, reduction=reduction)
        yield s(s.f(3), s.f(3), s.f(domain=(1.0, 1.0)))
        yield s.raises(RuntimeError, s.f(4, 3), s.f(4, 3), s.f(4, 3))


@op("triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = "
    f"1.0, p: float = 2, eps: float = 1e-06, swap: bool = False, {OLD}) -> Tensor")
class triplet_margin_loss:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the p-norm distance of rows.

    `swap`: the smaller of the negative's distances to anchor and positive counts (Balntas et al.,
    2016). """

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(a, p, n, margin=1.0, norm=2.0, eps=1e-6, swap=False, size_average=None, reduce=None,
             reduction="mean"):
        if margin <= 0:
            raise ValueError(f"margin must be greater than 0, got {margin}")
        if not len(a.shape) == len(p.shape) == len(n.shape):
            raise RuntimeError("The anchor, positive, and negative tensors are expected to have "
                               f"the same number of dimensions, but got: anchor {len(a.shape)}D, "
                               f"positive {len(p.shape)}D, and negative {len(n.shape)}D inputs")
        shape = rule.broadcast(*(tuple(t.shape) for t in (a, p, n)))
        return typed(shape[:-1], reduction_of(size_average, reduce, reduction), (a, p, n))

    def decomp(F, a, p, n, margin, norm, eps, swap, size_average, reduce, reduction):
        near, far = F.pairwise_distance(a, p, norm, eps), F.pairwise_distance(a, n, norm, eps)
        if swap:
            far = F.minimum(far, F.pairwise_distance(p, n, norm, eps))
        return reduced(F, F.clamp_min(near - far + margin, 0.0),
                       reduction_of(size_average, reduce, reduction))

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"swap": True}, {"p": 1.0, "margin": 0.5}):
            yield s(s.f(4, 3), s.f(4, 3), s.f(4, 3), **kwargs)
        yield s.raises(ValueError, s.f(4, 3), s.f(4, 3), s.f(4, 3), margin=-1.0)

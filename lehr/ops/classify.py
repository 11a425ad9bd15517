"""Losses over classes: cross entropy, negative log likelihood, margins, CTC.

The classes are dimension 1 of [n, c, ..] (0 of [c]); targets are int64 class indices [n, ..], or
probabilities. A target outside [0, c) that is not `ignore_index` raises IndexError. `class_loss` is
the whole of cross entropy with class indices, one pass forward and one backward over the scores: it
keeps the logarithm of each row's sum of exponentials and makes the probabilities again.
"""

from __future__ import annotations

import numpy

from lehr.base import dtype as dt
from lehr.ops.contract import cast
from lehr.ops.loss import OLD, TOLERANCE, reduced, reduction_of, typed
from lehr.ops.registry import EXTERN, HOST, INDEX, op
from lehr.ops.rule import Spec, check_floating, device_of, no_bool, numel, same

BLOCK = 1 << 16  # elements of a block of rows
INDICES = (dt.int64, dt.uint8, dt.int32)


def _checked(target, classes, ignore):
    """numpy: targets with 0 in the place of ignored ones, and which are not ignored."""
    valid = target != ignore
    bad = valid & ((target < 0) | (target >= classes))
    if bad.any():
        raise IndexError(f"Target {int(target[bad].reshape(-1)[0])} is out of bounds.")
    return numpy.where(valid, target, 0).astype(numpy.int64), valid


def _safe(F, target, ignore):
    """The same over ops."""
    valid = F.ne(target, ignore)
    return F.where(valid, cast(F, target, dt.int64), 0), valid


def _row_weight(F, safe, valid, weight, dtype):
    """The weight of each row's class, 0 where the target is ignored."""
    if weight is None:
        return F.to_dtype(valid, dtype)
    return F.where(valid, F.take(cast(F, weight, dtype), safe), 0.0)


def _matches(name, x, target, weight):
    """Whether class indices fit the scores."""
    size, n = tuple(x.shape), len(x.shape)
    if n < 1:
        raise ValueError(f"{name}: expected scores with a class dimension, got a 0-D tensor")
    if target.dtype not in INDICES:
        raise RuntimeError(f"{name}: expected scalar type Long for class indices but found "
                           f"{target.dtype}")
    want = () if n == 1 else (size[0], *size[2:])
    if n > 1 and len(target.shape) and not same(target.shape[0], size[0]):
        raise ValueError(f"Expected input batch_size ({size[0]}) to match target batch_size "
                         f"({target.shape[0]}).")
    if len(target.shape) != len(want) or not all(map(same, target.shape, want)):
        raise RuntimeError(f"Expected target size {list(want)}, got {list(target.shape)}")
    classes = size[1] if n > 1 else size[0]
    if weight is not None and (len(weight.shape) != 1 or not same(weight.shape[0], classes)):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or "
                           f"no classes but got weight tensor of shape: {list(weight.shape)}")
    return want


# Negative log likelihood


@op("nll_rows(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor")
class nll_rows:
    """-weight[t] * input[.., t] of rows [.., c] with targets [..]; 0 where ignored."""

    kind, where, dtypes = INDEX, "", "float half"

    def rule(x, target, weight, ignore):
        no_bool('"nll_loss" not implemented for \'Bool\'', x, NotImplementedError)
        return Spec(tuple(x.shape[:-1]), x.dtype, device_of((x, target, weight)))

    def eager(np, x, target, weight, ignore):
        safe, valid = _checked(target, x.shape[-1], ignore)
        picked = np.take_along_axis(x, safe[..., None],
                                    -1)[..., 0] if x.size else np.zeros(safe.shape, x.dtype)
        picked = -picked if weight is None else -picked * weight[safe]
        return np.where(valid, picked, x.dtype.type(0))

    def decomp(F, x, target, weight, ignore):
        safe, valid = _safe(F, target, ignore)
        picked = -F.squeeze(F.gather(x, -1, F.unsqueeze(safe, -1)), -1)
        picked = picked if weight is None else picked * F.take(weight, safe)
        return F.where(valid, picked, 0.0)

    def vjp(F, g, out, x, target, weight, ignore):
        safe, valid = _safe(F, target, ignore)
        scale = F.where(valid, -_row_weight(F, safe, valid, weight, g.dtype) * g, 0.0)
        shape, dtype, device = tuple(x.shape), g.dtype, g.device

        def scores():
            zeros = F.full(shape, 0.0, dtype=dtype, device=device)
            return F.scatter(zeros, -1, F.unsqueeze(safe, -1), F.unsqueeze(scale, -1))

        def weights():
            picked = F.squeeze(F.gather(x, -1, F.unsqueeze(safe, -1)), -1)
            return _by_class(F, -picked * g, safe, valid, weight)
        return scores, None, weights

    def samples(s):
        yield s(s.f(3, 4), s.i(3, high=4), None, -100)
        yield s(s.f(2, 3, 4), s.i(2, 3, high=4), s.f(4, pos=True, dtype=dt.float32), 2)
        yield s.raises(IndexError, s.f(3, 4), s.i(3, low=4, high=6), None, -100)


def _by_class(F, rows, safe, valid, weight):
    """The sum of rows [..] over the rows of each class."""
    zeros = F.full(tuple(weight.shape), 0.0, dtype=rows.dtype, device=rows.device)
    flat = (numel(safe.shape),)
    rows = F.where(valid, rows, 0.0)
    return F.scatter_add(zeros, 0, F.reshape(safe, flat), F.reshape(rows, flat))


def _flat_rows(F, x):
    """[n, c, ..] as [n, .., c]."""
    return F.movedim(x, 1, -1) if x.ndim > 2 else x


def _averaged(F, rows, target, weight, ignore, how):
    """Rows reduced; the mean is over the weights of the targets that count."""
    if how != "mean":
        return reduced(F, rows, how)
    safe, valid = _safe(F, target, ignore)
    return F.sum(rows) / F.sum(_row_weight(F, safe, valid, weight, rows.dtype))


@op("nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | "
    "None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = 'mean') "
    "-> Tensor")
class nll_loss:
    """-weight[t] * input[n, t], input a log-probability; the mean divides by the sum of the
    weights."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, target, weight=None, size_average=None, ignore=-100, reduce=None, reduction="mean"):
        want = _matches("nll_loss", x, target, weight)
        how = reduction_of(size_average, reduce, reduction)
        return typed(want, how, (x,))._replace(compute=None)

    def decomp(F, x, target, weight, size_average, ignore, reduce, reduction):
        how, wide = reduction_of(size_average, reduce, reduction), x.dtype.wide
        rows = F.nll_rows(cast(F, _flat_rows(F, x), wide), target, weight, ignore)
        return cast(F, _averaged(F, rows, target, weight, ignore, how), x.dtype)

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"reduction": "sum"}, {"ignore_index": 1}):
            yield s(s.f(5, 4), s.i(5, high=4), **kwargs)
        yield s(s.f(5, 4), s.i(5, high=4), np_fixed(s, 4))
        yield s(s.f(2, 3, 4, 2), s.i(2, 4, 2, high=3), np_fixed(s, 3), ignore_index=0)
        yield s(s.f(4), s.i(high=4))
        yield s(s.f(3, 4), s.i(3, low=2, high=3), ignore_index=2)
        yield s.raises(IndexError, s.f(3, 4), s.i(3, low=4, high=6))
        yield s.raises(ValueError, s.f(3, 4), s.i(2, high=4))
        yield s.raises(RuntimeError, s.f(3, 4), s.i(3, high=4), s.f(5))


def np_fixed(s, n):
    """Class weights."""
    return numpy.linspace(0.5, 1.5, n).astype(s.floating.np)


# Cross entropy


@op("class_loss(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, "
    "label_smoothing: float) -> tuple[Tensor, Tensor]")
class class_loss:
    """(loss, lse) of rows [.., c]: with p the softmax and e the smoothing, and weights w,

    loss = -(1 - e) w[t] log p[t] - e / c * sum over j of w[j] log p[j], 0 where ignored; lse = log
    sum exp. Both float32 for half precision.
    """

    kind, where, tolerance, dtypes = EXTERN, "", TOLERANCE, "float half"

    def rule(x, target, weight, ignore, smoothing):
        check_floating("class_loss", x)
        spec = Spec(tuple(x.shape[:-1]), x.dtype.wide, device_of((x, target, weight)))
        return spec, spec

    def eager(np, x, target, weight, ignore, smoothing):
        classes = x.shape[-1]
        safe, valid = _checked(target, classes, ignore)
        rows, flat = x.reshape(-1, classes), safe.reshape(-1)
        lse = np.empty(len(rows), x.dtype)
        step = max(1, BLOCK // max(classes, 1))
        for at in range(0, len(rows), step):
            part = rows[at: at + step]
            top = part.max(1, keepdims=True)
            top[np.isinf(top)] = 0
            lse[at: at + step] = np.log(np.exp(part - top).sum(1)) + top[:, 0]
        loss = lse - rows[np.arange(len(rows)), flat]
        if weight is not None:
            loss *= weight[flat]
        if smoothing:
            total = classes if weight is None else weight.sum()
            spread = lse * x.dtype.type(total) - (rows.sum(1) if weight is None else rows @ weight)
            loss = loss * x.dtype.type(1 - smoothing) + spread * x.dtype.type(smoothing / classes)
        loss = np.where(valid.reshape(-1), loss, x.dtype.type(0))
        return loss.reshape(x.shape[:-1]), lse.reshape(x.shape[:-1])

    def decomp(F, x, target, weight, ignore, smoothing):
        x = cast(F, x, x.dtype.wide)
        safe, valid = _safe(F, target, ignore)
        lse = F.logsumexp(x, -1)
        loss = lse - F.squeeze(F.gather(x, -1, F.unsqueeze(safe, -1)), -1)
        if weight is not None:
            weight = cast(F, weight, x.dtype)
            loss = loss * F.take(weight, safe)
        if smoothing:
            if weight is None:
                spread = lse * x.shape[-1] - F.sum(x, -1)
            else:
                spread = lse * F.sum(weight) - F.sum(x * weight, -1)
            loss = loss * (1 - smoothing) + spread * smoothing / x.shape[-1]
        return F.where(valid, loss, 0.0), lse

    def vjp(F, g, out, x, target, weight, ignore, smoothing):
        rise, rise_lse, lse = g[0], g[1], out[1]

        def scores():
            made = None
            if rise is not None:
                made = F.class_loss_grad(rise, x, lse, target, weight, ignore, smoothing)
            if rise_lse is not None:
                p = F.exp(cast(F, x, x.dtype.wide) - F.unsqueeze(lse, -1))
                p = p * F.unsqueeze(rise_lse, -1)
                made = p if made is None else made + p
            return made

        def weights():
            if rise is None:
                return None
            safe, valid = _safe(F, target, ignore)
            wide = cast(F, x, x.dtype.wide)
            minus = F.unsqueeze(lse, -1) - wide
            picked = F.squeeze(F.gather(minus, -1, F.unsqueeze(safe, -1)), -1)
            made = _by_class(F, picked * rise * (1 - smoothing), safe, valid, weight)
            if smoothing:
                even = F.unsqueeze(F.where(valid, rise, 0.0), -1) * smoothing / x.shape[-1]
                made = made + F.sum(minus * even, tuple(range(x.ndim - 1)))
            return made
        return scores, None, weights

    def samples(s):
        yield s(s.f(5, 4), s.i(5, high=4), None, -100, 0.0)
        yield s(s.f(2, 3, 4), s.i(2, 3, high=4), np_fixed(s, 4), 1, 0.1)
        yield s(s.f(5, 4, domain=(-100.0, 100.0)), s.i(5, high=4), None, -100, 0.5)
        yield s.raises(IndexError, s.f(3, 4), s.i(3, low=4, high=6), None, -100, 0.0)


@op("class_loss_grad(grad: Tensor, input: Tensor, lse: Tensor, target: Tensor, weight: Tensor | "
    "None, ignore_index: int, label_smoothing: float) -> Tensor")
class class_loss_grad:
    """Gradient of `class_loss`'s scores: p * (a + b) - a [j = t] - b w[j] / sum w, with a = g (1 -
    e) w[t] and b = g e / c * sum w."""

    kind, where, tolerance, dtypes = EXTERN, "", TOLERANCE, "float half"

    def rule(g, x, *rest):
        check_floating("class_loss_backward", x)
        return Spec(tuple(x.shape), x.dtype, device_of((g, x)))

    def eager(np, g, x, lse, target, weight, ignore, smoothing):
        classes = x.shape[-1]
        safe, valid = _checked(target, classes, ignore)
        rows, flat = x.reshape(-1, classes), safe.reshape(-1)
        g = np.where(valid, g, g.dtype.type(0)).reshape(-1)
        hit = g * x.dtype.type(1 - smoothing)
        hit = hit if weight is None else hit * weight[flat]
        total = classes if weight is None else weight.sum()
        even = g * x.dtype.type(smoothing / classes)
        both, lse = hit + even * x.dtype.type(total), lse.reshape(-1)
        out = np.empty(rows.shape, x.dtype)
        step = max(1, BLOCK // max(classes, 1))
        for at in range(0, len(rows), step):
            part = out[at: at + step]
            np.subtract(rows[at: at + step], lse[at: at + step, None], out=part)
            np.exp(part, out=part)
            part *= both[at: at + step, None]
            if smoothing:
                part -= even[at: at + step, None] * (1 if weight is None else weight)
        out[np.arange(len(rows)), flat] -= hit
        return out.reshape(x.shape)

    def decomp(F, g, x, lse, target, weight, ignore, smoothing):
        wide = x.dtype.wide
        safe, valid = _safe(F, target, ignore)
        g = F.where(valid, g, 0.0)
        hit = g * (1 - smoothing)
        even = g * smoothing / x.shape[-1]
        if weight is not None:
            weight = cast(F, weight, wide)
            hit = hit * F.take(weight, safe)
        total = x.shape[-1] if weight is None else F.sum(weight)
        p = F.exp(cast(F, x, wide) - F.unsqueeze(lse, -1))
        made = p * F.unsqueeze(hit + even * total, -1)
        if smoothing:
            spread = F.unsqueeze(even, -1)
            made = made - (spread if weight is None else spread * weight)
        here = F.arange(x.shape[-1], device=x.device) == F.unsqueeze(safe, -1)
        return cast(F, made - F.where(here, F.unsqueeze(hit, -1), 0.0), x.dtype)

    def samples(s):
        x, t = s.f(5, 4), s.i(5, high=4)
        wide = s.floating.wide.np
        lse = numpy.log(numpy.exp(x.astype(wide)).sum(1))
        yield s(s.f(5).astype(wide), x, lse, t, None, -100, 0.0)
        yield s(s.f(5).astype(wide), x, lse, t, np_fixed(s, 4), 1, 0.25)


@op("cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: "
    "bool | None = None, ignore_index: int = -100, reduce: bool | None = None, reduction: str = "
    "'mean', label_smoothing: float = 0.0) -> Tensor")
class cross_entropy:
    """-log softmax(input) at the target class, or against target probabilities of the input's
    shape.

    The mean over class indices divides by the sum of the weights of the targets that count; over
    probabilities by the number of rows. `label_smoothing` mixes in the uniform distribution
    (Szegedy et al., 2016). """

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, target, weight=None, size_average=None, ignore=-100, reduce=None, reduction="mean",
             smoothing=0.0):
        check_floating("cross_entropy", x)
        how = reduction_of(size_average, reduce, reduction)
        if not 0 <= smoothing <= 1:
            raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
        if target.dtype.category == dt.FLOAT:
            if tuple(target.shape) != tuple(x.shape):
                raise RuntimeError("Expected floating point type for target with class "
                                   f"probabilities of shape {list(x.shape)}, got "
                                   f"{list(target.shape)}")
            if ignore >= 0:
                raise RuntimeError("ignore_index is not supported for floating point target")
            want = (x.shape[0], *x.shape[2:]) if len(x.shape) > 1 else ()
        else:
            want = _matches("cross_entropy", x, target, weight)
        return typed(want, how, (x,))._replace(compute=None)

    def decomp(F, x, target, weight, size_average, ignore, reduce, reduction, smoothing):
        how = reduction_of(size_average, reduce, reduction)
        scores = _flat_rows(F, x)
        if target.dtype.category == dt.FLOAT:
            rows = _soft(F, scores, _flat_rows(F, target), weight, smoothing)
            return cast(F, reduced(F, rows, how), x.dtype)
        rows = F.class_loss(scores, target, weight, ignore, smoothing)[0]
        return cast(F, _averaged(F, rows, target, weight, ignore, how), x.dtype)

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"reduction": "sum"}, {"ignore_index": 1},
                       {"label_smoothing": 0.1}, {"label_smoothing": 0.1, "ignore_index": 2}):
            yield s(s.f(5, 4), s.i(5, high=4), **kwargs)
        yield s(s.f(5, 4), s.i(5, high=4), np_fixed(s, 4), label_smoothing=0.2)
        yield s(s.f(2, 3, 4, 2), s.i(2, 4, 2, high=3), np_fixed(s, 3), reduction="none")
        yield s(s.f(4), s.i(high=4))
        for kwargs in ({}, {"reduction": "sum"}, {"label_smoothing": 0.1},
                       {"weight": np_fixed(s, 4)}):
            yield s(s.f(5, 4), s.f(5, 4, domain=(0.0, 1.0)), **kwargs)
        yield s(s.f(2, 3, 4), s.f(2, 3, 4, domain=(0.0, 1.0)), reduction="none")
        yield s(s.f(3, 4), s.i(3, low=2, high=3), ignore_index=2)
        yield s.raises(IndexError, s.f(3, 4), s.i(3, low=4, high=6))
        yield s.raises(ValueError, s.f(3, 4), s.i(2, high=4))
        yield s.raises(RuntimeError, s.f(3, 4), s.f(3, 5))
        yield s.raises(RuntimeError, s.f(3, 4), s.i(3, high=4), label_smoothing=1.5)


@op("linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: "
    "Tensor | None = None, weight: Tensor | None = None, reduction: str = 'mean', ignore_index: "
    "int | None = None, label_smoothing: float = 0.0) -> Tensor")
class linear_cross_entropy:
    """`cross_entropy` of `linear(input [n, k], linear_weight [c, k], linear_bias [c])`."""

    where, tolerance, dtypes = "", TOLERANCE, "float"

    def rule(x, w, target, bias=None, weight=None, reduction="mean", ignore=None, smoothing=0.0):
        if len(x.shape) not in (1, 2) or len(w.shape) != 2 or not same(x.shape[-1], w.shape[1]):
            raise RuntimeError("linear_cross_entropy: expected input [n, k] and linear_weight "
                               f"[c, k], got {list(x.shape)} and {list(w.shape)}")
        scores = Spec((*x.shape[:-1], w.shape[0]), x.dtype, x.device)
        return cross_entropy.rule(scores, target, weight, None, -100 if ignore is None else ignore,
                                  None,
                                  reduction, smoothing)

    def decomp(F, x, w, target, bias, weight, reduction, ignore, smoothing):
        return F.cross_entropy(F.linear(x, w, bias), target, weight, None,
                               -100 if ignore is None else ignore, None, reduction, smoothing)

    def samples(s):
        yield s(s.f(5, 3), s.f(4, 3), s.i(5, high=4))
        yield s(s.f(5, 3), s.f(4, 3), s.i(5, high=4), linear_bias=s.f(4), label_smoothing=0.1)
        yield s.raises(RuntimeError, s.f(5, 3), s.f(4, 2), s.i(5, high=4))


def _soft(F, x, target, weight, smoothing):
    """Rows of the loss against probabilities."""
    wide = x.dtype.wide
    log, target = F.log_softmax(cast(F, x, wide), -1), cast(F, target, wide)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / x.shape[-1]
    loss = log * target
    return -F.sum(loss if weight is None else loss * cast(F, weight, wide), -1)


# Margins


@op("multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: "
    f"Tensor | None = None, {OLD}) -> Tensor")
class multi_margin_loss:
    """sum over j != t of max(0, margin - x[t] + x[j]) ** p * weight[t] / c."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None,
             reduction="mean"):
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if len(x.shape) > 2 or len(target.shape) > 1:
            raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch "
                               f"size, but got: {list(x.shape)} and target {list(target.shape)}")
        want = tuple(x.shape[:-1])
        if len(x.shape) == 2 and not same(target.shape[0], x.shape[0]):
            raise RuntimeError(f"inconsistent target size, expected {x.shape[0]} but got "
                               f"{list(target.shape)}")
        return typed(want, reduction_of(size_average, reduce, reduction),
                     (x,))._replace(compute=None)

    def decomp(F, x, target, p, margin, weight, size_average, reduce, reduction):
        dtype = x.dtype
        x = cast(F, x if x.ndim else F.unsqueeze(x, 0), dtype.wide)
        classes = x.shape[-1]
        target = F.reshape(target, tuple(x.shape[:-1]))
        index = F.unsqueeze(target, -1)
        loss = F.clamp_min(x - F.gather(x, -1, index) + margin, 0.0)
        loss = loss * loss if p == 2 else loss
        if weight is not None:
            loss = loss * F.unsqueeze(F.take(cast(F, weight, x.dtype), target), -1)
        other = F.arange(classes, device=x.device) != index
        rows = F.sum(F.where(other, loss, 0.0), -1) / classes
        return cast(F, reduced(F, rows, reduction_of(size_average, reduce, reduction)), dtype)

    def samples(s):
        for kwargs in ({}, {"reduction": "none"}, {"p": 2, "margin": 0.5},
                       {"weight": np_fixed(s, 4)}):
            yield s(s.f(5, 4), s.i(5, high=4), **kwargs)
        yield s(s.f(4), s.i(1, high=4))
        yield s(s.f(), s.i(high=1))
        yield s.raises(ValueError, s.f(5, 4), s.i(5, high=4), p=3)


@op(f"multilabel_margin_loss(input: Tensor, target: Tensor, {OLD}) -> Tensor")
class multilabel_margin_loss:
    """sum over targets j and other classes i of max(0, 1 - x[j] + x[i]) / c; a row's targets end at
    the first -1."""

    where, tolerance, dtypes = "nn", TOLERANCE, "float half"

    def rule(x, target, size_average=None, reduce=None, reduction="mean"):
        if tuple(x.shape) != tuple(target.shape):
            raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of "
                               f"size: {list(x.shape)}")
        if len(x.shape) > 2 or (x.shape and isinstance(x.shape[-1], int) and x.shape[-1] == 0):
            raise RuntimeError("Expected non-empty vector or matrix with optional 0-dim batch "
                               f"size, but got: {list(x.shape)}")
        how = reduction_of(size_average, reduce, reduction)
        return typed(tuple(x.shape[:-1]), how, (x,))._replace(compute=None)

    def decomp(F, x, target, size_average, reduce, reduction):
        dtype, classes = x.dtype, x.shape[-1] if x.ndim else 1
        x = cast(F, x, dtype.wide)
        x, target = (F.unsqueeze(x, 0), F.unsqueeze(target, 0)) if not x.ndim else (x, target)
        valid = F.cumsum(F.to_dtype(target < 0, dt.int64), -1) == 0
        index = F.clamp_min(target, 0)
        hit = F.logical_and(F.unsqueeze(index, -1) == F.arange(classes, device=x.device),
                            F.unsqueeze(valid, -1))  # [.., j, i]
        chosen = F.unsqueeze(F.any(hit, -2), -2)
        pairs = F.clamp_min(F.unsqueeze(x, -2) - F.unsqueeze(F.gather(x, -1, index), -1) + 1.0, 0.0)
        count = F.logical_and(F.unsqueeze(valid, -1), F.logical_not(chosen))
        rows = F.sum(F.where(count, pairs, 0.0), (-2, -1)) / classes
        return cast(F, reduced(F, rows, reduction_of(size_average, reduce, reduction)), dtype)

    def samples(s):
        target = numpy.array([[1, 2, -1, 0], [3, -1, 2, 1], [-1, 0, 1, 2], [0, 1, 2, 3]])
        for reduction in ("none", "mean", "sum"):
            yield s(s.f(4, 4), target, reduction=reduction)
        yield s(s.f(4), target[0])
        yield s.raises(RuntimeError, s.f(4, 4), target[:2])


# Connectionist temporal classification


def _extended(targets, lengths, blank):
    """Labels with blanks around, [n, 2 s + 1], and where a step may skip the blank before."""
    np = numpy
    n, s = targets.shape
    labels = np.full((n, 2 * s + 1), blank, np.int64)
    labels[:, 1::2] = targets
    skip = np.zeros(labels.shape, bool)
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return labels, skip, 2 * lengths + 1


def _add_log(*terms):
    """log of the sum of exponentials, elementwise."""
    np = numpy
    top = np.maximum.reduce(terms)
    top = np.where(np.isneginf(top), 0, top)
    with np.errstate(all="ignore"):
        return np.log(sum(np.exp(t - top) for t in terms)) + top


def _shifted(a, by):
    """a[:, j - by] with -inf from outside."""
    out = numpy.full_like(a, -numpy.inf)
    if by > 0:
        out[:, by:] = a[:, :-by]
    else:
        out[:, :by] = a[:, -by:]
    return out


def _lattice(np, emit, skip, ends, lengths):
    """Forward variables [t, n, l] of emissions [t, n, l] (Graves et al., 2006, equation 6)."""
    alpha = np.full(emit.shape, -np.inf)
    alpha[0, :, :2] = emit[0, :, :2]
    for t in range(1, len(emit)):
        last = alpha[t - 1]
        jump = np.where(skip, _shifted(last, 2), -np.inf)
        alpha[t] = _add_log(last, _shifted(last, 1), jump) + emit[t]
    return alpha


@op("ctc_rows(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | list[int], "
    "target_lengths: Tensor | list[int], blank: int, zero_infinity: bool) -> tuple[Tensor, "
    "Tensor]")
class ctc_rows:
    """(negative log likelihood [n], its gradient [t, n, c]) of label sequences under log_probs [t,
    n, c].

    The gradient is that of the scores before a log-softmax: exp(log_probs) minus the posterior.
    """

    kind, host, where, tolerance, dtypes = HOST, True, "", TOLERANCE, "float"
    stops = True

    def rule(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        steps, n, classes = log_probs.shape
        if not 0 <= blank < classes:
            raise RuntimeError("blank must be in label range")
        device = device_of((log_probs, targets))
        return (Spec((n,), log_probs.dtype, device),
                Spec((steps, n, classes), log_probs.dtype, device))

    def eager(np, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        steps, n, classes = log_probs.shape
        ins, outs = np.asarray(input_lengths, np.int64), np.asarray(target_lengths, np.int64)
        if len(ins) != n or len(outs) != n:
            raise RuntimeError("input_lengths and target_lengths must be of size batch_size")
        if ins.size and (ins.max() > steps or ins.min() < 0):
            raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got "
                               f"value {ins.max()}")
        padded = np.full((n, max(int(outs.max(initial=0)), 1)), blank, np.int64)
        places = np.concatenate(([0], np.cumsum(outs)))
        for i in range(n):
            row = targets[places[i]: places[i + 1]] if targets.ndim == 1 else targets[i, : outs[i]]
            padded[i, : outs[i]] = row
        labels, skip, ends = _extended(padded, outs, blank)
        wide = log_probs.astype(np.float64)
        inside = np.arange(labels.shape[1]) < ends[:, None]
        emit = np.where(inside, np.take_along_axis(wide, labels[None], 2), -np.inf)
        alpha = _lattice(np, emit, skip, ends, ins)
        rows, last = np.arange(n), np.maximum(ins - 1, 0)
        tails = [np.where(ends - k >= 0, alpha[last, rows, np.maximum(ends - k, 0)], -np.inf)
                 for k in (1, 2)]
        loss = -_add_log(*tails)
        loss = np.where(ins == 0, np.where(outs == 0, 0.0, np.inf), loss)
        made = _ctc_grad(np, wide, emit, alpha, labels, skip, ends, ins, loss)
        if zero_infinity:
            made[:, np.isinf(loss)] = 0
            loss = np.where(np.isinf(loss), 0, loss)
        return loss, made

    def vjp(F, g, out, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        if g[1] is not None:
            raise RuntimeError("the second derivative of ctc_loss is not implemented")
        return out[1] * F.reshape(g[0], (1, g[0].shape[0], 1)), None, None, None

    def samples(s):
        # float32 whatever is under test: the gradient is not that of log_probs, see above
        x = s.f(6, 3, 5, dtype=dt.float32)
        x = x - numpy.log(numpy.exp(x).sum(-1, keepdims=True))
        targets = s.i(3, 2, low=1, high=5)
        yield s(x, targets, [6, 5, 6], [2, 2, 1], 0, False)
        yield s(x, targets.reshape(-1), [6, 5, 6], [2, 2, 2], 0, True)


def _ctc_grad(np, log_probs, emit, alpha, labels, skip, ends, lengths, loss):
    steps, n, classes = log_probs.shape
    width, rows = labels.shape[1], np.arange(n)
    beta = np.full((n, width), -np.inf)
    out = np.exp(log_probs)
    for t in range(steps - 1, -1, -1):
        start = t == lengths - 1
        far = np.where(_shifted_bool(skip), _shifted(beta, -2), -np.inf)
        beta = _add_log(beta, _shifted(beta, -1), far) + emit[t]
        first = np.full((n, width), -np.inf)
        first[rows, ends - 1] = emit[t][rows, ends - 1]
        second = ends > 1
        first[rows[second], ends[second] - 2] = emit[t][rows[second], ends[second] - 2]
        beta = np.where(start[:, None], first, np.where((t < lengths)[:, None], beta, -np.inf))
        with np.errstate(all="ignore"):
            share = np.exp(alpha[t] + beta - emit[t] + loss[:, None])
        share = np.where(np.isneginf(alpha[t] + beta), 0, share)
        np.subtract.at(out[t], (rows[:, None], labels), share)
    out[np.arange(steps)[:, None] >= lengths] = 0
    return out


def _shifted_bool(skip):
    """skip[:, j + 2]: whether the step from j two on is allowed."""
    out = numpy.zeros_like(skip)
    out[:, :-2] = skip[:, 2:]
    return out


@op("ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor | list[int], "
    "target_lengths: Tensor | list[int], blank: int = 0, reduction: str = 'mean', zero_infinity: "
    "bool = False) -> Tensor")
class ctc_loss:
    """Negative log likelihood of label sequences (Graves et al., 2006); log_probs [t, n, c] or [t,
    c].

    targets [n, s], or all labels after each other. The mean divides each row by its number of
    labels first. """

    where, tolerance, dtypes = "nn function", TOLERANCE, "float"

    def rule(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
             zero_infinity=False):
        how = reduction_of(None, None, reduction)
        if len(log_probs.shape) not in (2, 3):
            raise RuntimeError(f"log_probs is expected to be 2D or 3D, got {len(log_probs.shape)}D")
        shape = tuple(log_probs.shape[1:-1]) if how == "none" else ()
        return Spec(shape, log_probs.dtype, device_of((log_probs, targets)))

    def decomp(F, log_probs, targets, input_lengths, target_lengths, blank, reduction,
               zero_infinity):
        single = log_probs.ndim == 2
        if single:
            log_probs = F.unsqueeze(log_probs, 1)
            input_lengths, target_lengths = (_one(F, v) for v in (input_lengths, target_lengths))
        rows = F.ctc_rows(log_probs, targets, input_lengths, target_lengths, blank,
                          zero_infinity)[0]
        if reduction == "mean":
            if isinstance(target_lengths, (list, tuple)):
                total = None
                for i, n in enumerate(target_lengths):
                    part = F.select(rows, 0, i) / max(n, 1)
                    total = part if total is None else total + part
                return total / len(target_lengths)
            return F.mean(rows / F.clamp_min(F.to_dtype(target_lengths, rows.dtype), 1.0))
        if reduction == "sum":
            return F.sum(rows)
        return F.squeeze(rows, 0) if single else rows

    def samples(s):
        x = s.f(6, 3, 5, dtype=dt.float32)
        x = x - numpy.log(numpy.exp(x).sum(-1, keepdims=True))
        targets = s.i(3, 2, low=1, high=5)
        for reduction in ("none", "mean", "sum"):
            yield s(x, targets, [6, 5, 6], [2, 2, 1], reduction=reduction)
        yield s(x, targets, numpy.array([6, 5, 1]), numpy.array([2, 2, 2]), zero_infinity=True)
        yield s(x, numpy.array([[1, 1], [2, 2], [3, 3]]), [6, 2, 3], [2, 2, 2], reduction="none")
        yield s(x[:, 0], targets[0], 6, 2)._replace(parity=False)


def _one(F, length):
    """The length of a single sequence as that of a batch of one."""
    if isinstance(length, int):
        return [length]
    return F.reshape(length, (1,)) if hasattr(length, "shape") else list(length)

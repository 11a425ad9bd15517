"""Scaled dot-product attention: softmax(q k^T * scale + mask) v, without keeping the probabilities.

The forward keeps the logarithm of each row's sum (`lse`), from which the backward makes the
probabilities again (Dao et al., "FlashAttention", 2022). The numpy kernels work on blocks that fit
the cache; dropout masks come from the counter of the call, indexed by the element of the whole [..,
l, s]. A row with everything masked gives zeros. """

from __future__ import annotations

import math

import numpy

from lehr.base import dtype as dt
from lehr.base import philox
from lehr.ops import layout as place
from lehr.ops import rule
from lehr.ops.contract import cast, multiplied
from lehr.ops.random import KEY
from lehr.ops.registry import EXTERN, op
from lehr.ops.rule import Spec, device_of, same

BLOCK = 1 << 17  # elements of a block of scores
ROWS = 256  # rows of a block under a causal mask, so that columns to the right can be left out


def _batch(q, k, v, mask=None):
    """The broadcast batch dimensions."""
    shapes = [tuple(t.shape[:-2]) for t in (q, k, v)]
    if mask is not None and len(mask.shape) > 2:
        shapes.append(tuple(mask.shape[:-2]))
    return rule.broadcast(*shapes)


# numpy kernels


def _blocks(batch, rows, columns, causal):
    """(index of leading batch dimensions, first row, last row, columns) of every block."""
    split, held = len(batch), 1
    while split and held * batch[split - 1] * rows * columns <= BLOCK:
        split -= 1
        held *= batch[split]
    step = max(1, min(ROWS if causal else rows, BLOCK // max(columns, 1)))
    for lead in numpy.ndindex(*batch[:split]):
        for low in range(0, rows, step):
            high = min(low + step, rows)
            yield lead, low, high, min(columns, high) if causal else columns


def _keep(dtype, p, seed, offset, batch, rows, columns, lead, low, high, width):
    """The scaled dropout mask of one block, or None."""
    if not p:
        return None
    if p >= 1:
        return numpy.zeros((), dtype)
    inner = batch[len(lead):]
    first = int(numpy.ravel_multi_index(lead, batch[: len(lead)])) if lead else 0
    made = numpy.empty((math.prod(inner), high - low, width), dtype)
    limit = numpy.uint32(math.ceil((1 - p) * 2.0 ** 24))
    for i in range(len(made)):
        start = (first * len(made) + i) * rows * columns + low * columns
        bits = philox.words(int(seed) & KEY, int(offset) & KEY, (high - low) * columns, start)
        made[i] = (bits.reshape(-1, columns)[:, :width] >> numpy.uint32(8)) < limit
    made *= dtype.type(1 / (1 - p))
    return made.reshape(*inner, high - low, width)


def _scores(q, k, mask, scale, causal, lead, low, high, width):
    """q k^T * scale with both masks, for one block."""
    np = numpy
    s = multiplied(q[lead][..., low:high, :] * q.dtype.type(scale),
                  k[lead][..., :width, :].swapaxes(-1, -2))
    if mask is not None:
        part = mask[lead][..., low:high, :width]
        if mask.dtype == bool:
            np.copyto(s, -np.inf, where=~part)
        else:
            s += part
    if causal and width > low + 1:
        hidden = np.arange(width) > np.arange(low, high)[:, None]
        np.copyto(s, -np.inf, where=hidden)
    return s


def _expanded(np, batch, *tensors):
    return [None if t is None else np.broadcast_to(t, (*batch, *t.shape[-2:])) for t in tensors]


def _mask(np, mask, rows, columns):
    if mask is None:
        return None
    return np.broadcast_to(mask, (*mask.shape[:-2], rows, columns))


def forward(np, q, k, v, mask, scale, causal, p, seed, offset):
    batch = _batch(q, k, v, mask)
    rows, columns = q.shape[-2], k.shape[-2]
    shape = (*batch, rows, v.shape[-1])
    out = np.zeros_like(q) if shape == q.shape else np.zeros(shape, q.dtype)
    q, k, v, mask = _expanded(np, batch, q, k, v, _mask(np, mask, rows, columns))
    lse = np.full((*batch, rows), np.inf, q.dtype)
    if not out.size or not columns:
        return out, lse
    for lead, low, high, width in _blocks(batch, rows, columns, causal):
        s = _scores(q, k, mask, scale, causal, lead, low, high, width)
        top = s.max(-1, keepdims=True)
        top[np.isneginf(top)] = 0
        s -= top
        np.exp(s, out=s)
        total = s.sum(-1, keepdims=True)
        keep = _keep(q.dtype, p, seed, offset, batch, rows, columns, lead, low, high, width)
        made = multiplied(s if keep is None else s * keep, v[lead][..., :width, :])
        none = total == 0
        total[none] = 1
        made /= total
        out[lead][..., low:high, :] = made
        total = np.log(total)
        total += top
        total[none] = np.inf
        lse[lead][..., low:high] = total[..., 0]
    return out, lse


def backward(np, g, q, k, v, out, lse, rise, mask, scale, causal, p, seed, offset):
    batch = tuple(lse.shape[:-1])
    rows, columns = q.shape[-2], k.shape[-2]
    q, k, v, mask = _expanded(np, batch, q, k, v, _mask(np, mask, rows, columns))
    dq, dk, dv = (np.zeros((*batch, *t.shape[-2:]), q.dtype) for t in (q, k, v))
    if not g.size or not columns:
        return dq, dk, dv
    delta = (g * out).sum(-1, keepdims=True)
    delta = delta if rise is None else delta - rise[..., None]
    for lead, low, high, width in _blocks(batch, rows, columns, causal):
        s = _scores(q, k, mask, scale, causal, lead, low, high, width)
        s -= lse[lead][..., low:high, None]
        np.exp(s, out=s)
        keep = _keep(q.dtype, p, seed, offset, batch, rows, columns, lead, low, high, width)
        up = g[lead][..., low:high, :]
        dv[lead][..., :width, :] += multiplied((s if keep is None else s * keep).swapaxes(-1, -2),
                                              up)
        ds = multiplied(up, v[lead][..., :width, :].swapaxes(-1, -2))
        if keep is not None:
            ds *= keep
        ds -= delta[lead][..., low:high, :]
        ds *= s
        ds *= q.dtype.type(scale)
        dq[lead][..., low:high, :] = multiplied(ds, k[lead][..., :width, :])
        dk[lead][..., :width, :] += multiplied(ds.swapaxes(-1, -2), q[lead][..., low:high, :])
    return dq, dk, dv


# Ops


def _rule(q, k, v, mask, scale, causal, p, seed=0, offset=0):
    rule.check_alike("attention", q, k, v)
    batch = _batch(q, k, v, mask)
    if not same(q.shape[-1], k.shape[-1]):
        raise RuntimeError(f"query and key must have the same last size, got {list(q.shape)} and "
                           f"{list(k.shape)}")
    if not same(k.shape[-2], v.shape[-2]):
        raise RuntimeError("key and value must have the same sequence length, got "
                           f"{list(k.shape)} and {list(v.shape)}")
    want = (q.shape[-2], k.shape[-2])
    if mask is not None and rule.broadcast(tuple(mask.shape[-2:]), want) != want:
        raise RuntimeError(f"attn_mask {list(mask.shape)} does not broadcast to the scores "
                           f"{[*batch, *want]}")
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    device = device_of((q, k, v, mask))
    return (Spec((*batch, q.shape[-2], v.shape[-1]), q.dtype, device),
            Spec((*batch, q.shape[-2]), q.dtype.wide, device))


def _masked(F, s, mask, causal):
    """Scores with both masks."""
    if mask is not None:
        if mask.dtype is dt.bool_:
            s = F.where(mask, s, float("-inf"))
        else:
            s = s + cast(F, mask, s.dtype)
    if causal:
        row = F.unsqueeze(F.arange(s.shape[-2], device=s.device), 1)
        s = F.where(F.le(F.arange(s.shape[-1], device=s.device), row), s, float("-inf"))
    return s


def _product(F, a, b):
    """a @ b of broadcast batches, in float32 for half precision."""
    return F.matmul(a, b, out_dtype=a.dtype.wide)


def _drop(F, x, p, seed, offset):
    """x times the scaled dropout mask."""
    return x if not p else F.dropout(x, p, seed, offset)


def _layout(spec, q, *rest):
    """The result is laid out as the query (so heads that were split off can be joined by a view).
    """
    if tuple(spec.shape) == tuple(q.shape):
        return place.preserve(q.shape, q.strides)
    return place.contiguous(spec.shape)


@op("attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, "
    "causal: bool, p: float, seed: Scalar = 0, offset: Scalar = 0) -> tuple[Tensor, Tensor]")
class attention:
    """(out [.., l, ev], lse [.., l]) of query [.., l, e], key [.., s, e], value [.., s, ev].

    Batch dimensions broadcast. `mask` broadcasts to [.., l, s]: bool (True takes part) or added.
    `causal` hides columns above the diagonal from the top left. `p`: dropout of the probabilities.
    """

    kind, rule, layout, where = EXTERN, _rule, _layout, ""
    tolerance = {"float32": (1e-5, 1e-5), "float64": (1e-12, 1e-12), "float16": (1e-2, 5e-3),
                 # the probabilities are rounded before the second product
                 "bfloat16": (6e-2, 3e-2)}

    eager = forward

    def decomp(F, q, k, v, mask, scale, causal, p, seed, offset):
        if isinstance(k.shape[-2], int) and k.shape[-2] == 0:
            shape = (*_batch(q, k, v, mask), q.shape[-2])
            return (F.full((*shape, v.shape[-1]), 0.0, dtype=q.dtype, device=q.device),
                    F.full(shape, float("inf"), dtype=q.dtype.wide, device=q.device))
        s = _masked(F, _product(F, q, F.transpose(k, -2, -1)) * scale, mask, causal)
        top = F.amax(s, -1, True)
        top = F.where(top == float("-inf"), 0.0, top)
        e = F.exp(s - top)
        total = F.sum(e, -1, True)
        none = total == 0
        total = F.where(none, 1.0, total)
        probs = _drop(F, e / total, p, seed, offset)
        lse = F.where(none, float("inf"), F.log(total) + top)
        return F.matmul(cast(F, probs, v.dtype), v), F.squeeze(lse, -1)

    def vjp(F, g, out, q, k, v, mask, scale, causal, p, seed, offset):
        y, lse = out
        gy, rise = g
        made = []

        def given():  # only the second result may have a gradient
            return F.full(y.shape, 0.0, dtype=y.dtype, device=y.device) if gy is None else gy

        def part(i):
            if not made:
                made.extend(F.attention_grad(given(), q, k, v, y, lse, rise, mask, scale, causal,
                                             p, seed,
                                             offset))
            return made[i]

        def of_mask():
            if mask is None or mask.dtype is dt.bool_:
                return None
            return _score_grad(F, given(), q, k, v, y, lse, rise, mask, scale, causal, p, seed,
                               offset)[0]
        return lambda: part(0), lambda: part(1), lambda: part(2), of_mask

    def samples(s):
        q, k, v = s.f(2, 3, 5, 4), s.f(2, 3, 6, 4), s.f(2, 3, 6, 7)
        yield s(q, k, v, None, 0.5, False, 0.0)
        yield s(q, k, v, s.b(5, 6), 0.5, False, 0.0)
        yield s(q, k, v, s.f(2, 1, 5, 6), 0.25, False, 0.0)
        yield s(q, k, v, None, 0.5, True, 0.0)
        yield s(s.f(2, 2, 3, 5, 4), s.f(2, 1, 5, 4), s.f(2, 1, 5, 4), s.b(1, 5), 0.5, True, 0.0)
        yield s(q, k, v, None, 0.5, False, 0.25, 7, 11)
        yield s(q, k, v, None, 0.5, True, 0.25, 7, 11)
        yield s(s.f(5, 4), s.f(0, 4), s.f(0, 4), None, 0.5, False, 0.0)
        yield s.raises(RuntimeError, q, v, k, None, 0.5, False, 0.0)
    dtypes = "float half"


def _score_grad(F, g, q, k, v, out, lse, rise, mask, scale, causal, p, seed, offset):
    """Gradient of the scores, and the probabilities after dropout; in float32 for half precision.
    """
    wide = q.dtype.wide
    s = _masked(F, _product(F, q, F.transpose(k, -2, -1)) * scale, mask, causal)
    probs = F.exp(s - F.unsqueeze(lse, -1))
    dp = _drop(F, _product(F, g, F.transpose(v, -2, -1)), p, seed, offset)
    delta = F.sum(cast(F, g, wide) * cast(F, out, wide), -1, True)
    delta = delta if rise is None else delta - F.unsqueeze(rise, -1)
    return probs * (dp - delta), _drop(F, probs, p, seed, offset)


@op("attention_grad(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: "
    "Tensor, rise: Tensor | None, mask: Tensor | None, scale: float, causal: bool, p: float, "
    "seed: Scalar = 0, offset: Scalar = 0) -> tuple[Tensor, Tensor, Tensor]")
class attention_grad:
    """Gradients of `attention`'s query, key and value, over the broadcast batch, from those of its
    results (`grad` of out, `rise` of lse)."""

    kind, where, tolerance = EXTERN, "", attention.tolerance
    eager = backward

    def rule(g, q, k, v, out, lse, rise, mask, scale, causal, p, seed=0, offset=0):
        rule.check_alike("attention_backward", q, k, v, g, out)
        rule.check_floating("attention_backward", lse)
        batch, device = tuple(lse.shape[:-1]), device_of((g, q, k, v))
        return tuple(Spec((*batch, *t.shape[-2:]), t.dtype, device) for t in (q, k, v))

    def decomp(F, g, q, k, v, out, lse, rise, mask, scale, causal, p, seed, offset):
        ds, probs = _score_grad(F, g, q, k, v, out, lse, rise, mask, scale, causal, p, seed, offset)
        ds = cast(F, ds * scale, q.dtype)
        return (F.matmul(ds, k), F.matmul(F.transpose(ds, -2, -1), q),
                F.matmul(F.transpose(cast(F, probs, g.dtype), -2, -1), g))

    def samples(s):
        q, k, v, g = s.f(2, 3, 5, 4), s.f(2, 3, 6, 4), s.f(2, 3, 6, 7), s.f(2, 3, 5, 7)
        for mask, causal, p in ((None, False, 0.0), (s.b(5, 6), True, 0.0), (None, False, 0.25)):
            q_, k_, v_ = (t.astype(numpy.float32) for t in (q, k, v))
            y, lse = forward(numpy, q_, k_, v_, mask, 0.5, causal, p, 7, 11)
            yield s(g, q, k, v, y.astype(q.dtype), lse.astype(s.floating.wide.np), None, mask, 0.5,
                    causal,
                    p, 7, 11)
    dtypes = "float half"


def _sdpa_rule(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
               enable_gqa=False, seed=None, offset=0):
    if min(len(t.shape) for t in (query, key, value)) < 2:
        raise RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, "
                           f"but got query.dim: {len(query.shape)} key.dim: {len(key.shape)} and "
                           f"value.dim: {len(value.shape)} instead.")
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError("Expected query, key, and value to have the same dtype, but got "
                           f"query.dtype: {query.dtype} key.dtype: {key.dtype} and value.dtype: "
                           f"{value.dtype} instead.")
    rule.check_floating("scaled_dot_product_attention", query)
    if attn_mask is not None and attn_mask.dtype not in (dt.bool_, query.dtype, dt.float32):
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query "
                           f"dtype, but got attn_mask.dtype: {attn_mask.dtype} and  query.dtype: "
                           f"{query.dtype} instead.")
    if dropout_p and seed is None:
        raise RuntimeError("scaled_dot_product_attention with dropout needs the caller's seed "
                           "and offset")
    if enable_gqa:
        heads, shared = query.shape[-3], key.shape[-3]
        if isinstance(heads, int) and isinstance(shared, int) and heads % shared:
            raise RuntimeError("Number of heads in key and value must divide the number of heads "
                               f"in query, got {heads} and {shared}")
        batch = query.shape[:-2]
    else:
        batch = _rule(query, key, value, attn_mask, 1.0, is_causal, dropout_p)[0].shape[:-2]
    return Spec((*batch, query.shape[-2], value.shape[-1]), query.dtype,
                device_of((query, key, value)))


@op("scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | "
    "None = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, "
    "enable_gqa: bool = False, *, seed: Scalar | None = None, offset: Scalar = 0) -> Tensor")
class scaled_dot_product_attention:
    """softmax(query key^T * scale + attn_mask) value; `scale` is 1 / sqrt(e) unless given.

    query [.., l, e], key [.., s, e], value [.., s, ev]. `enable_gqa`: groups of query heads
    (dimension -3) share a key head. Dropout draws from `(seed, offset)`.
    """

    rule, where, tolerance = _sdpa_rule, "nn", attention.tolerance

    def decomp(F, q, k, v, mask, p, causal, scale, gqa, seed, offset):
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        seed = 0 if seed is None else seed
        if not gqa or (isinstance(q.shape[-3], int) and q.shape[-3] == k.shape[-3]):
            return F.attention(q, k, v, mask, scale, causal, p, seed, offset)[0]
        shared = k.shape[-3]
        grouped = F.reshape(q, (*q.shape[:-3], shared, q.shape[-3] // shared, *q.shape[-2:]))
        if mask is not None and mask.ndim > 2:
            if same(mask.shape[-3], 1):
                mask = F.unsqueeze(mask, -3)
            else:
                mask = F.reshape(mask, (*mask.shape[:-3], *grouped.shape[-4:-2], *mask.shape[-2:]))
        k, v = F.unsqueeze(k, -3), F.unsqueeze(v, -3)
        y = F.attention(grouped, k, v, mask, scale, causal, p, seed, offset)[0]
        return F.reshape(y, (*q.shape[:-1], v.shape[-1]))

    def samples(s):
        q, k, v = s.f(2, 3, 5, 4), s.f(2, 3, 6, 4), s.f(2, 3, 6, 7)
        yield s(q, k, v)
        yield s(q, k, v, is_causal=True)
        yield s(q, k, v, s.b(5, 6), scale=0.3)
        yield s(q, k, v, s.f(2, 1, 5, 6))
        yield s(q[0], k[0], v[0])
        yield s(q[0, 0], k[0, 0], v[0, 0])
        yield s(s.f(2, 4, 5, 4), s.f(2, 2, 6, 4), s.f(2, 2, 6, 4), enable_gqa=True)
        yield s(s.f(2, 4, 5, 4), s.f(2, 2, 5, 4), s.f(2, 2, 5, 4), s.b(2, 4, 5, 5), enable_gqa=True)
        yield s.raises(RuntimeError, s.f(4), k, v)
        yield s.raises(RuntimeError, q, k, v.astype(bool))
        yield s.raises(RuntimeError, s.f(2, 4, 5, 4), k, v)
        yield s.raises(RuntimeError, q, k, v, dropout_p=0.5, parity=False)
    dtypes = "float half"

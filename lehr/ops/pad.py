"""Padding: with a constant, by reflection, by the nearest element, or periodically."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lehr.base.proof import decide
from lehr.base.sym import maximum, minimum
from lehr.ops import layout
from lehr.ops.registry import COMPOSITE, INDEX, VIEW, op
from lehr.ops.rule import Shape, Size, Spec
from lehr.ops.slice import put
from lehr.ops.view import like


def pairs(pad: Sequence[Size], ndim: int, name: str = "pad") -> list[tuple[Size, Size]]:
    """(before, after) of every dimension; `pad` lists pairs from the last dimension backwards."""
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * ndim:
        raise RuntimeError("Length of pad should be no more than twice the number of dimensions of "
                           f"the input. Pad length is {len(pad)} while the input has {ndim} "
                           "dimensions.")
    out: list[tuple[Size, Size]] = [(0, 0)] * ndim
    for i in range(len(pad) // 2):
        out[ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return out


def _padded(x: Any, pad: Sequence[Size]) -> Shape:
    shape = []
    for d, (n, (a, b)) in enumerate(zip(x.shape, pairs(pad, len(x.shape)), strict=True)):
        if decide(n + a + b, "<", 0):
            raise RuntimeError(f"The input size {n}, plus negative padding {a} and {b} resulted in "
                               "a negative output size, which is invalid. Check dimension "
                               f"{d} of your input.")
        shape.append(n + a + b)
    return tuple(shape)


def _ends(n: Size, before: Size, after: Size) -> tuple[slice, slice]:
    """Which part of a result's dimension comes from which part of the input's."""
    return (slice(max(before, 0), max(n + before + min(after, 0), max(before, 0))),
            slice(max(-before, 0), max(n + min(after, 0), max(-before, 0))))


def _pad_layout(spec: Spec, x: Any, pad: Sequence[Size], *rest: Any) -> Shape:
    if all(isinstance(n, int) and n <= 0 for n in pad):  # a clone of a narrower view
        return layout.preserve(tuple(spec.shape), tuple(x.strides))
    return layout.suggested(spec, x)


@op("constant_pad_nd(input: Tensor, pad: list[int], value: Scalar = 0) -> Tensor")
class constant_pad_nd:
    """`value` around the tensor; negative widths cut off. `pad`: pairs from the last dimension."""

    kind, layout, exact, where = INDEX, _pad_layout, True, "function"

    def rule(x: Any, pad: Any, value: Any) -> Spec:
        return like(x, _padded(x, pad))

    def eager(np: Any, x: Any, pad: Any, value: Any) -> Any:
        ends = [_ends(n, *p) for n, p in zip(x.shape, pairs(pad, x.ndim), strict=True)]
        shape = [n + a + b for n, (a, b) in zip(x.shape, pairs(pad, x.ndim), strict=True)]
        out = np.full(shape, np.asarray(value).astype(x.dtype), x.dtype)
        out[tuple(to for to, _ in ends)] = x[tuple(frm for _, frm in ends)]
        return out

    def lower(L: Any, idx: Any, x: Any, pad: Any, value: Any) -> Any:
        at = tuple(i - a for i, (a, _) in zip(idx, pairs(pad, len(idx)), strict=True))
        limits = tuple((i, 0, n) for i, n, p in zip(at, x.shape, pairs(pad, len(idx)), strict=True)
                       if p != (0, 0))
        if not limits:
            return L.at(x, at)
        return L.at(x, at, mask=L.inside(limits), other=L.const(value, x.dtype))

    def vjp(F: Any, g: Any, out: Any, x: Any, pad: Any, value: Any) -> Any:
        return F.constant_pad_nd(g, tuple(-n for n in pad))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), (1, 2))
        yield s(s.any(2, 3), (1, 0, 0, 2), 3)
        yield s(s.any(2, 5), (-1, -2))
        yield s(s.any(2, 3, 4), (0, 0, -1, 2))
        yield s(s.any(2, 3), ())
        yield s(s.any(0, 3), (1, 1, 1, 1), 1)
        yield s.raises(RuntimeError, s.any(2, 3), (1,), match="even")
        yield s.raises(RuntimeError, s.any(2), (1, 1, 1, 1), match="no more than twice")
        yield s.raises(RuntimeError, s.any(2, 3), (-2, -2), match="negative output size")


# Mode -> which of n elements stands at place j (may be negative): on `Sym`s, on values.
PLACES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reflect": (lambda j, n: minimum(maximum(j, -j), 2 * (n - 1) - maximum(j, -j)),
                lambda F, j, n: F.minimum(F.abs(j), 2 * (n - 1) - F.abs(j))),
    "replicate": (lambda j, n: maximum(0, minimum(j, n - 1)),
                  lambda F, j, n: F.clamp(j, 0, n - 1)),
    "circular": (lambda j, n: (j + n) % n,
                 lambda F, j, n: F.remainder(j, n)),
}


def _checked(x: Any, pad: Sequence[Size], mode: str) -> Shape:
    """The shape of a padding other than with a constant."""
    count, ndim = len(pad) // 2, len(x.shape)
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if count not in (1, 2, 3) or ndim not in (count + 1, count + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor. Supported for "
            f"mode {mode!r}: 1, 2 or 3 last dimensions of a tensor with one or two more dimensions")
    for d, (n, widths) in enumerate(zip(x.shape, pairs(pad, ndim), strict=True)):
        for width in widths:
            if mode == "reflect" and width != 0 and decide(width, ">=", n):
                raise RuntimeError(
                    "Argument #4: Padding size should be less than the corresponding input "
                    f"dimension, but got: padding ({', '.join(map(str, widths))}) at dimension {d} "
                    f"of input {list(x.shape)}")
            if mode == "circular" and width != 0 and decide(width, ">", n):
                raise RuntimeError("Padding value causes wrapping around more than once: padding "
                                   f"{widths} at dimension {d} of input {list(x.shape)}")
        if mode == "replicate" and widths != (0, 0) and decide(n, "<=", 0):
            raise RuntimeError(f"Expected non-empty dimension {d} for replicate padding, but got "
                               f"input {list(x.shape)}")
    return _padded(x, pad)


def _places(np: Any, n: int, before: int, after: int, mode: str) -> Any:
    j = np.arange(-before, n + after)
    if mode == "reflect":
        return np.minimum(abs(j), 2 * (n - 1) - abs(j))
    return np.clip(j, 0, n - 1) if mode == "replicate" else j % n


@op("pad_around(input: Tensor, pad: list[int], mode: str) -> Tensor")
class pad_around:
    """Padding from the tensor's own elements: mode "reflect", "replicate" or "circular". Negative
    widths cut off; what is left repeats in mode "circular"."""

    kind, where, exact = VIEW, "", True

    def decomp(F: Any, x: Any, pad: Any, mode: str) -> Any:
        if mode != "circular" or not any(isinstance(n, int) and n < 0 for n in pad):
            return NotImplemented
        return F.pad_around(F.constant_pad_nd(x, [min(n, 0) for n in pad]),
                            [max(n, 0) for n in pad], mode)

    def rule(x: Any, pad: Any, mode: str) -> Spec:
        return like(x, _checked(x, pad, mode))

    def eager(np: Any, x: Any, pad: Any, mode: str) -> Any:
        out = x
        if mode == "circular":
            widths = pairs([min(n, 0) for n in pad], x.ndim)
            out = x[tuple(_ends(n, *p)[1] for n, p in zip(x.shape, widths, strict=True))]
            pad = [max(n, 0) for n in pad]
        for d, (a, b) in enumerate(pairs(pad, x.ndim)):
            if (a, b) != (0, 0):
                out = out.take(_places(np, out.shape[d], a, b, mode), d)
        return out if out.flags.owndata and out is not x else out.copy()

    def lower(L: Any, idx: Any, x: Any, pad: Any, mode: str) -> Any:
        at = PLACES[mode][0]
        return L.at(x, tuple(i if p == (0, 0) else at(i - p[0], n) for i, n, p in
                             zip(idx, x.shape, pairs(pad, len(idx)), strict=True)))

    def vjp(F: Any, g: Any, out: Any, x: Any, pad: Any, mode: str) -> Any:
        at, ndim, cut = PLACES[mode][1], len(x.shape), (0,) * len(pad)
        if mode == "circular":
            cut = tuple(min(n, 0) if isinstance(n, int) else 0 for n in pad)
            pad = tuple(n if c == 0 else 0 for n, c in zip(pad, cut, strict=True))
        kept = [n + a + b for n, (a, b) in zip(x.shape, pairs(cut, ndim), strict=True)]
        for d, (n, (a, b)) in enumerate(zip(kept, pairs(pad, ndim), strict=True)):
            if (a, b) == (0, 0):
                continue
            index = at(F, F.arange(n + a + b, device=g.device) - a, n)
            zeros = F.full(put(g.shape, d, n), 0, dtype=g.dtype, device=g.device)
            g = F.index_add(zeros, d, index, g)
        return F.constant_pad_nd(g, [-n for n in cut]) if any(cut) else g

    def samples(s: Any) -> Any:
        for mode in PLACES:
            yield s(s.any(2, 5), (2, 3), mode)
            yield s(s.any(1, 3, 4, 5), (1, 2, 2, 0), mode)
            yield s(s.any(2, 3, 3, 3), (1, 1, 0, 2, 1, 0), mode)
            yield s(s.any(2, 5), (-1, 2), mode)
        yield s.raises(RuntimeError, s.any(2, 3), (3, 0), "reflect")
        yield s.raises(RuntimeError, s.any(2, 3), (4, 0), "circular")
        yield s.raises(NotImplementedError, s.any(2, 3), (1, 1, 1, 1), "replicate")


def _pad_rule(x: Any, pad: Any, mode: str, value: Any) -> Spec:
    if mode == "constant":
        return like(x, _padded(x, pad))
    if mode not in PLACES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}; known are constant, "
                                  f"{', '.join(PLACES)}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    return like(x, _checked(x, pad, mode))


@op('nn_pad(input: Tensor, pad: list[int], mode: str = "constant", value: Scalar | None = None)'
    " -> Tensor")
class nn_pad:
    """Widths in pairs from the last dimension; mode "constant" | "reflect" | "replicate" |
    "circular"; negative widths cut off."""

    kind, rule, exact, where = COMPOSITE, _pad_rule, True, "nn"

    def decomp(F: Any, x: Any, pad: Any, mode: str, value: Any) -> Any:
        if mode == "constant":
            return F.constant_pad_nd(x, pad, 0 if value is None else value)
        return F.pad_around(x, pad, mode)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), (1, 2))
        yield s(s.any(2, 3), (1, 0, 0, 2), "constant", 3)
        yield s(s.f(2, 5), (2, 3), "reflect")
        yield s(s.f(1, 3, 4, 5), (1, 2, 2, 0), "replicate")
        yield s(s.f(2, 3, 3, 3), (1, 1, 0, 2, 1, 0), "circular")
        yield s(s.f(2, 3, 4, 5), (-1, 2), value=1.5)
        yield s(s.f(2, 3, 4, 5), (-1, 2, 1, -2), "circular")
        yield s(s.f(2, 3, 4, 5), (-1, 2, 1, -2), "reflect")
        yield s.raises(NotImplementedError, s.f(2, 3), (1, 1), "mirror")
        yield s.raises(RuntimeError, s.f(2, 3), (3, 1), "reflect")
        yield s.raises(RuntimeError, s.f(2, 3), (1, 1), "reflect", 1.0)

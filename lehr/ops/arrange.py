"""Copies in another arrangement: flips, rolls, rotations, repetitions. Index maps in graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import layout
from lehr.ops.registry import COMPOSITE, INDEX, VIEW, op
from lehr.ops.rule import Shape, Size, Spec, dim_of, numel
from lehr.ops.slice import put
from lehr.ops.view import like


def ints(value: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)


def unchanged(x: Any, *rest: Any) -> Spec:
    """The type of the first argument."""
    return like(x, x.shape)


def _flipped(dims: Sequence[int], ndim: int) -> frozenset[int]:
    places = [dim_of(d, ndim) for d in dims]
    if len(set(places)) != len(places):
        twice = max(places, key=places.count)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return frozenset(p for p in places if ndim)


def _flip_rule(x: Any, dims: Any) -> Spec:
    _flipped(dims, len(x.shape))
    return like(x, x.shape)


@op("flip(input: Tensor, *dims: int) -> Tensor")
class flip:
    """Dimensions reversed, in new memory."""

    kind, rule, layout, exact = INDEX, _flip_rule, layout.preserved, True

    def eager(np: Any, x: Any, dims: Any) -> Any:
        back = _flipped(dims, x.ndim)
        return x[tuple(slice(None, None, -1 if d in back else 1) for d in range(x.ndim))].copy()

    def lower(L: Any, idx: Any, x: Any, dims: Any) -> Any:
        back = _flipped(dims, len(idx))
        return L.at(x, tuple(x.shape[d] - 1 - i if d in back else i for d, i in enumerate(idx)))

    def vjp(F: Any, g: Any, out: Any, x: Any, dims: Any) -> Any:
        return F.flip(g, dims)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), (0,))
        yield s(s.any(2, 3, 4), (0, -1))
        yield s(s.any(2, 3), ())
        yield s(s.any(), (0,))
        yield s(s.any(0, 3), (0, 1))
        yield s.raises(RuntimeError, s.any(2, 3), (0, -2))
        yield s.raises(IndexError, s.any(2, 3), (2,))


def _at_least(name: str, ndim: int) -> Any:
    def rule(x: Any) -> Spec:
        if len(x.shape) < ndim:
            raise RuntimeError(f"Input must be >= {ndim}-d.")
        return like(x, x.shape)
    return rule


@op("fliplr(input: Tensor) -> Tensor")
class fliplr:
    kind, rule, exact = COMPOSITE, _at_least("fliplr", 2), True

    def decomp(F: Any, x: Any) -> Any:
        return F.flip(x, 1)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s.raises(RuntimeError, s.any(3))


@op("flipud(input: Tensor) -> Tensor")
class flipud:
    kind, rule, exact = COMPOSITE, _at_least("flipud", 1), True

    def decomp(F: Any, x: Any) -> Any:
        return F.flip(x, 0)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s.raises(RuntimeError, s.any())


def _shifts(shape: Shape, shifts: Any, dims: Any) -> list[tuple[int, int]]:
    """(dimension, shift) pairs of a roll over named dimensions."""
    shifts, dims = ints(shifts), ints(dims)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, "
                           f"dims:{len(dims)}")
    if not shape:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return [(dim_of(d, len(shape)), n) for d, n in zip(dims, shifts, strict=True)]


def _rolls_flat(shifts: Any, dims: Any) -> bool:
    return not ints(dims) and len(ints(shifts)) == 1


def _roll_rule(x: Any, shifts: Any, dims: Any) -> Spec:
    if not _rolls_flat(shifts, dims):
        _shifts(tuple(x.shape), shifts, dims)
    return like(x, x.shape)


def _roll_layout(spec: Spec, x: Any, shifts: Any, dims: Any) -> Shape:
    return layout.contiguous(tuple(x.shape)) if not ints(dims) else layout.suggested(spec, x)


@op("roll(input: Tensor, shifts: int | list[int], dims: int | list[int] = ()) -> Tensor")
class roll:
    """Elements moved cyclically along dimensions, or along the flattened tensor without `dims`."""

    kind, rule, layout, exact = INDEX, _roll_rule, _roll_layout, True

    def eager(np: Any, x: Any, shifts: Any, dims: Any) -> Any:
        if not x.ndim or _rolls_flat(shifts, dims):
            return np.roll(x, ints(shifts)[0])
        places = _shifts(x.shape, shifts, dims)
        return np.roll(x, [n for _, n in places], [d for d, _ in places])

    def decomp(F: Any, x: Any, shifts: Any, dims: Any) -> Any:
        if len(x.shape) == 1 or not _rolls_flat(shifts, dims):
            return NotImplemented
        return F.reshape(F.roll(F.reshape(x, -1), shifts, 0), x.shape)

    def lower(L: Any, idx: Any, x: Any, shifts: Any, dims: Any) -> Any:
        at = tuple(idx)
        for d, n in _shifts(tuple(x.shape), shifts, ints(dims) or 0) if idx else ():
            size = x.shape[d]
            if not (isinstance(size, int) and size == 0):
                at = put(at, d, (at[d] + (size - n % size)) % size)
        return L.at(x, at)

    def vjp(F: Any, g: Any, out: Any, x: Any, shifts: Any, dims: Any) -> Any:
        return F.roll(g, tuple(-n for n in ints(shifts)), dims)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 4), 1, 0)
        yield s(s.any(3, 4), -5, -1)
        yield s(s.any(3, 4), (1, 2), (0, 1))
        yield s(s.any(3, 4), (1, 2), (0, 0))
        yield s(s.any(3, 4), 5)
        yield s(s.any(5), 2)
        yield s(s.any(0, 4), 1, 0)
        yield s(s.any(), 1)
        yield s.raises(RuntimeError, s.any(3, 4), (1, 2), 0)
        yield s.raises(IndexError, s.any(3, 4), 1, 2)
        yield s.raises(IndexError, s.any(), 1, 0)


def _turn(ndim: int, k: int, dims: Sequence[int]) -> tuple[int, int]:
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    a, b = dim_of(dims[0], ndim), dim_of(dims[1], ndim)
    if a == b:
        raise RuntimeError("expected rotation dims to be different, but got dim0 = "
                           f"{dims[0]} and dim1 = {dims[1]}")
    return a, b


@op("rot90(input: Tensor, k: int = 1, dims: list[int] = (0, 1)) -> Tensor")
class rot90:
    """k quarter turns from the first towards the second dimension."""

    kind, exact = COMPOSITE, True

    def rule(x: Any, k: int, dims: Any) -> Spec:
        a, b = _turn(len(x.shape), k, dims)
        shape = list(x.shape)
        if k % 2:
            shape[a], shape[b] = shape[b], shape[a]
        return like(x, shape)

    def decomp(F: Any, x: Any, k: int, dims: Any) -> Any:
        a, b = _turn(len(x.shape), k, dims)
        if k % 2 == 0:
            return F.flip(x, (a, b)) if k % 4 else F.clone(x, memory_format="contiguous_format")
        return F.transpose(F.flip(x, (b if k % 4 == 1 else a,)), a, b)

    def samples(s: Any) -> Any:
        for k in (0, 1, 2, 3, -1, 5):
            yield s(s.any(2, 3), k)
        yield s(s.any(2, 3, 4), 1, (1, -1))
        yield s(s.any(2, 3, 4), 1, (2, 0))
        yield s.raises(RuntimeError, s.any(2, 3), 1, (0, 0))
        yield s.raises(RuntimeError, s.any(2), 1)
        yield s.raises(IndexError, s.any(2, 3), 1, (0, 2))


def _repeated(shape: Shape, repeats: Sequence[Size]) -> Shape:
    gap = len(repeats) - len(shape)
    if gap < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of "
                           f"dimensions of tensor: {list(repeats)} for {list(shape)}")
    if any(decide(n, "<", 0) for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats "
                           f"{list(repeats)}")
    return tuple(n * r for n, r in zip((1,) * gap + tuple(shape), repeats, strict=True))


@op("repeat(input: Tensor, *repeats: int) -> Tensor")
class repeat:
    """The tensor laid side by side `repeats[i]` times along dimension i."""

    kind, exact, where = VIEW, True, "method"

    def rule(x: Any, repeats: Any) -> Spec:
        return like(x, _repeated(tuple(x.shape), repeats))

    def eager(np: Any, x: Any, repeats: Any) -> Any:
        _repeated(x.shape, repeats)
        return np.tile(x, repeats) if len(repeats) else x.copy()

    def lower(L: Any, idx: Any, x: Any, repeats: Any) -> Any:
        gap = len(idx) - len(x.shape)
        return L.at(x, tuple(
            i if isinstance(r, int) and r == 1 or isinstance(n, int) and n == 0 else i % n
            for i, n, r in zip(idx[gap:], x.shape, repeats[gap:], strict=True)))

    def vjp(F: Any, g: Any, out: Any, x: Any, repeats: Any) -> Any:
        shape: list[Any] = []
        summed: list[int] = []
        sizes = (1,) * (len(repeats) - len(x.shape)) + tuple(x.shape)
        for n, r in zip(sizes, repeats, strict=True):
            if not (isinstance(r, int) and r == 1):
                summed.append(len(shape))
                shape.append(r)
            shape.append(n)
        whole = F.sum(F.reshape(g, shape), summed) if summed else g
        return F.reshape(whole, x.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), (2, 2))
        yield s(s.any(3), (2, 1, 2))
        yield s(s.any(2, 3), (0, 2))
        yield s(s.any(), (3,))
        yield s(s.any(), ())
        yield s(s.any(0, 2), (2, 2))
        yield s.raises(RuntimeError, s.any(2, 3), (2,))
        yield s.raises(RuntimeError, s.any(2), (-1,))


@op("tile(input: Tensor, *dims: int) -> Tensor")
class tile:
    """`repeat` with missing leading counts taken as 1."""

    kind, exact = COMPOSITE, True

    def rule(x: Any, dims: Any) -> Spec:
        return like(x, _repeated(tuple(x.shape), _filled(x, dims)))

    def decomp(F: Any, x: Any, dims: Any) -> Any:
        return F.repeat(x, _filled(x, dims))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), (2,))
        yield s(s.any(2, 3), (2, 2))
        yield s(s.any(3), (2, 1, 2))
        yield s(s.any(2, 3), ())


def _filled(x: Any, dims: Sequence[Size]) -> tuple[Size, ...]:
    return (1,) * (len(x.shape) - len(dims)) + tuple(dims)


def _interleaved(given: Shape, dim: Any) -> tuple[Shape, int]:
    """(shape of the tensor before the repetition, dimension) of `repeat_interleave`."""
    shape = (numel(given),) if dim is None else tuple(given) or (1,)
    return shape, 0 if dim is None else dim_of(dim, len(shape))


@op("repeat_interleave(input: Tensor, repeats: int, dim: int | None = None, *, "
    "output_size: int | None = None) -> Tensor")
class repeat_interleave:
    """Every element (or slice along `dim`) `repeats` times, next to itself."""

    kind, exact = VIEW, True

    def rule(x: Any, repeats: Any, dim: Any, output_size: Any) -> Spec:
        shape, place = _interleaved(x.shape, dim)
        if isinstance(repeats, int) and repeats < 0:
            raise RuntimeError("repeats has to be non-negative")
        made = shape[place] * repeats
        if isinstance(output_size, int) and isinstance(made, int) and output_size != made:
            raise RuntimeError(f"repeat_interleave: Invalid output_size, expected {made} but got "
                               f"{output_size}")
        return like(x, put(shape, place, made))

    def eager(np: Any, x: Any, repeats: Any, dim: Any, output_size: Any) -> Any:
        return np.repeat(x.reshape(_interleaved(x.shape, dim)[0]), repeats,
                         _interleaved(x.shape, dim)[1])

    def decomp(F: Any, x: Any, repeats: Any, dim: Any, output_size: Any) -> Any:
        shape, place = _interleaved(x.shape, dim)
        if len(shape) == len(x.shape):
            return NotImplemented
        return F.repeat_interleave(F.reshape(x, shape), repeats, place)

    def lower(L: Any, idx: Any, x: Any, repeats: Any, dim: Any, output_size: Any) -> Any:
        place = 0 if dim is None else dim_of(dim, len(idx))
        return L.at(x, put(idx, place, idx[place] // repeats))

    def vjp(F: Any, g: Any, out: Any, x: Any, repeats: Any, dim: Any, output_size: Any) -> Any:
        shape, place = _interleaved(x.shape, dim)
        split = F.reshape(g, (*shape[:place + 1], repeats, *shape[place + 1:]))
        return F.reshape(F.sum(split, place + 1), x.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), 2)
        yield s(s.any(2, 3), 2, 1)
        yield s(s.any(2, 3), 3, -2, output_size=6)
        yield s(s.any(2, 3), 0, 0)
        yield s(s.any(), 3)
        yield s(s.any(0, 3), 2, 0)
        yield s.raises(IndexError, s.any(2, 3), 2, 2)
        yield s.raises(RuntimeError, s.any(2, 3), -1, 0)


@op("repeat_interleave_index(repeats: Tensor, *, output_size: int | None = None) -> Tensor")
class repeat_interleave_index:
    """`i` repeated `repeats[i]` times, for every i."""

    kind, api, where, nondiff, exact = INDEX, "repeat_interleave", "function", True, True
    host, breaks, dtypes = True, "data-dependent-size", "int"

    def rule(repeats: Any, output_size: Any) -> Spec:
        if len(repeats.shape) != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        if repeats.dtype not in (dt.int32, dt.int64):
            raise RuntimeError("repeats has to be Long or Int tensor")
        return Spec((output_size,), repeats.dtype, repeats.device)

    def eager(np: Any, repeats: Any, output_size: Any) -> Any:
        if repeats.size and repeats.min() < 0:
            raise RuntimeError("repeats can not be negative")
        made = np.repeat(np.arange(repeats.size, dtype=repeats.dtype), repeats)
        if output_size is not None and made.size != output_size:
            raise RuntimeError("allocated size does not match required size")
        return made

    def samples(s: Any) -> Any:
        yield s(s.i(4, low=0, high=3))
        yield s(s.i(3, low=0, high=3, dtype=dt.int32))
        yield s(s.i(0))
        yield s.raises(RuntimeError, s.i(2, 2))
        yield s.raises(RuntimeError, s.f(2), parity=False)
        yield s.raises(RuntimeError, s.i(2, low=-2, high=0))


@op("repeat_interleave_tensor(input: Tensor, repeats: Tensor, dim: int | None = None, *, "
    "output_size: int | None = None) -> Tensor")
class repeat_interleave_tensor:
    """Slice i along `dim` `repeats[i]` times (or `repeats[0]` times, where there is only one)."""

    kind, api, exact, breaks = COMPOSITE, "repeat_interleave", True, "data-dependent-size"

    def rule(x: Any, repeats: Any, dim: Any, output_size: Any) -> Spec:
        shape, place = _interleaved(x.shape, dim)
        if len(repeats.shape) > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
        if numel(repeats.shape) != 1 and repeats.shape[0] != shape[place]:
            raise RuntimeError("repeats must have the same size as input along dim, but got "
                               f"repeats.size(0) = {repeats.shape[0]} and input.size({place}) = "
                               f"{shape[place]}")
        return like(x, put(shape, place, output_size))

    def decomp(F: Any, x: Any, repeats: Any, dim: Any, output_size: Any) -> Any:
        shape, place = _interleaved(x.shape, dim)
        counts = F.expand(F.reshape(repeats, -1), (shape[place],))
        index = F.repeat_interleave_index(counts, output_size=output_size)
        return F.index_select(F.reshape(x, shape), place, index)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 2), s.i(3, low=0, high=3), 0)
        yield s(s.any(4), s.i(4, low=0, high=3))
        yield s(s.any(2, 2), s.i(1, low=2, high=3), -1)
        yield s(s.any(2, 2), s.i(low=2, high=3))
        yield s.raises(RuntimeError, s.any(3, 2), s.i(2), 0)
        yield s.raises(RuntimeError, s.any(3, 2), s.i(1, 3), 0)

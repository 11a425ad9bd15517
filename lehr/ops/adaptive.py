"""Pooling over a given number of windows: number i of o over a size s is [i * s // o,
ceil((i + 1) * s / o)).
"""

from __future__ import annotations

import numpy

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops.patch import batched
from lehr.ops.pool import TOLERANCE, along, lowest, position
from lehr.ops.registry import INDEX, op
from lehr.ops.rule import Spec, numel


def _bounds(size, out):
    """numpy: first and last + 1 of every window."""
    i = numpy.arange(out)
    return i * size // out, -(-(i + 1) * size // out)


def _longest(size, out):
    """The size of the largest window (an upper bound where sizes are symbolic)."""
    if isinstance(size, int) and isinstance(out, int):
        first, last = _bounds(size, out)
        return int((last - first).max(initial=0))
    return (size + out - 1) // out + 1


@op("adaptive_sum(input: Tensor, out: list[int]) -> Tensor")
class adaptive_sum:
    """The sums [n, c, *out] over adaptive windows of [n, c, *size].

    Element h is in window i of o over s exactly if i is in window h of s over o, so this is its own
    adjoint with the sizes exchanged.
    """

    kind, where, tolerance = INDEX, "", TOLERANCE

    def rule(x, out):
        return Spec((*x.shape[:2], *out), x.dtype, x.device, x.dtype)

    def eager(np, x, out):
        for axis, o in enumerate(out, 2):
            shape = list(x.shape)
            first, last = _bounds(shape[axis], o)
            shape[axis] = 1
            x = np.concatenate((x, np.zeros(shape, x.dtype)), axis)  # so that an end is an index
            if not x.size or not o:
                shape[axis] = o
                x = np.zeros(shape, x.dtype)
                continue
            x = np.add.reduceat(x, np.stack((first, last), 1).reshape(-1), axis)
            x = x[(slice(None),) * axis + (slice(None, None, 2),)]
        return x

    def lower(L, idx, x, out):
        size = L.shape(x)[2:]

        def inner(k):
            place = [i * s // o + t for i, s, o, t in zip(idx[2:], size, out, k, strict=True)]
            inside = [(h, 0, ((i + 1) * s + o - 1) // o)
                      for h, i, s, o in zip(place, idx[2:], size, out, strict=True)]
            value = L.at(x, (*idx[:2], *place), mask=L.inside(tuple(inside)),
                         other=L.const(0, x.dtype))
            return L.cast(value, x.dtype.wide)
        extents = tuple(_longest(s, o) for s, o in zip(size, out, strict=True))
        return L.cast(L.reduce("sum", extents, inner), x.dtype)

    def vjp(F, g, y, x, out):
        return F.adaptive_sum(g, x.shape[2:])

    def samples(s):
        yield s(s.f(2, 3, 7, 5), [3, 4])
        yield s(s.f(2, 3, 4), [7])
        yield s(s.f(0, 3, 4), [2])
    dtypes = "float half"


def _outputs(name, x, n, output_size):
    """The output sizes with None as the input's."""
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got {list(x.shape)}")
    made = output_size if isinstance(output_size, (list, tuple)) else [output_size] * n
    if len(made) != n:
        raise RuntimeError(f"{name}: output_size must be {n} sizes, got {list(made)}")
    made = [x.shape[d - n] if o is None else o for d, o in enumerate(made)]
    if any(decide(o, "<", 0) for o in made):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0, "
                           f"but got {made}")
    return made


def _divides(size, out):
    return all(isinstance(s, int) and isinstance(o, int) and o and s % o == 0
               for s, o in zip(size, out, strict=True))


def _declare_adaptive(n):
    sizes = "int | None" if n == 1 else "int | list[int | None] | None"

    def adaptive(name):
        def made(x, output_size):
            return Spec((*x.shape[:-n], *_outputs(name, x, n, output_size)), x.dtype, x.device)
        return made

    @op(f"adaptive_avg_pool{n}d(input: Tensor, output_size: {sizes}) -> Tensor")
    class mean:
        """Means over `output_size` windows a dimension; None keeps the size."""

        where, tolerance = "nn function" if n == 1 else "nn", TOLERANCE

        def rule(x, output_size):
            spec = adaptive(f"adaptive_avg_pool{n}d")(x, output_size)
            return spec._replace(compute=x.dtype)

        def decomp(F, x, output_size):
            out, size = _outputs("adaptive_avg_pool", x, n, output_size), x.shape[-n:]
            if _divides(size, out):
                split = [v for s, o in zip(size, out, strict=True) for v in (o, s // o)]
                head = tuple(x.shape[:-n])
                dims = tuple(len(head) + 2 * i + 1 for i in range(n))
                return F.mean(F.reshape(x, (*head, *split)), dims)
            count = None
            for i, (s, o) in enumerate(zip(size, out, strict=True)):
                k = F.arange(o, device=x.device)
                many = F.floor_divide((k + 1) * s + (o - 1), o) - F.floor_divide(k * s, o)
                many = along(F, many, n, i)
                count = many if count is None else count * many
            count = F.to_dtype(count, x.dtype)
            return batched(F, x, n, lambda t: F.adaptive_sum(t, out) / count)

        def samples(s):
            size = (6, 7, 4)[:n]
            yield s(s.f(2, 3, *size), 1)
            yield s(s.f(3, *size), 2)
            yield s(s.f(2, 3, *size), 5)
            if n > 1:
                yield s(s.f(2, 3, *size), [None, 3, 2][:n])
            yield s.raises(RuntimeError, s.f(3), 2)
        dtypes = "float half"

    def indices(F, x, out):
        return batched(F, x, n, lambda t: F.adaptive_max_place(t, out))

    def gathered(F, x, places):
        rows = F.reshape(x, (*x.shape[:-n], numel(x.shape[-n:])))
        flat = F.reshape(places, (*x.shape[:-n], numel(places.shape[-n:])))
        return F.reshape(F.gather(rows, -1, flat), tuple(places.shape))

    @op(f"adaptive_max_pool{n}d(input: Tensor, output_size: {sizes}) -> Tensor")
    class top:
        """Maxima over `output_size` windows a dimension; None keeps the size."""

        where, rule = "nn" if n > 1 else "nn", adaptive(f"adaptive_max_pool{n}d")

        def decomp(F, x, output_size):
            return gathered(F, x, indices(F, x, _outputs("adaptive_max_pool", x, n, output_size)))

        def samples(s):
            size = (6, 7, 4)[:n]
            for output_size in (1, 2, 5):
                yield s(s.f(2, 3, *size, unique=True), output_size)
            yield s(s.f(3, *size, unique=True), 3)
        dtypes = "float half"

    @op(f"adaptive_max_pool{n}d_with_indices(input: Tensor, output_size: {sizes}) -> "
        "tuple[Tensor, Tensor]")
    class indexed:
        """Maxima over adaptive windows, and where they lie in the image (row-major, int64)."""

        where, nondiff = "nn", (1,)

        def rule(x, output_size):
            spec = adaptive(f"adaptive_max_pool{n}d")(x, output_size)
            return spec, spec._replace(dtype=dt.int64)

        def decomp(F, x, output_size):
            places = indices(F, x, _outputs("adaptive_max_pool", x, n, output_size))
            return gathered(F, x, places), places

        def samples(s):
            yield s(s.f(2, 3, *(6, 7, 4)[:n], unique=True), 2)
        dtypes = "float"
    return mean, top, indexed


@op("adaptive_max_place(input: Tensor, out: list[int]) -> Tensor")
class adaptive_max_place:
    """Where the maximum of each adaptive window lies: row-major in the image, the first of equals.
    """

    kind, where, nondiff = INDEX, "", True

    def rule(x, out):
        return Spec((*x.shape[:2], *out), dt.int64, x.device, x.dtype)

    def eager(np, x, out):
        size, n = x.shape[2:], len(out)
        index, valid = [], []
        for i, (s, o) in enumerate(zip(size, out, strict=True)):
            first, last = _bounds(s, o)
            place = first[:, None] + np.arange(_longest(s, o))
            shape = [1] * (2 * n)
            shape[i], shape[n + i] = place.shape
            valid.append((place < last[:, None]).reshape(shape))
            index.append(np.minimum(place, s - 1).reshape(shape))
        values = x[(slice(None), slice(None), *index)]
        inside = valid[0]
        for v in valid[1:]:
            inside = inside & v
        inside = np.broadcast_to(inside, values.shape[2:])
        values = np.where(inside, values, lowest(dt.of_numpy(x.dtype)))
        flat = np.broadcast_to(position(index, size), values.shape[2:])
        flat = flat.reshape(*out, -1)
        values = values.reshape(*x.shape[:2], *out, flat.shape[-1])
        # the first place of a window is inside it, so that a window of nothing but -inf gives that
        best = np.argmax(values, -1)
        return np.take_along_axis(np.broadcast_to(flat, values.shape), best[..., None], -1)[..., 0]

    def lower(L, idx, x, out):
        size = L.shape(x)[2:]
        far = L.const((1 << 63) - 1, dt.int64)

        def inner(k):
            place = [i * s // o + t for i, s, o, t in zip(idx[2:], size, out, k, strict=True)]
            inside = L.inside(tuple((h, 0, ((i + 1) * s + o - 1) // o)
                                    for h, i, s, o in zip(place, idx[2:], size, out, strict=True)))
            value = L.at(x, (*idx[:2], *place), mask=inside,
                         other=L.const(lowest(x.dtype), x.dtype))
            return value, L.select(inside, L.iota(position(place, size), dt.int64), far)
        extents = tuple(_longest(s, o) for s, o in zip(size, out, strict=True))
        return L.reduce("argmax", extents, inner)[1]

    def samples(s):
        yield s(s.any(2, 3, 7, 5), [3, 4])
        yield s(s.f(2, 3, 4), [7])
        yield s(s.f(2, 3, 5) * 0 - float("inf"), [2])
    dtypes = "float half int"


for _n in (1, 2, 3):
    _declare_adaptive(_n)

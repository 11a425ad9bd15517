"""Views that keep every element: reshapes, permutations, expansion, and what is made of them.

In eager mode they share storage (`layout`); in graphs they are index maps (`lower`) that cost
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.base.index import reshape_index
from lehr.ops import layout
from lehr.ops.registry import COMPOSITE, VIEW, Op, op
from lehr.ops.rule import Shape, Size, Spec, dim_of, numel, same


def is_one(size: Size) -> bool:
    return size == 1 if isinstance(size, int) else same(size, 1)


def like(x: Any, shape: Sequence[Size]) -> Spec:
    """A result of `shape` with the dtype and device of `x`."""
    return Spec(tuple(shape), x.dtype, x.device)


def resolve(size: Sequence[Size], count: Size) -> Shape:
    """`size` with a -1 replaced so that it holds `count` elements; RuntimeError where none does."""
    known: Size = 1
    place = None
    for i, n in enumerate(size):
        if not isinstance(n, int) or n >= 0:
            known = known * n
        elif n != -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(size)}")
        elif place is not None:
            raise RuntimeError("only one dimension can be inferred")
        else:
            place = i
    if place is None:
        if not same(known, count):
            raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {count}")
        return tuple(size)
    if isinstance(known, int) and known == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(size)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous")
    if not same(count % known, 0):
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {count}")
    return (*size[:place], count // known, *size[place + 1:])


def _view_rule(x: Any, size: Sequence[Size]) -> Spec:
    return like(x, resolve(size, numel(x.shape)))


def _reshaped(L: Any, idx: Any, x: Any, size: Sequence[Size]) -> Any:
    shape = resolve(size, numel(x.shape))
    return L.at(x, reshape_index(tuple(idx), shape, tuple(x.shape)))


def _view_samples(s: Any) -> Any:
    yield s(s.any(2, 6), (3, 4))
    yield s(s.any(2, 6), (-1, 2, 1))
    yield s(s.any(2, 3, 4), (2, 12))
    yield s(s.any(8, 6), (8, 2, 3))
    yield s(s.any(), (1, 1))
    yield s(s.any(1, 1), ())
    yield s(s.any(0, 3), (3, 0, 2))
    yield s(s.any(3, 0), (-1,))
    yield s.raises(RuntimeError, s.any(2, 3), (4, 2), match="invalid for input of size 6")
    yield s.raises(RuntimeError, s.any(2, 3), (-1, -1), match="only one dimension")
    yield s.raises(RuntimeError, s.any(0, 3), (0, -1), match="ambiguous")


@op("view(input: Tensor, *size: int) -> Tensor")
class view:
    """The same elements in row-major order under another shape, never a copy in eager mode."""

    kind, rule, where, exact, lower = VIEW, _view_rule, "method", True, _reshaped

    def samples(s: Any) -> Any:
        yield s(s.any(2, 6), 3, 4)
        yield s(s.any(3), 3)
        yield from _view_samples(s)

    def layout(x: Any, size: Any) -> Any:
        shape = resolve(size, numel(x.shape))
        strides = layout.view(tuple(x.shape), tuple(x.strides), shape)
        if strides is None:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead. "
                f"Input sizes {list(x.shape)} and strides {list(x.strides)}, view {list(shape)}")
        return shape, strides, x.offset

    def eager(np: Any, x: Any, size: Any) -> Any:
        return x.reshape(resolve(size, x.size))

    def vjp(F: Any, g: Any, out: Any, x: Any, size: Any) -> Any:
        return F.reshape(g, x.shape)

    def inverse(F: Any, base: Any, value: Any, size: Any) -> Any:
        return F.reshape(value, base.shape)


@op("view_copy(input: Tensor, *size: int) -> Tensor")
class view_copy:
    """`view` into new, row-major memory, whatever the layout of the input."""

    kind, rule, where, exact = VIEW, _view_rule, "function", True
    lower, samples = _reshaped, _view_samples

    def eager(np: Any, x: Any, size: Any) -> Any:
        return x.reshape(resolve(size, x.size)).copy()

    def vjp(F: Any, g: Any, out: Any, x: Any, size: Any) -> Any:
        return F.reshape(g, x.shape)


@op("reshape(input: Tensor, *shape: int) -> Tensor")
class reshape:
    """A `view` where the layout allows one, else a row-major copy."""

    kind, rule, exact, samples = COMPOSITE, _view_rule, True, _view_samples

    def decomp(F: Any, x: Any, size: Any) -> Any:
        strides = getattr(x, "strides", None)  # values in graphs have no layout
        shape = resolve(size, numel(x.shape))
        if strides is None or layout.view(tuple(x.shape), tuple(strides), shape) is not None:
            return F.view(x, shape)
        return F.view_copy(x, shape)


@op("view_dtype(input: Tensor, dtype: dtype) -> Tensor")
class view_dtype:
    """The same bytes read as another dtype; the last dimension changes with the item size."""

    kind, api, where, nondiff, exact = VIEW, "view", "method", True, True

    def rule(x: Any, dtype: Any) -> Spec:
        have, want = x.dtype.itemsize, dtype.itemsize
        if have == want:
            return Spec(tuple(x.shape), dtype, x.device)
        if not x.shape:
            raise RuntimeError(f"self.dim() cannot be 0 to view {x.dtype} as {dtype} (different "
                               "element sizes)")
        if not same(x.shape[-1] * have % want, 0):
            raise RuntimeError(
                f"self.size(-1) must be divisible by {want // have} to view {x.dtype} as {dtype} "
                f"(different element sizes), but got {x.shape[-1]}")
        return Spec((*x.shape[:-1], x.shape[-1] * have // want), dtype, x.device)

    def layout(x: Any, dtype: Any) -> Any:
        have, want = x.dtype.itemsize, dtype.itemsize
        if have == want:
            return tuple(x.shape), tuple(x.strides), x.offset
        if not same(x.strides[-1], 1):
            raise RuntimeError(f"self.stride(-1) must be 1 to view {x.dtype} as {dtype} (different "
                               f"element sizes), but got {x.strides[-1]}")
        scaled = [(n, n * have % want) for n in (*x.strides[:-1], x.offset)]
        for n, rest in scaled:
            if not same(rest, 0):
                raise RuntimeError("strides and storage_offset() must be divisible by "
                                   f"{want // have} to view {x.dtype} as {dtype} (different "
                                   f"element sizes), but got {n}")
        *outer, offset = [n * have // want for n, _ in scaled]
        return (*x.shape[:-1], x.shape[-1] * have // want), (*outer, 1), offset

    def eager(np: Any, x: Any, dtype: Any) -> Any:
        return np.ascontiguousarray(x).reshape(x.shape).view(dtype.np)

    def decomp(F: Any, x: Any, dtype: Any) -> Any:
        return x if x.dtype is dtype else NotImplemented

    host = True  # a bit cast has no spelling in the loop IR

    def inverse(F: Any, base: Any, value: Any, dtype: Any) -> Any:
        return F.view_dtype(value, base.dtype)

    def samples(s: Any) -> Any:
        for made in (dt.uint8, dt.int16, dt.float32, dt.int64):
            yield s(s.any(3, 8), made)
        yield s(s.any(), s.dtype)
        yield s.raises(RuntimeError, s.f(dtype=dt.float32), dt.float16, match="cannot be 0")
        yield s.raises(RuntimeError, s.f(3, 3, dtype=dt.float32), dt.float64,
                       match="divisible by 2")


@op("expand(input: Tensor, *size: int) -> Tensor")
class expand:
    """Size-1 dimensions repeated (stride 0), new dimensions in front; -1 keeps a size."""

    kind, where, exact = VIEW, "method", True

    def rule(x: Any, size: Any) -> Spec:
        return like(x, expanded(tuple(x.shape), size))

    def layout(x: Any, size: Any) -> Any:
        shape = expanded(tuple(x.shape), size)
        gap = len(shape) - len(x.shape)
        strides: list[Any] = [0] * len(shape)
        for i in range(len(shape) - 1, -1, -1):
            if i >= gap:
                have = x.shape[i - gap]
                wide = is_one(have) and not isinstance(shape[i], int)   # a symbol may be anything
                kept = have is shape[i] or not wide and same(have, shape[i])
                strides[i] = x.strides[i - gap] if kept else 0
            elif x.shape and is_one(shape[i]):
                strides[i] = shape[i + 1] * strides[i + 1]
        return shape, tuple(strides), x.offset

    def eager(np: Any, x: Any, size: Any) -> Any:
        return np.broadcast_to(x, expanded(x.shape, size))

    def lower(L: Any, idx: Any, x: Any, size: Any) -> Any:
        gap = len(idx) - len(x.shape)
        return L.at(x, tuple(0 if is_one(n) else i
                             for n, i in zip(x.shape, idx[gap:], strict=True)))

    def vjp(F: Any, g: Any, out: Any, x: Any, size: Any) -> Any:
        return g  # the caller sums what broadcasting repeated

    def inverse(F: Any, base: Any, value: Any, size: Any) -> Any:
        if not same(numel(base.shape), numel(value.shape)):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the "
                "operation.")
        return F.reshape(value, base.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 1), (3, 4))
        yield s(s.any(3, 1), (2, -1, 4))
        yield s(s.any(), (2, 2))
        yield s(s.any(1, 3), (1, 1, 3))
        yield s(s.any(1), (0,))
        yield s(s.any(1, 0), (2, -1))
        yield s(s.any(), ())
        yield s.raises(RuntimeError, s.any(2, 3), (2, 4), match="must match the existing size")
        yield s.raises(RuntimeError, s.any(2, 3), (3,), match="number of sizes provided")
        yield s.raises(RuntimeError, s.any(2, 3), (-1, 2, 3))


def expanded(shape: Shape, size: Sequence[Size]) -> Shape:
    """The shape of `expand`."""
    gap = len(size) - len(shape)
    if gap < 0:
        raise RuntimeError(f"expand: the number of sizes provided ({len(size)}) must be greater or "
                           f"equal to the number of dimensions in the tensor ({len(shape)}): sizes "
                           f"{list(size)}, tensor {list(shape)}")
    out = list(size)
    for i, want in enumerate(size):
        have = shape[i - gap] if i >= gap else None
        if isinstance(want, int) and want < 0:
            if want < -1 or have is None:
                raise RuntimeError(f"The expanded size of the tensor ({want}) isn't allowed in a "
                                   f"leading, non-existing dimension {i}")
            out[i] = have
        elif have is not None and have is not want and not is_one(have) and not same(have, want):
            raise RuntimeError(
                f"The expanded size of the tensor ({want}) must match the existing size ({have}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: "
                f"{list(shape)}")
    return tuple(out)


@op("expand_as(input: Tensor, other: Tensor) -> Tensor")
class expand_as:
    kind, where, exact = COMPOSITE, "method", True

    def rule(x: Any, other: Any) -> Spec:
        return like(x, expanded(tuple(x.shape), tuple(other.shape)))

    def decomp(F: Any, x: Any, other: Any) -> Any:
        return F.expand(x, other.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 1), s.f(2, 3, 4))
        yield s.raises(RuntimeError, s.any(3, 2), s.f(3, 4))


@op("broadcast_to(input: Tensor, size: list[int]) -> Tensor")
class broadcast_to:
    kind, exact = COMPOSITE, True

    def rule(x: Any, size: Any) -> Spec:
        return like(x, expanded(tuple(x.shape), size))

    def decomp(F: Any, x: Any, size: Any) -> Any:
        return F.expand(x, size)

    def samples(s: Any) -> Any:
        yield s(s.any(3, 1), (2, 3, 4))
        yield s.raises(RuntimeError, s.any(3, 2), (3, 4))


def order_of(dims: Sequence[int], ndim: int) -> tuple[int, ...]:
    """A permutation made nonnegative; RuntimeError where it is none."""
    if len(dims) != ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = "
            f"{len(dims)}")
    order = tuple(dim_of(d, ndim) for d in dims)
    if len(set(order)) != ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {list(dims)}")
    return order


def inverse_of(order: Sequence[int]) -> tuple[int, ...]:
    back = [0] * len(order)
    for i, d in enumerate(order):
        back[d] = i
    return tuple(back)


@op("permute(input: Tensor, *dims: int) -> Tensor")
class permute:
    """Dimension i of the result is dimension `dims[i]` of the input."""

    kind, exact = VIEW, True

    def rule(x: Any, dims: Any) -> Spec:
        return like(x, [x.shape[d] for d in order_of(dims, len(x.shape))])

    def layout(x: Any, dims: Any) -> Any:
        order = order_of(dims, len(x.shape))
        return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), x.offset

    def eager(np: Any, x: Any, dims: Any) -> Any:
        return x.transpose(order_of(dims, x.ndim))

    def lower(L: Any, idx: Any, x: Any, dims: Any) -> Any:
        return L.at(x, tuple(idx[i] for i in inverse_of(order_of(dims, len(x.shape)))))

    def vjp(F: Any, g: Any, out: Any, x: Any, dims: Any) -> Any:
        return F.permute(g, inverse_of(order_of(dims, len(x.shape))))

    def inverse(F: Any, base: Any, value: Any, dims: Any) -> Any:
        return F.permute(value, inverse_of(order_of(dims, len(base.shape))))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), (2, 0, 1))
        yield s(s.any(2, 3, 4), (-1, 0, 1))
        yield s(s.any(), ())
        yield s(s.any(0, 3), (1, 0))
        yield s.raises(RuntimeError, s.any(2, 3), (0,))
        yield s.raises(RuntimeError, s.any(2, 3), (0, 0))
        yield s.raises(IndexError, s.any(2, 3), (0, 2))


def _swap(ndim: int, dim0: int, dim1: int) -> tuple[int, ...]:
    a, b = dim_of(dim0, ndim), dim_of(dim1, ndim)
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = b, a
    return tuple(order)


@op("transpose(input: Tensor, dim0: int, dim1: int) -> Tensor")
class transpose:
    kind, exact, where = VIEW, True, "function method inplace"
    aliases = ("swapaxes", "swapdims")

    def rule(x: Any, dim0: int, dim1: int) -> Spec:
        return like(x, [x.shape[d] for d in _swap(len(x.shape), dim0, dim1)])

    def layout(x: Any, dim0: int, dim1: int) -> Any:
        order = _swap(len(x.shape), dim0, dim1)
        return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), x.offset

    def eager(np: Any, x: Any, dim0: int, dim1: int) -> Any:
        return x.transpose(_swap(x.ndim, dim0, dim1))

    def decomp(F: Any, x: Any, dim0: int, dim1: int) -> Any:
        return F.permute(x, _swap(len(x.shape), dim0, dim1))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim0: int, dim1: int) -> Any:
        return F.transpose(g, dim0, dim1)

    def inverse(F: Any, base: Any, value: Any, dim0: int, dim1: int) -> Any:
        return F.transpose(value, dim0, dim1)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), 0, -1)
        yield s(s.any(2, 3), 1, 1)
        yield s(s.any(), 0, -1)
        yield s.raises(IndexError, s.any(2, 3), 0, 2)


@op("t(input: Tensor) -> Tensor")
class t:
    kind, exact, where = COMPOSITE, True, "function method inplace"

    def rule(x: Any) -> Spec:
        if len(x.shape) > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is "
                               f"{len(x.shape)}D")
        return like(x, tuple(x.shape)[::-1])

    def decomp(F: Any, x: Any) -> Any:
        return F.permute(x, tuple(range(len(x.shape)))[::-1])

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s(s.any(3))
        yield s(s.any())
        yield s.raises(RuntimeError, s.any(2, 3, 4))


@op("T(input: Tensor) -> Tensor")
class T:
    """All dimensions reversed."""

    kind, exact, where = COMPOSITE, True, "property"

    def rule(x: Any) -> Spec:
        return like(x, tuple(x.shape)[::-1])

    def decomp(F: Any, x: Any) -> Any:
        return F.permute(x, tuple(range(len(x.shape)))[::-1])

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s(s.any(4))


def _matrix(name: str) -> Any:
    def rule(x: Any) -> Spec:
        if len(x.shape) < 2:
            raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of "
                               f"matrices. Got {len(x.shape)}-D tensor.")
        return like(x, (*x.shape[:-2], x.shape[-1], x.shape[-2]))
    return rule


def _matrix_samples(s: Any) -> Any:
    yield s(s.any(2, 3))
    yield s(s.any(4, 2, 3))
    yield s.raises(RuntimeError, s.any(3))


@op("mT(input: Tensor) -> Tensor")
class mT:
    """The last two dimensions swapped."""

    kind, rule, exact, where, samples = COMPOSITE, _matrix("mT"), True, "property", _matrix_samples

    def decomp(F: Any, x: Any) -> Any:
        return F.transpose(x, -2, -1)


@op("mH(input: Tensor) -> Tensor")
class mH:
    """The last two dimensions swapped, complex numbers conjugated."""

    kind, rule, exact, where, samples = COMPOSITE, _matrix("mH"), True, "property", _matrix_samples

    def decomp(F: Any, x: Any) -> Any:
        swapped = F.transpose(x, -2, -1)
        return F.conj(swapped) if x.dtype.is_complex else swapped


@op("adjoint(input: Tensor) -> Tensor")
class adjoint:
    """`mH` as a function and a method."""

    kind, rule, exact, samples = COMPOSITE, _matrix("mH"), True, _matrix_samples

    def decomp(F: Any, x: Any) -> Any:
        return F.mH(x)


@op("H(input: Tensor) -> Tensor")
class H:
    """A matrix transposed and conjugated."""

    kind, exact, where = COMPOSITE, True, "property"

    def rule(x: Any) -> Spec:
        if len(x.shape) not in (0, 2):
            raise RuntimeError("tensor.H is only supported on matrices (2-D tensors). Got "
                               f"{len(x.shape)}-D tensor.")
        return like(x, tuple(x.shape)[::-1])

    def decomp(F: Any, x: Any) -> Any:
        return F.mH(x) if len(x.shape) == 2 else x

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s.raises(RuntimeError, s.any(3))


def _moved(ndim: int, source: Any, destination: Any) -> tuple[int, ...]:
    source = (source,) if isinstance(source, int) else tuple(source)
    destination = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(source) != len(destination):
        raise RuntimeError("movedim: Invalid source or destination dims: source ("
                           f"{list(source)} dims) should contain the same number of dims as "
                           f"destination ({list(destination)} dims)")
    source = tuple(dim_of(d, ndim) for d in source)
    destination = tuple(dim_of(d, ndim) for d in destination)
    for name, dims in (("source", source), ("destination", destination)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    if not ndim:
        return ()
    rest = iter(d for d in range(ndim) if d not in source)
    at = dict(zip(destination, source, strict=True))
    return tuple(at[i] if i in at else next(rest) for i in range(ndim))


@op("movedim(input: Tensor, source: int | list[int], destination: int | list[int]) -> Tensor")
class movedim:
    kind, exact, aliases = COMPOSITE, True, ("moveaxis",)

    def rule(x: Any, source: Any, destination: Any) -> Spec:
        return like(x, [x.shape[d] for d in _moved(len(x.shape), source, destination)])

    def decomp(F: Any, x: Any, source: Any, destination: Any) -> Any:
        return F.permute(x, _moved(len(x.shape), source, destination))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), 0, -1)
        yield s(s.any(2, 3, 4), (0, 1), (2, 0))
        yield s(s.any(), 0, 0)
        yield s.raises(RuntimeError, s.any(2, 3), (0, 0), (0, 1))
        yield s.raises(RuntimeError, s.any(2, 3), (0,), (0, 1))
        yield s.raises(IndexError, s.any(2, 3), 2, 0)


@op("unsqueeze(input: Tensor, dim: int) -> Tensor")
class unsqueeze:
    """A dimension of size 1 put in at `dim`."""

    kind, exact, where = VIEW, True, "function method inplace"

    def rule(x: Any, dim: int) -> Spec:
        place = dim_of(dim, len(x.shape) + 1)
        return like(x, (*x.shape[:place], 1, *x.shape[place:]))

    def layout(x: Any, dim: int) -> Any:
        place = dim_of(dim, len(x.shape) + 1)
        stride = x.shape[place] * x.strides[place] if place < len(x.shape) else 1
        return ((*x.shape[:place], 1, *x.shape[place:]),
                (*x.strides[:place], stride, *x.strides[place:]), x.offset)

    def eager(np: Any, x: Any, dim: int) -> Any:
        return np.expand_dims(x, dim_of(dim, x.ndim + 1))

    def decomp(F: Any, x: Any, dim: int) -> Any:
        place = dim_of(dim, len(x.shape) + 1)
        return F.view(x, (*x.shape[:place], 1, *x.shape[place:]))

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: int) -> Any:
        return F.squeeze(g, dim)

    def inverse(F: Any, base: Any, value: Any, dim: int) -> Any:
        return F.squeeze(value, dim)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), 0)
        yield s(s.any(2, 3), -1)
        yield s(s.any(2, 3), 1)
        yield s(s.any(), 0)
        yield s(s.any(0), 1)
        yield s.raises(IndexError, s.any(2, 3), 3)


def squeezed(shape: Shape, dim: Any) -> tuple[int, ...]:
    """The dimensions that `squeeze` keeps."""
    ndim = len(shape)
    if dim is None:
        dropped = set(range(ndim))
    else:
        dims = [dim_of(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
        dropped = set(dims)
        if len(dropped) != len(dims):
            raise RuntimeError(f"dim {max(dims, key=dims.count)} appears multiple times in the "
                               "list of dims")
    return tuple(i for i, n in enumerate(shape) if i not in dropped or not is_one(n))


@op("squeeze(input: Tensor, dim: int | list[int] | None = None) -> Tensor")
class squeeze:
    """Dimensions of size 1 dropped: all of them, or those named."""

    kind, exact, where = VIEW, True, "function method inplace"

    def rule(x: Any, dim: Any) -> Spec:
        return like(x, [x.shape[i] for i in squeezed(tuple(x.shape), dim)])

    def layout(x: Any, dim: Any) -> Any:
        kept = squeezed(tuple(x.shape), dim)
        return tuple(x.shape[i] for i in kept), tuple(x.strides[i] for i in kept), x.offset

    def eager(np: Any, x: Any, dim: Any) -> Any:
        return x.reshape([x.shape[i] for i in squeezed(x.shape, dim)])

    def decomp(F: Any, x: Any, dim: Any) -> Any:
        return F.view(x, [x.shape[i] for i in squeezed(tuple(x.shape), dim)])

    def vjp(F: Any, g: Any, out: Any, x: Any, dim: Any) -> Any:
        return F.reshape(g, x.shape)

    def inverse(F: Any, base: Any, value: Any, dim: Any) -> Any:
        return F.reshape(value, base.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 1, 3, 1))
        yield s(s.any(2, 1, 3, 1), 1)
        yield s(s.any(2, 1, 3, 1), 0)
        yield s(s.any(2, 1, 3, 1), (1, -1))
        yield s(s.any(1, 1))
        yield s(s.any(), 0)
        yield s(s.any(1, 0))
        yield s.raises(IndexError, s.any(2, 1), 2)
        yield s.raises(RuntimeError, s.any(2, 1), (1, -1))


def _flat(shape: Shape, start: int, end: int) -> Shape:
    ndim = len(shape)
    first, last = dim_of(start, ndim), dim_of(end, ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim, got "
                           f"{start} and {end}")
    return (*shape[:first], numel(shape[first:last + 1]), *shape[last + 1:])


@op("flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor")
class flatten:
    """Dimensions `start_dim` to `end_dim` (both included) as one; the input itself if it is one."""

    kind, exact = COMPOSITE, True

    def rule(x: Any, start: int, end: int) -> Spec:
        return like(x, _flat(tuple(x.shape), start, end))

    def decomp(F: Any, x: Any, start: int, end: int) -> Any:
        shape = _flat(tuple(x.shape), start, end)
        return x if len(shape) == len(x.shape) else F.reshape(x, shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4))
        yield s(s.any(2, 3, 4), 1)
        yield s(s.any(2, 3, 4), 0, -2)
        yield s(s.any(5), 0, 0)
        yield s(s.any())
        yield s(s.any(2, 0, 3), 1)
        yield s.raises(RuntimeError, s.any(2, 3), 1, 0)
        yield s.raises(IndexError, s.any(2, 3), 2)


@op("ravel(input: Tensor) -> Tensor")
class ravel:
    kind, exact = COMPOSITE, True

    def rule(x: Any) -> Spec:
        return like(x, (numel(x.shape),))

    def decomp(F: Any, x: Any) -> Any:
        return F.reshape(x, -1) if len(x.shape) != 1 else x

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s(s.any())


def _unflat(shape: Shape, dim: int, sizes: Any) -> Shape:
    place = dim_of(dim, len(shape))
    if not len(sizes):
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not shape:
        raise IndexError("unflatten: a 0-d tensor has no dimension to unflatten")
    try:
        made = resolve(sizes, shape[place])
    except RuntimeError:
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size "
                           f"of dim {place} ({shape[place]}) in the input tensor") from None
    return (*shape[:place], *made, *shape[place + 1:])


@op("unflatten(input: Tensor, dim: int, sizes: list[int]) -> Tensor")
class unflatten:
    kind, exact = COMPOSITE, True

    def rule(x: Any, dim: int, sizes: Any) -> Spec:
        return like(x, _unflat(tuple(x.shape), dim, sizes))

    def decomp(F: Any, x: Any, dim: int, sizes: Any) -> Any:
        return F.view(x, _unflat(tuple(x.shape), dim, sizes))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 6), 1, (2, 3))
        yield s(s.any(2, 6), -1, (-1, 2))
        yield s(s.any(4, 3), 0, (2, 2))
        yield s.raises(RuntimeError, s.any(2, 6), 1, (4, 2))
        yield s.raises(IndexError, s.any(2, 6), 2, (4, 2))


@op("view_as(input: Tensor, other: Tensor) -> Tensor")
class view_as:
    kind, exact, where = COMPOSITE, True, "method"

    def rule(x: Any, other: Any) -> Spec:
        return _view_rule(x, tuple(other.shape))

    def decomp(F: Any, x: Any, other: Any) -> Any:
        return F.view(x, other.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 6), s.f(3, 4))
        yield s.raises(RuntimeError, s.any(2, 6), s.f(5))


@op("reshape_as(input: Tensor, other: Tensor) -> Tensor")
class reshape_as:
    kind, exact, where = COMPOSITE, True, "method"

    def rule(x: Any, other: Any) -> Spec:
        return _view_rule(x, tuple(other.shape))

    def decomp(F: Any, x: Any, other: Any) -> Any:
        return F.reshape(x, other.shape)

    def samples(s: Any) -> Any:
        yield s(s.any(2, 6), s.f(3, 4))


@op("detach(input: Tensor) -> Tensor")
class detach:
    """The same storage without a gradient."""

    kind, exact, nondiff, where = VIEW, True, True, "function method inplace"

    def rule(x: Any) -> Spec:
        return like(x, x.shape)

    def layout(x: Any) -> Any:
        return tuple(x.shape), tuple(x.strides), x.offset

    def eager(np: Any, x: Any) -> Any:
        return x

    def lower(L: Any, idx: Any, x: Any) -> Any:
        return L.at(x, tuple(idx))

    def inverse(F: Any, base: Any, value: Any) -> Any:
        return value

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))


@op("alias(input: Tensor) -> Tensor")
class alias:
    """Another tensor on the same storage."""

    kind, exact, where = VIEW, True, ""
    rule, layout, eager, lower = detach.rule, detach.layout, detach.eager, detach.lower
    inverse = detach.inverse

    def vjp(F: Any, g: Any, out: Any, x: Any) -> Any:
        return g

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3))
        yield s(s.any())


@op("t_copy(input: Tensor) -> Tensor")
class t_copy:
    """`t` into new memory."""

    kind, rule, exact, samples, where = COMPOSITE, t.rule, True, t.samples, "function"

    def decomp(F: Any, x: Any) -> Any:
        return F.permute_copy(x, tuple(range(len(x.shape)))[::-1])


def copy_of(source: Any) -> Op:
    """Registers `<name>_copy`: the same index map into new row-major memory."""
    def eager(np: Any, *bound: Any) -> Any:
        return np.array(source.eager(np, *bound), order="C")

    text = source.signature.text.replace(source.name, f"{source.name}_copy", 1)
    fields = {"kind": VIEW, "eager": eager, "exact": True, "where": "function",
              "__doc__": f"`{source.name}` into new memory."}
    shared = ("rule", "lower", "vjp", "decomp", "nondiff", "samples")
    fields |= {name: getattr(source, name) for name in shared}
    return op(text)(type(f"{source.name}_copy", (), fields))


for _source in (expand, permute, transpose, unsqueeze, squeeze, detach, alias):
    copy_of(_source)

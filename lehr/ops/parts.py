"""Functions over ops that return several tensors, or as many as the caller asked for.

Each takes the bound registry `F` and PyTorch's arguments. They are no ops themselves: every part is
a view or an op of its own, so aliasing, gradients and captures need nothing more. `PLACES` says
under which public paths they stand, over ops of that name; `signature_of` gives the parameters
without `F`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import rule
from lehr.ops.rule import Size, broadcast, dim_of, same

Parts = tuple[Any, ...]
iter_range = range  # histogramdd has an argument of that name
FUNCTIONS: dict[str, Callable[..., Any]] = {}
PLACES: dict[str, tuple[str, ...]] = {}
BOTH = ("{}", "Tensor.{}")


def part(*places: str, name: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function under public paths in which `{}` stands for its name."""
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = name or function.__name__
        FUNCTIONS[own] = function
        PLACES[own] = tuple(p.format(own) for p in places)
        return function
    return register


def signature_of(name: str) -> inspect.Signature:
    """The public parameters of a function of this module."""
    made = inspect.signature(FUNCTIONS[name])
    return made.replace(parameters=list(made.parameters.values())[1:])


def sequence(given: Any) -> tuple[Any, ...]:
    """Loose arguments, which may be one sequence."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


@part(*BOTH, "functional.{}")
def split(F: Any, tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Parts:
    """Views of so many indices each (the last may be smaller), or of these sizes."""
    if not isinstance(split_size_or_sections, int) and isinstance(split_size_or_sections, Sequence):
        return split_with_sizes(F, tensor, split_size_or_sections, dim)
    if not tensor.shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    place, step = dim_of(dim, len(tensor.shape)), split_size_or_sections
    size = tensor.shape[place]
    if decide(step, "<", 0):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
    if same(step, 0):
        if not same(size, 0):
            raise RuntimeError("split_size can only be 0 if dimension size is 0, but got dimension "
                               f"size of {size}")
        return (F.slice(tensor, place),)
    starts = list(steps(size, step)) or [0]
    return tuple(F.slice(tensor, place, a, a + step) for a in starts)


def steps(size: Size, step: Size) -> Any:
    """0, step, 2 step ... below `size`; a symbolic size is decided, one comparison a part."""
    at: Size = 0
    while decide(at, "<", size):
        yield at
        at = at + step


@part(*BOTH)
def split_with_sizes(F: Any, input: Any, split_sizes: Sequence[Size], dim: int = 0) -> Parts:
    """Views of the given numbers of indices, which have to add up."""
    if not input.shape:
        raise RuntimeError("split_with_sizes expects at least a 1-dimensional tensor")
    place = dim_of(dim, len(input.shape))
    sizes = list(split_sizes)
    if any(decide(n, "<", 0) for n in sizes):
        raise RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, "
                           f"but got split_sizes={sizes}")
    ends: list[Any] = [0]
    for n in sizes:
        ends.append(ends[-1] + n)
    if not same(ends[-1], input.shape[place]):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {input.shape[place]} (input "
            f"tensor's size at dimension {place}), but got split_sizes={sizes}")
    return tuple(F.slice(input, place, a, b) for a, b in zip(ends[:-1], ends[1:], strict=True))


@part(*BOTH)
def chunk(F: Any, input: Any, chunks: int, dim: int = 0) -> Parts:
    """At most `chunks` views of one size (the last may be smaller)."""
    if not input.shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    place = dim_of(dim, len(input.shape))
    size = input.shape[place]
    step = (size + (chunks - 1)) // chunks
    if same(size, 0):
        return tuple(F.slice(input, place) for _ in range(chunks))
    return split(F, input, step, place)


@part(*BOTH)
def unsafe_chunk(F: Any, input: Any, chunks: int, dim: int = 0) -> Parts:
    return chunk(F, input, chunks, dim)


@part(*BOTH)
def unsafe_split(F: Any, tensor: Any, split_size: Any, dim: int = 0) -> Parts:
    return split(F, tensor, split_size, dim)


@part(*BOTH)
def tensor_split(F: Any, input: Any, indices_or_sections: Any, dim: int = 0) -> Parts:
    """That many views of nearly one size, or views that begin at these indices."""
    if not input.shape:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a "
                           "tensor with 0 dims")
    place = dim_of(dim, len(input.shape))
    size, how = input.shape[place], indices_or_sections
    if rule.is_tensor(how):
        how = how.tolist() if len(how.shape) else int(how)
    if isinstance(how, int):
        if how <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {how}")
        least, more = size // how, size % how
        ends: list[Any] = [0]
        for i in range(how):
            longer = decide(more, ">", i)
            ends.append(ends[-1] + (least + 1 if longer else least))
        return tuple(F.slice(input, place, a, b) for a, b in zip(ends[:-1], ends[1:], strict=True))
    marks = [0, *how, size]
    return tuple(F.slice(input, place, a, b) for a, b in zip(marks[:-1], marks[1:], strict=True))


def _split_along(F: Any, name: str, least: int, dim: int, input: Any, how: Any) -> Parts:
    ndim = len(input.shape)
    if ndim < least:
        raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, but "
                           f"got a tensor with {ndim} dimensions!")
    if isinstance(how, int):
        if how <= 0 or not same(input.shape[dim] % how, 0):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the "
                f"dimension {input.shape[dim]} is not divisible by the split_size {how}!")
    return tensor_split(F, input, how, dim)


@part(*BOTH)
def hsplit(F: Any, input: Any, indices_or_sections: Any) -> Parts:
    dim = 0 if len(input.shape) == 1 else 1
    return _split_along(F, "hsplit", 1, dim, input, indices_or_sections)


@part(*BOTH)
def vsplit(F: Any, input: Any, indices_or_sections: Any) -> Parts:
    return _split_along(F, "vsplit", 2, 0, input, indices_or_sections)


@part(*BOTH)
def dsplit(F: Any, input: Any, indices_or_sections: Any) -> Parts:
    return _split_along(F, "dsplit", 3, 2, input, indices_or_sections)


@part(*BOTH)
def unbind(F: Any, input: Any, dim: int = 0) -> Parts:
    """A view of every index of `dim`."""
    if not input.shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    place = dim_of(dim, len(input.shape))
    return tuple(F.select(input, place, i) for i in steps(input.shape[place], 1))


@part(*BOTH)
def narrow(F: Any, input: Any, dim: int, start: Any, length: Size) -> Any:
    """A view of `length` indices of `dim` from `start` on, a number or a 0-d integer tensor."""
    if rule.is_tensor(start):
        if len(start.shape) or start.dtype.category != dt.INT:
            raise RuntimeError("start must be an 0-dim integral Tensor.")
        start = int(start)
    return F.narrow(input, dim, start, length)


@part("nn.functional.{}")
def embedding(F: Any, input: Any, weight: Any, padding_idx: int | None = None,
              max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """Rows of `weight` at `input`; `max_norm` first scales rows of `weight` down, in place."""
    if max_norm is not None:
        plain = weight.detach()
        plain.copy_(F.embedding_renorm(plain, input, max_norm, norm_type))
    return F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, sparse)


@part("nn.functional.{}")
def embedding_bag(F: Any, input: Any, weight: Any, offsets: Any = None,
                  max_norm: float | None = None, norm_type: float = 2.0,
                  scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Any = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Any:
    """Rows of `weight` at `input` combined in bags; `max_norm` as in `embedding`."""
    if max_norm is not None:
        plain = weight.detach()
        plain.copy_(F.embedding_renorm(plain, input, max_norm, norm_type))
    return F.embedding_bag(input, weight, offsets, None, norm_type, scale_grad_by_freq, mode,
                           sparse, per_sample_weights, include_last_offset, padding_idx)


@part("nn.functional.{}")
def linear_cross_entropy(F: Any, input: Any, linear_weight: Any, target: Any, *,
                         linear_bias: Any = None, weight: Any = None, reduction: str = "mean",
                         ignore_index: int | None = None, label_smoothing: float = 0.0,
                         options: Any = None) -> Any:
    """`cross_entropy` of a linear layer's scores. `options` say how PyTorch cuts the batch up,
    which changes no value; they are not looked at."""
    return F.linear_cross_entropy(
        input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
        ignore_index=ignore_index, label_smoothing=label_smoothing)


@part("{}")
def split_copy(F: Any, input: Any, split_size: Any, dim: int = 0) -> Parts:
    return tuple(map(F.clone, split(F, input, split_size, dim)))


@part("{}")
def split_with_sizes_copy(F: Any, input: Any, split_sizes: Any, dim: int = 0) -> Parts:
    return tuple(map(F.clone, split_with_sizes(F, input, split_sizes, dim)))


@part("{}")
def unbind_copy(F: Any, input: Any, dim: int = 0) -> Parts:
    return tuple(map(F.clone, unbind(F, input, dim)))


@part("{}", "functional.{}")
def broadcast_shapes(F: Any, *shapes: Any) -> Parts:
    """The common shape of shapes, integers counting as shapes of one dimension."""
    return broadcast((), *((s,) if isinstance(s, int) else tuple(s) for s in shapes))


@part("{}", "functional.{}")
def broadcast_tensors(F: Any, *tensors: Any) -> Parts:
    """Every tensor expanded to the common shape."""
    tensors = sequence(tensors)
    shape = broadcast(*(tuple(x.shape) for x in tensors)) if tensors else ()
    return tuple(F.expand(x, shape) for x in tensors)


@part("{}", "functional.{}")
def meshgrid(F: Any, *tensors: Any, indexing: str | None = None) -> Parts:
    """Coordinate grids of 1-d (or 0-d) tensors; indexing "ij" (the default) or "xy", which
    exchanges the first two dimensions."""
    tensors = sequence(tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError('torch.meshgrid: indexing must be one of "xy" or "ij", but received: '
                           f"{indexing}")
    for x in tensors:
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
        if len(x.shape) > 1:
            raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensor in the tensor list but "
                               f"got shape {list(x.shape)}")
    swap = indexing == "xy" and len(tensors) > 1
    order = (tensors[1], tensors[0], *tensors[2:]) if swap else tensors
    sizes = [x.shape[0] if x.shape else 1 for x in order]
    grids = []
    for i, x in enumerate(order):
        shape = [1] * len(sizes)
        shape[i] = sizes[i]
        grids.append(F.expand(F.view(x, shape), sizes))
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def _atleast(ndim: int) -> None:
    def function(F: Any, *tensors: Any) -> Any:
        many = len(tensors) != 1 or isinstance(tensors[0], (tuple, list))
        made = tuple(getattr(F, f"atleast_{ndim}d")(x) for x in sequence(tensors))
        return made if many else made[0]
    function.__doc__ = f"Each tensor with at least {ndim} dimensions; one alone is not a tuple."
    part("{}", name=f"atleast_{ndim}d")(function)


for _ndim in (1, 2, 3):
    _atleast(_ndim)


@part(*BOTH, name="nonzero")
def nonzero(F: Any, input: Any, *, as_tuple: bool = False) -> Any:
    """Indices (n, ndim) of the elements that are not zero, or one vector a dimension."""
    if not as_tuple:
        return F.nonzero(input)
    return unbind(F, F.nonzero(F.unsqueeze(input, 0) if not input.shape else input), 1)


@part(*BOTH)
def unique(F: Any, input: Any, sorted: bool = True, return_inverse: bool = False,
           return_counts: bool = False, dim: int | None = None) -> Any:
    """The different elements, or slices along `dim`, sorted; as asked: which one stands at each
    place, and how often each occurs."""
    return _asked(F.unique_all(input, dim), return_inverse, return_counts)


@part(*BOTH)
def unique_consecutive(F: Any, input: Any, return_inverse: bool = False,
                       return_counts: bool = False, dim: int | None = None) -> Any:
    """`unique` of runs of equal neighbours."""
    return _asked(F.unique_consecutive_all(input, dim), return_inverse, return_counts)


def _asked(made: Any, inverse: bool, counts: bool) -> Any:
    picked = tuple(x for x, wanted in zip(made, (True, inverse, counts), strict=True) if wanted)
    return picked if len(picked) > 1 else picked[0]


@part("nn.functional.{}")
def one_hot(F: Any, input: Any, num_classes: int = -1) -> Any:
    """int64 (*input.shape, num_classes); -1: the largest class plus one, which breaks graphs."""
    if num_classes == -1:
        if any(isinstance(n, int) and n == 0 for n in input.shape):
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(F.amax(input)) + 1
    return F.one_hot(input, num_classes)


@part("{}")
def unravel_index(F: Any, indices: Any, shape: Any) -> Parts:
    """The coordinates, in a tensor of `shape`, of flat row-major indices (which wrap around)."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {list(sizes)}")
    coordinates = []
    for n in reversed(sizes):
        coordinates.append(F.remainder(indices, n))
        indices = F.floor_divide(indices, n)
    return tuple(reversed(coordinates))


def integer_indices(F: Any, indices: Sequence[Any]) -> list[Any]:
    """Indices as the ops `index` and `index_put` take them: a bool or byte mask is replaced by one
    vector for each of its dimensions (a graph break, its length is data)."""
    out: list[Any] = []
    for i in indices:
        if i is not None and i.dtype in (dt.bool_, dt.uint8):
            places = F.nonzero(i)
            out.extend(F.select(places, 1, d) for d in range(len(i.shape)))
        else:
            out.append(i)
    return out


@part(*BOTH)
def lu(F: Any, A: Any, pivot: bool = True, get_infos: bool = False) -> Parts:
    """`linalg.lu_factor` by its older name; `get_infos` adds the flag of `lu_factor_ex`."""
    made = F.linalg_lu_factor_ex(A, pivot=pivot)
    return tuple(made) if get_infos else tuple(made)[:2]


@part("{}")
def gradient(F: Any, input: Any, *, spacing: Any = 1, dim: Any = None,
             edge_order: int = 1) -> Parts:
    """Derivatives along each of `dim` by central differences, one-sided at the ends (of order
    `edge_order`). `spacing`: a step, or for each dimension a step or the coordinates (1-d)."""
    ndim = len(input.shape)
    given = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [dim_of(d, ndim) for d in given]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {list(given)} appears multiple times in the list of dims")
    spacing = 1 if spacing is None else spacing
    steps_ = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(steps_) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or a list "
                           f"of length {len(dims)}, but got a list of length {len(steps_)}")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2, got "
                           f"{edge_order}.")
    for d in dims:
        if decide(input.shape[d], "<", edge_order + 1):
            raise RuntimeError("torch.gradient expected each dimension size to be at least "
                               f"edge_order+1, got {input.shape[d]} in dimension {d}")
    return tuple(_slope(F, input, d, h, edge_order) for d, h in zip(dims, steps_, strict=True))


def _slope(F: Any, x: Any, d: int, h: Any, edge_order: int) -> Any:
    """`gradient` along one dimension: second-order differences on a grid that may be uneven."""
    n = x.shape[d]

    def cut(y: Any, start: Any, size: Any) -> Any:
        return F.narrow(y, d if y is x else 0, start, size)

    if rule.is_tensor(h) and len(h.shape):
        if len(h.shape) != 1 or not same(h.shape[0], n):
            raise RuntimeError("torch.gradient expected each tensor in spacing to have the size of "
                               f"its dimension, {n}, got {list(h.shape)}")
        gaps = F.sub(cut(h, 1, n - 1), cut(h, 0, n - 1))
        shape = [1] * len(x.shape)

        def along(y: Any) -> Any:
            shape[d] = y.shape[0]
            return F.reshape(y, tuple(shape))
        before, after = along(cut(gaps, 0, n - 2)), along(cut(gaps, 1, n - 2))
        first, last = along(cut(gaps, 0, 1)), along(cut(gaps, n - 2, 1))
        second = along(cut(gaps, 1, 1)) if edge_order == 2 else None
        other = along(cut(gaps, n - 3, 1)) if edge_order == 2 else None
    else:
        before = after = first = last = second = other = h

    def bent(f: Any, a: Any, b: Any) -> Any:
        """The slope at the first of three points a and b apart."""
        whole = a + b
        return f[0] * (-(a + whole) / (a * whole)) + f[1] * (whole / (a * b)) \
            - f[2] * (a / (b * whole))

    inner = (cut(x, 0, n - 2) * (-after / (before * (before + after)))
             + cut(x, 1, n - 2) * ((after - before) / (before * after))
             + cut(x, 2, n - 2) * (before / (after * (before + after))))
    if edge_order == 2:
        start = bent([cut(x, i, 1) for i in range(3)], first, second)
        end = bent([cut(x, n - 1 - i, 1) for i in range(3)], last, other) * -1
    else:
        start = (cut(x, 1, 1) - cut(x, 0, 1)) / first
        end = (cut(x, n - 1, 1) - cut(x, n - 2, 1)) / last
    return F.cat([start, inner, end], d)


class Histogram(NamedTuple):
    """What `histogramdd` returns."""

    hist: Any
    bin_edges: Parts


@part("{}")
def histogramdd(F: Any, input: Any, bins: Any, *, range: Any = None, weight: Any = None,
                density: bool = False) -> Any:
    """(hist [bins of each], bin_edges) of points [.., n]. `bins`: a number for all dimensions, one
    for each, or their edges; `range`: least and greatest edge of each dimension, else the data's;
    `weight` [..]; `density`: divided by the total and by the volume of each bin."""
    n = input.shape[-1] if input.shape else 0
    if len(input.shape) < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions, but "
                           f"got {len(input.shape)}")
    given: list[Any] = [bins] * n if isinstance(bins, int) else list(bins)
    if len(given) != n:
        raise RuntimeError(f"torch.histogramdd: expected {n} sequences of bin edges or numbers of "
                           f"bins for a {n}-dimensional histogram but got {len(given)}")
    if range is not None and len(range) != 2 * n:
        raise RuntimeError(f"torch.histogramdd: for a {n}-dimensional histogram range should have "
                           f"{2 * n} elements, but got {len(range)}")
    points = F.reshape(input, (-1, n))
    columns = [F.select(points, 1, i) for i in iter_range(n)]
    ends = [None if range is None else tuple(range[2 * i: 2 * i + 2]) for i in iter_range(n)]
    edges = tuple(b if rule.is_tensor(b) else _edges(F, x, b, e)
                  for x, b, e in zip(columns, given, ends, strict=True))
    sizes = [e.shape[0] - 1 for e in edges]
    place: Any = 0
    inside: Any = None
    for x, e, many in zip(columns, edges, sizes, strict=True):
        at = F.clamp_max(F.bucketize(x, e, right=True) - 1, many - 1)
        fits = F.logical_and(F.ge(x, F.select(e, 0, 0)), F.le(x, F.select(e, 0, many)))
        inside = fits if inside is None else F.logical_and(inside, fits)
        place = place * many + at
    ones = F.full((points.shape[0],), 1, dtype=input.dtype, device=input.device)
    counted = ones if weight is None else F.reshape(weight, (-1,))
    counted = F.where(inside, counted, F.mul(counted, 0))
    flat = F.full((rule.numel(sizes),), 0, dtype=input.dtype, device=input.device)
    hist = F.index_add(flat, 0, F.where(inside, place, 0), counted)
    hist = F.reshape(hist, tuple(sizes))
    if density:
        hist = hist / F.sum(hist)
        for i, e in enumerate(edges):
            wide = F.sub(F.slice(e, 0, 1), F.slice(e, 0, 0, sizes[i]))
            hist = hist / F.reshape(wide, tuple(-1 if j == i else 1 for j in iter_range(n)))
    return Histogram(hist, edges)


def _edges(F: Any, x: Any, many: int, ends: Any) -> Any:
    """Even edges over a range; that of the data where there is none, 1 wide where it is a point."""
    if ends is None:
        empty = same(x.shape[0], 0)
        ends = (0.0, 1.0) if empty else (float(F.amin(x)), float(F.amax(x)))
    low, high = ends
    if low == high:
        low, high = low - 0.5, high + 0.5
    return F.linspace(low, high, many + 1, dtype=x.dtype, device=x.device)

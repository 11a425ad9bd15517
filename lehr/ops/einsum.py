"""Contractions over named or chosen dimensions: permutations around one matrix product."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from lehr.base import dtype as dt
from lehr.ops import rule
from lehr.ops.contract import ROUNDED, _checked
from lehr.ops.registry import op
from lehr.ops.rule import Spec, device_of, dim_of, numel, same


def product(F: Any, a: Any, b: Any, batch: Sequence[tuple[int, int]],
            summed: Sequence[tuple[int, int]]) -> Any:
    """Sum of products over the dimension pairs `summed`, elementwise over the pairs `batch`.

    The result has the batch dimensions, then a's others, then b's others. Paired sizes are equal.
    """
    paired = (*batch, *summed)
    in_a = [d for d in range(a.ndim) if d not in [p for p, _ in paired]]
    in_b = [d for d in range(b.ndim) if d not in [q for _, q in paired]]
    head = tuple(a.shape[p] for p, _ in batch)
    m, n = tuple(a.shape[d] for d in in_a), tuple(b.shape[d] for d in in_b)
    k = numel(a.shape[p] for p, _ in summed)
    a = F.permute(a, (*(p for p, _ in batch), *in_a, *(p for p, _ in summed)))
    b = F.permute(b, (*(q for _, q in batch), *(q for _, q in summed), *in_b))
    if not summed:
        made = F.reshape(a, (*head, numel(m), 1)) * F.reshape(b, (*head, 1, numel(n)))
        return F.reshape(made, (*head, *m, *n))
    y = F.matmul(F.reshape(a, (*head, numel(m), k)), F.reshape(b, (*head, k, numel(n))))
    return F.reshape(y, (*head, *m, *n))


Labels = tuple[Any, ...]  # letters, and ints (counted from the right) for the dimensions of `...`


@functools.lru_cache(maxsize=512)
def parse(equation: str, ndims: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of every operand's dimensions and of the result's."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise RuntimeError(f"einsum(): the equation {equation!r} has {len(terms)} operands, but "
                           f"{len(ndims)} were given")
    inputs = tuple(_labels(t, n, equation) for t, n in zip(terms, ndims, strict=True))
    every = [label for labels in inputs for label in labels]
    dots = tuple(sorted({x for x in every if isinstance(x, int)}, reverse=True))
    if arrow:
        out = _labels(right, None, equation, dots)
        for label in out:
            if label not in every:
                raise RuntimeError(f"einsum(): output subscript {label} does not appear in the "
                                   "equation for any input operand")
            if out.count(label) > 1:
                raise RuntimeError(f"einsum(): output subscript {label} appears more than once")
    else:
        letters = sorted({x for x in every if isinstance(x, str) and every.count(x) == 1})
        out = (*dots, *letters)
    return inputs, out


def _labels(term: str, ndim: int | None, equation: str, dots: Labels = ()) -> Labels:
    """One term; `...` stands for the dimensions that the letters leave, or for `dots` in the
    result."""
    head, dotted, tail = term.partition("...")
    for letter in head + tail:
        if not letter.isascii() or not letter.isalpha():
            raise RuntimeError(f"einsum(): invalid subscript {letter!r} in {equation!r}, "
                               "subscripts must be in [a-zA-Z]")
    if ndim is not None:
        extra = ndim - len(head) - len(tail)
        if extra < 0 or (extra and not dotted):
            raise RuntimeError(f"einsum(): the subscripts {term!r} do not match an operand with "
                               f"{ndim} dimensions")
        dots = tuple(range(extra, 0, -1))
    return (*head, *(dots if dotted else ()), *tail)


def _sizes(operands: Sequence[Any], inputs: Sequence[Labels]) -> dict[Any, Any]:
    """Label -> size; size 1 broadcasts."""
    sizes: dict[Any, Any] = {}
    for x, labels in zip(operands, inputs, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            have = sizes.setdefault(label, size)
            if have is size or have == size or (isinstance(size, int) and size == 1):
                continue
            if isinstance(have, int) and have == 1:
                sizes[label] = size
            elif not same(have, size):
                raise RuntimeError("einsum(): operands do not broadcast with remapped shapes: "
                                   f"subscript {label} has size {have} and size {size}")
    return sizes


def _einsum_rule(equation: str, operands: Any) -> Spec:
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    inputs, out = parse(equation, tuple(len(x.shape) for x in operands))
    sizes = _sizes(operands, inputs)
    first = operands[0]
    for x in operands[1:]:
        if x.dtype is not first.dtype:
            raise RuntimeError(f"einsum(): expected all operands to be {first.dtype}, got "
                               f"{x.dtype}")
    return Spec(tuple(sizes[label] for label in out), first.dtype, device_of(operands))


def _prepared(
    F: Any, x: Any, labels: Labels, sizes: dict[Any, Any], kept: set[Any]
) -> tuple[Any, Labels]:
    """One operand with repeated labels taken as diagonals, broadcast size-1 dimensions dropped, and
    labels that nobody else has summed."""
    labels = tuple(labels)
    for label in [x for i, x in enumerate(labels) if x in labels[:i]]:
        i = labels.index(label)
        j = labels.index(label, i + 1)
        x = F.diagonal(x, 0, i, j)
        labels = (*labels[:i], *labels[i + 1: j], *labels[j + 1:], label)
    alone = [i for i, label in enumerate(labels) if label not in kept]
    if alone:
        x = F.sum(x, alone)
        labels = tuple(v for i, v in enumerate(labels) if i not in alone)
    for i in reversed(range(len(labels))):
        if isinstance(x.shape[i], int) and x.shape[i] == 1 and sizes[labels[i]] != 1:
            x = F.squeeze(x, i)
            labels = labels[:i] + labels[i + 1:]
    return x, labels


@op("einsum(equation: str, *operands: Tensor) -> Tensor")
class einsum:
    """Sum of products in Einstein's notation: `einsum("bij,bjk->bik", x, y)`; `...` broadcasts.

    Operands are contracted from left to right, each pair as one matrix product.
    """

    rule, where = _einsum_rule, "function"

    def decomp(F: Any, equation: str, operands: Any) -> Any:
        inputs, out = parse(equation, tuple(x.ndim for x in operands))
        sizes = _sizes(operands, inputs)
        rest = list(zip(operands, inputs, strict=True))
        value: Any = None
        labels: Labels = ()
        for i, (x, own) in enumerate(rest):
            later = {label for _, more in rest[i + 1:] for label in more}
            needed = later | set(out)
            x, own = _prepared(F, x, own, sizes, needed | set(labels))
            if value is None:
                value, labels = x, own
                continue
            common = [label for label in labels if label in own]
            batch = [(labels.index(v), own.index(v)) for v in common if v in needed]
            summed = [(labels.index(v), own.index(v)) for v in common if v not in needed]
            value = product(F, value, x, batch, summed)
            labels = (*(v for v in common if v in needed), *(v for v in labels if v not in common),
                      *(v for v in own if v not in common))
            value, labels = _prepared(F, value, labels, sizes, needed)
        missing = [label for label in out if label not in labels]  # size 1
        value = F.permute(value, [labels.index(label) for label in out if label in labels])
        for label in missing:
            value = F.unsqueeze(value, out.index(label))
        return value

    def samples(s: Any) -> Any:
        for equation, *shapes in (
            ("ij,jk->ik", (3, 4), (4, 5)),
            ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
            ("ij->ji", (3, 4)),
            ("ii->", (3, 3)),
            ("ii->i", (3, 3)),
            ("i,j->ij", (3,), (4,)),
            ("i,i->", (3,), (3,)),
            ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
            ("...ij,jk", (2, 2, 3, 4), (4, 5)),
            ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
            ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
            ("ij->", (3, 4)),
            ("b i j , b j -> b i", (2, 3, 4), (2, 4)),
            ("ij,ij->ij", (3, 4), (3, 4)),
            ("...i,...i->...", (1, 3), (4, 3)),
            ("ij,ik->jk", (1, 4), (3, 5)),
            ("iij,jk->ik", (2, 2, 3), (3, 4)),
            ("abc,cd,ad->b", (2, 3, 4), (4, 5), (2, 5)),
            ("ij,jk->ik", (3, 0), (0, 5)),
        ):
            yield s(equation, *(s.any(*shape) for shape in shapes))
        yield s.raises(RuntimeError, "ij,jk->ik", s.any(3, 4), s.any(5, 6))
        yield s.raises(RuntimeError, "ij->ik", s.any(3, 4))
        yield s.raises(RuntimeError, "ij,jk->ik", s.any(3, 4))
        yield s.raises(RuntimeError, "ijk->ij", s.any(3, 4))
    dtypes, tolerance = "float half", ROUNDED


def _axes(a: Any, b: Any, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, int):
        if not 0 <= dims <= min(len(a.shape), len(b.shape)):
            raise RuntimeError("tensordot expects dims >= 0 and at most the rank, but got "
                               f"dims={dims}")
        return list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise RuntimeError(f"both dimension lists should have same length, got {first} and "
                           f"{second}")
    return [dim_of(d, len(a.shape)) for d in first], [dim_of(d, len(b.shape)) for d in second]


def _tensordot_rule(a: Any, b: Any, dims: Any = 2) -> Spec:
    _checked(a, b)
    da, db = _axes(a, b, dims)
    for p, q in zip(da, db, strict=True):
        if 1 not in (a.shape[p], b.shape[q]) and not same(a.shape[p], b.shape[q]):
            raise RuntimeError("contracted dimensions need to match, but first has size "
                               f"{a.shape[p]} in dim {p} and second has size {b.shape[q]} in dim "
                               f"{q}")
    shape = [s for d, s in enumerate(a.shape) if d not in da]
    shape += [s for d, s in enumerate(b.shape) if d not in db]
    return Spec(tuple(shape), a.dtype, device_of((a, b)))


@op("tensordot(a: Tensor, b: Tensor, dims: int | list[int] = 2) -> Tensor")
class tensordot:
    """Sum of products over the last `dims` dimensions of a and the first of b, or over two lists of
    them."""

    rule, where = _tensordot_rule, "function"

    def decomp(F: Any, a: Any, b: Any, dims: Any) -> Any:
        da, db = _axes(a, b, dims)
        for p, q in zip(da, db, strict=True):  # size 1 stands for every element of the other's
            if a.shape[p] == 1 and b.shape[q] != 1:
                b = F.sum(b, q, True)
            elif b.shape[q] == 1 and a.shape[p] != 1:
                a = F.sum(a, p, True)
        return product(F, a, b, (), list(zip(da, db, strict=True)))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3, 4), s.any(3, 4, 5))
        yield s(s.any(2, 3, 4), s.any(4, 5), dims=1)
        yield s(s.any(2, 3), s.any(4, 5), dims=0)
        yield s(s.any(2, 3, 4), s.any(4, 2, 5), dims=([0, 2], [1, 0]))
        yield s(s.any(1, 3, 4), s.any(4, 2, 5), dims=([0, 2], [1, 0]))
        yield s.raises(RuntimeError, s.any(2, 3, 4), s.any(3, 5, 4))
    dtypes = "float half"


def _inner_rule(a: Any, b: Any) -> Spec:
    _checked(a, b)
    if not a.shape or not b.shape:
        return rule.binary(a, b)
    if not same(a.shape[-1], b.shape[-1]):
        raise RuntimeError("inner() the last dimension must match on both input tensors but got "
                           f"shapes {list(a.shape)} and {list(b.shape)}")
    return Spec((*a.shape[:-1], *b.shape[:-1]), a.dtype, device_of((a, b)))


@op("inner(input: Tensor, other: Tensor) -> Tensor")
class inner:
    """Sums of products over the last dimensions."""

    rule = _inner_rule

    def decomp(F: Any, a: Any, b: Any) -> Any:
        if not a.shape or not b.shape:
            return a * b
        return product(F, a, b, (), [(a.ndim - 1, b.ndim - 1)])

    def samples(s: Any) -> Any:
        yield s(s.any(2, 4), s.any(3, 5, 4))
        yield s(s.any(4), s.any(4))
        yield s(s.any(2, 4), s.any())
        yield s.raises(RuntimeError, s.any(2, 4), s.any(3, 5))
    dtypes = "float half"


def _kron_rule(a: Any, b: Any) -> Spec:
    ndim = max(len(a.shape), len(b.shape))
    sa, sb = ((1,) * (ndim - len(t.shape)) + tuple(t.shape) for t in (a, b))
    made = dt.promote(a.dtype, b.dtype)
    return Spec(tuple(p * q for p, q in zip(sa, sb, strict=True)), made, device_of((a, b)), made)


@op("kron(input: Tensor, other: Tensor) -> Tensor")
class kron:
    """Kronecker product: sizes multiply, leading dimensions of size 1 are added to the lower rank.
    """

    rule = _kron_rule

    def decomp(F: Any, a: Any, b: Any) -> Any:
        ndim = max(a.ndim, b.ndim)
        sa, sb = ((1,) * (ndim - t.ndim) + tuple(t.shape) for t in (a, b))
        left = F.reshape(a, [v for size in sa for v in (size, 1)])
        right = F.reshape(b, [v for size in sb for v in (1, size)])
        return F.reshape(left * right, [p * q for p, q in zip(sa, sb, strict=True)])

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), s.any(4, 5))
        yield s(s.any(3), s.any(2, 4))
        yield s(s.any(), s.any(2))


def _chain_rule(tensors: Any) -> Spec:
    if len(tensors) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(len(tensors)))
    shape, first = tuple(tensors[0].shape), tensors[0]
    for i, t in enumerate(tensors):
        ends = i in (0, len(tensors) - 1)
        if len(t.shape) != 2 and not (ends and len(t.shape) == 1):
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D{' or 1D' if ends else ''} but "
                               f"got {len(t.shape)}D")
        _checked(first, t)
        shape = rule.matmul_shape(shape, tuple(t.shape)) if i else shape
    return Spec(shape, first.dtype, device_of(tensors))


def order(sizes: Sequence[int]) -> Any:
    """The cheapest bracketing of a chain of matrices [sizes[i], sizes[i + 1]], as nested pairs of
    indices."""
    n = len(sizes) - 1
    best: dict[tuple[int, int], tuple[int, Any]] = {(i, i): (0, i) for i in range(n)}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = ((best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1],
                      (best[i, k][1], best[k + 1, j][1])) for k in range(i, j))
            best[i, j] = min(costs, key=lambda cost: cost[0])
    return best[0, n - 1][1]


@op("linalg_multi_dot(tensors: list[Tensor]) -> Tensor")
class linalg_multi_dot:
    """The product of a chain of matrices in the cheapest order; the first and last may be vectors.
    """

    rule, where = _chain_rule, "linalg"

    def decomp(F: Any, tensors: Any) -> Any:
        sizes = [t.shape[0] if t.ndim == 2 else 1 for t in tensors[:1]]
        sizes += [t.shape[-2] if t.ndim == 2 else t.shape[0] for t in tensors[1:]]
        sizes.append(tensors[-1].shape[-1] if tensors[-1].ndim == 2 else 1)
        fixed = all(isinstance(n, int) for n in sizes)
        places: Any = range(len(tensors))
        tree = order(sizes) if fixed else functools.reduce(lambda a, b: (a, b), places)

        def build(node: Any) -> Any:
            if isinstance(node, int):
                return tensors[node]
            return F.matmul(build(node[0]), build(node[1]))
        return build(tree)

    def samples(s: Any) -> Any:
        yield s([s.any(2, 3), s.any(3, 4), s.any(4, 2)])
        yield s([s.any(3), s.any(3, 4), s.any(4)])
        yield s([s.any(10, 2), s.any(2, 10), s.any(10, 3), s.any(3, 1)])
        yield s([s.any(2, 3), s.any(3)])
        yield s.raises(RuntimeError, [s.any(2, 3), s.any(4, 2)])
        yield s.raises(RuntimeError, [s.any(2, 3)])
    dtypes = "float half"


@op("chain_matmul(*matrices: Tensor) -> Tensor")
class chain_matmul:
    """The product of a chain of matrices in the cheapest order."""

    rule, where = _chain_rule, "function"

    def decomp(F: Any, matrices: Any) -> Any:
        return F.linalg_multi_dot(list(matrices))

    def samples(s: Any) -> Any:
        yield s(s.any(2, 3), s.any(3, 4), s.any(4, 2))
    dtypes = "float half"


def _power_rule(input: Any, n: int) -> Spec:
    if len(input.shape) < 2 or not same(input.shape[-1], input.shape[-2]):
        raise RuntimeError("linalg.matrix_power: A must be batches of square matrices, but they "
                           "are "
                           f"{' by '.join(map(str, input.shape[-2:]))} matrices")
    return Spec(tuple(input.shape), input.dtype, input.device)


@op("linalg_matrix_power(input: Tensor, n: int) -> Tensor")
class linalg_matrix_power:
    """The n-th power of square matrices [.., m, m]; a negative n inverts first, 0 gives the
    identity."""

    rule, where = _power_rule, "linalg"

    def decomp(F: Any, x: Any, n: int) -> Any:
        if n == 0:  # the derivative is 0, not absent
            eye = F.eye(x.shape[-1], dtype=x.dtype, device=x.device)
            never = F.full((), False, dtype=dt.bool_, device=x.device)
            return F.where(never, F.clone(x, memory_format="contiguous_format"), eye)
        x = F.linalg_inv(x) if n < 0 else x
        n, out = abs(n), None
        while n:
            if n & 1:
                out = x if out is None else F.matmul(out, x)
            n >>= 1
            x = F.matmul(x, x) if n else x
        return F.clone(out, memory_format="contiguous_format") if out is x else out

    def samples(s: Any) -> Any:
        for n in (0, 1, 2, 3, 7):
            yield s(s.f(2, 3, 3), n)
        yield s.raises(RuntimeError, s.f(2, 3), 2)
    dtypes = "float"


@op("matrix_power(input: Tensor, n: int) -> Tensor")
class matrix_power:
    """`linalg.matrix_power` as a function and method."""

    rule, dtypes, samples = _power_rule, "float", linalg_matrix_power.samples

    def decomp(F, x, n):
        return F.linalg_matrix_power(x, n)

"""Factorisations L D L^T of symmetric and Hermitian matrices on the host, and what they solve.

Pivots are those of Bunch and Kaufman, 1977: D has blocks of one and two rows, and factors are laid
out as LAPACK's `sytrf` and `hetrf` leave the lower triangle. Neither has a derivative, in PyTorch
either.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy

from lehr.base import dtype as dt
from lehr.ops import layout, rule
from lehr.ops.linalg import TOLERANCE, LinAlgError, matrix, typed
from lehr.ops.registry import HOST, op
from lehr.ops.rule import Spec, device_of

GROWTH = (1 + math.sqrt(17)) / 8  # of elements in two steps of one row and in one of two, balanced


def _size(x: Any) -> Any:
    """What LAPACK compares numbers by: |re| + |im|."""
    return abs(x.real) + abs(x.imag)


def _pivot(a: Any, k: int, hermitian: bool) -> tuple[int, int]:
    """(row to bring up, rows of the block) at step k, which has something below the diagonal."""
    here = abs(a[k, k].real) if hermitian else _size(a[k, k])
    column = _size(a[k + 1:, k])
    best = k + 1 + int(column.argmax()) if len(column) else k
    most = column.max() if len(column) else 0
    if here >= GROWTH * most:
        return k, 1
    other = numpy.concatenate([_size(a[best, k:best]), _size(a[best + 1:, best])]).max()
    if here >= GROWTH * most * (most / other):
        return k, 1
    there = abs(a[best, best].real) if hermitian else _size(a[best, best])
    return best, 1 if there >= GROWTH * other else 2


def _exchange(a: Any, k: int, at: int, best: int, hermitian: bool) -> None:
    """Rows and columns `at` and `best` of the lower triangle from k on."""
    turned = numpy.conj if hermitian else numpy.asarray
    a[best + 1:, [at, best]] = a[best + 1:, [best, at]]
    a[at + 1:best, at], a[best, at + 1:best] = (turned(a[best, at + 1:best].copy()),
                                                turned(a[at + 1:best, at].copy()))
    a[[at, best], [at, best]] = a[[best, at], [best, at]]
    if hermitian:
        a[best, at] = a[best, at].conjugate()
    if at > k:
        a[[at, best], k] = a[[best, at], k]


def _factor(a: Any, hermitian: bool) -> tuple[Any, int]:
    """Factors one lower triangle in place: (pivots from 1, negative in blocks of two; which element
    of D is 0, from 1, or 0)."""
    n, k, info = len(a), 0, 0
    pivots = numpy.zeros(n, numpy.int32)
    turned = numpy.conj if hermitian else numpy.asarray
    while k < n:
        first = _size(a[k:, k])
        if first.max() == 0 or numpy.isnan(first[0]):
            best, rows = k, 1
            info = info or k + 1
        else:
            best, rows = _pivot(a, k, hermitian)
            at = k + rows - 1
            if best != at:
                _exchange(a, k, at, best, hermitian)
            below = a[k + rows:, k:k + rows]
            if hermitian:
                a[range(k, at + 1), range(k, at + 1)] = a[range(k, at + 1), range(k, at + 1)].real
            made = below @ _inverse(a[k:k + rows, k:k + rows], turned)
            a[k + rows:, k + rows:] -= numpy.tril(made @ turned(below).T)
            a[k + rows:, k:k + rows] = made
        pivots[k:k + rows] = best + 1 if rows == 1 else -best - 1
        k += rows
    return pivots, info


def _inverse(d: Any, turned: Any) -> Any:
    """Of a block of D, of which the lower triangle is there; scaled by what is off the diagonal."""
    if len(d) == 1:
        return 1 / d
    off = d[1, 0]
    up, low = d[1, 1] / turned(off), d[0, 0] / off
    scale = 1 / (up * low - 1)
    return numpy.array([[up * scale / off, -scale / off],
                        [-scale / turned(off), low * scale / turned(off)]], d.dtype)


def _blocks(pivots: Any) -> list[tuple[int, int, int]]:
    """(first row, rows, the row that the last one was exchanged with) of D's blocks."""
    made, k = [], 0
    while k < len(pivots):
        rows = 2 if pivots[k] < 0 else 1
        made.append((k, rows, abs(int(pivots[k])) - 1))
        k += rows
    return made


def _solve(ld: Any, pivots: Any, x: Any, hermitian: bool) -> None:
    """Solves for one matrix of right-hand sides, in place."""
    turned = numpy.conj if hermitian else numpy.asarray
    blocks = _blocks(pivots)
    for k, rows, best in blocks:
        x[[k + rows - 1, best]] = x[[best, k + rows - 1]]
        x[k + rows:] -= ld[k + rows:, k:k + rows] @ x[k:k + rows]
        x[k:k + rows] = _inverse(ld[k:k + rows, k:k + rows], turned) @ x[k:k + rows]
    for k, rows, best in reversed(blocks):
        x[k:k + rows] -= turned(ld[k + rows:, k:k + rows]).T @ x[k + rows:]
        x[[k + rows - 1, best]] = x[[best, k + rows - 1]]


def _underived(name: str) -> NoReturn:
    raise NotImplementedError(f"the derivative of {name} is not implemented (in PyTorch neither); "
                              "linalg.solve has one")


def _symmetric(s: Any, n: int, *batch: int) -> Any:
    x = s.f(*batch, n, n)
    return x + x.swapaxes(-1, -2)


@op("linalg_ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> "
    "named(LD=Tensor, pivots=Tensor, info=Tensor)")
class linalg_ldl_factor_ex:
    """A = L D L^T (L^H where `hermitian`) of symmetric matrices [.., n, n], of which the lower
    triangle is read; `pivots` int32 [.., n] as LAPACK's, `info` int32 [..]: which element of D is
    0, from 1, or 0.

    LinAlgError where one is and `check_errors` holds.
    """

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    layout, stops = layout.columns, True

    def rule(x: Any, hermitian: bool = False, check_errors: bool = False) -> Any:
        shape = matrix("linalg.ldl_factor_ex", x, True)
        return (typed(x, shape), typed(x, shape[:-1], dt.int32), typed(x, shape[:-2], dt.int32))

    def eager(np: Any, x: Any, hermitian: bool, check_errors: bool) -> Any:
        made = np.tril(x)
        pivots, info = np.zeros(x.shape[:-1], np.int32), np.zeros(x.shape[:-2], np.int32)
        for i in np.ndindex(*x.shape[:-2]):
            pivots[i], info[i] = _factor(made[i], hermitian and x.dtype.kind == "c")
        if check_errors and info.any():
            raise LinAlgError(f"linalg.ldl_factor: D is singular: its element {info.max()} (from "
                              "1) is 0")
        return made, pivots, info

    def vjp(F: Any, g: Any, out: Any, x: Any, hermitian: bool, check_errors: bool) -> Any:
        return lambda: _underived("linalg.ldl_factor_ex")

    def samples(s: Any) -> Any:
        yield s(_symmetric(s, 5))._replace(derive=False)
        yield s(_symmetric(s, 4, 2), hermitian=True)._replace(derive=False)
        yield s(numpy.zeros_like(s.f(2, 2)))._replace(derive=False)
        yield s.raises(RuntimeError, s.f(2, 3))
        yield s.raises(RuntimeError, numpy.zeros_like(s.f(2, 2)), check_errors=True)


@op("linalg_ldl_factor(A: Tensor, *, hermitian: bool = False) -> named(LD=Tensor, pivots=Tensor)")
class linalg_ldl_factor:
    """`ldl_factor_ex` that raises LinAlgError where an element of D is 0."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x: Any, hermitian: bool = False) -> Any:
        return linalg_ldl_factor_ex.rule(x, hermitian, True)[:2]

    def decomp(F: Any, x: Any, hermitian: bool) -> Any:
        return tuple(F.linalg_ldl_factor_ex(x, hermitian=hermitian, check_errors=True))[:2]

    def samples(s: Any) -> Any:
        yield s(_symmetric(s, 4))._replace(derive=False)
        yield s.raises(RuntimeError, s.f(2, 3))


@op("linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor")
class linalg_ldl_solve:
    """X with A X = B [.., n, k], from `ldl_factor`'s results."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(ld: Any, pivots: Any, b: Any, hermitian: bool = False) -> Spec:
        shape = matrix("linalg.ldl_solve", ld, True)
        matrix("linalg.ldl_solve", b)
        if pivots.dtype.category != dt.INT:
            raise RuntimeError("linalg.ldl_solve: Expected pivots to be integers. Got "
                               f"{pivots.dtype}")
        if tuple(pivots.shape) != shape[:-1]:
            raise RuntimeError("linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be "
                               "the same, but got pivots with shape "
                               f"{list(pivots.shape)} instead")
        if not rule.same(b.shape[-2], shape[-1]):
            raise RuntimeError("Incompatible matrix sizes for linalg.ldl_solve: each A matrix is "
                               f"{shape[-1]} by {shape[-1]} but each b matrix is {b.shape[-2]} by "
                               f"{b.shape[-1]}")
        head = rule.broadcast(shape[:-2], tuple(b.shape[:-2]))
        return Spec((*head, *b.shape[-2:]), b.dtype, device_of((ld, b)))

    layout = layout.columns

    def eager(np: Any, ld: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
        n = ld.shape[-1]
        if pivots.size and (np.abs(pivots).min() < 1 or np.abs(pivots).max() > n):
            raise RuntimeError(f"linalg.ldl_solve: pivots have to lie within 1 and {n}")
        head = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
        made = np.broadcast_to(b, (*head, *b.shape[-2:])).copy()
        ld = np.broadcast_to(ld, (*head, n, n))
        pivots = np.broadcast_to(pivots, (*head, n))
        for i in np.ndindex(*head):
            _solve(ld[i], pivots[i], made[i], hermitian and ld.dtype.kind == "c")
        return made

    def vjp(F: Any, g: Any, out: Any, ld: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
        return ((lambda: _underived("linalg.ldl_solve")), None,
                (lambda: _underived("linalg.ldl_solve")))

    def samples(s: Any) -> Any:
        for batch in ((), (2,)):
            x = _symmetric(s, 4, *batch)
            ld, pivots, _ = linalg_ldl_factor_ex.eager(numpy, x, False, False)
            yield s(ld, pivots, s.f(*batch, 4, 2))._replace(derive=False)
        yield s.raises(RuntimeError, x[0], pivots[0], s.f(3, 1))
        yield s.raises(RuntimeError, x[0], pivots[0][:3], s.f(4, 1))

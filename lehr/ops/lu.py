"""LU factorisations with partial pivoting on the host, and solutions and products made of factors.
"""

from __future__ import annotations

import numpy

from lehr.base import dtype as dt
from lehr.ops import layout, rule
from lehr.ops.contract import transposed as t
from lehr.ops.factor import _smaller
from lehr.ops.linalg import TOLERANCE, linalg_solve, matrix, real_only, typed
from lehr.ops.registry import HOST, op
from lehr.ops.rule import Spec, device_of


def _eliminate(np, x):
    """LU with partial pivoting of a batch, in place; pivots as LAPACK's, from 1."""
    x = x.copy()
    m, n = x.shape[-2:]
    k = min(m, n)
    pivots = np.zeros((*x.shape[:-2], k), np.int32)
    flat, rows = x.reshape(-1, m, n), pivots.reshape(-1, k)
    each = np.arange(len(flat))
    for i in range(k):
        best = np.abs(flat[:, i:, i]).argmax(1) + i
        rows[:, i] = best + 1
        flat[each, i], flat[each, best] = flat[each, best], flat[each, i].copy()
        pivot = flat[:, i, i][:, None]
        flat[:, i + 1:, i] /= np.where(pivot == 0, 1, pivot)
        flat[:, i + 1:, i + 1:] -= flat[:, i + 1:, i, None] * flat[:, None, i, i + 1:]
    return flat.reshape(x.shape), pivots


def _lu_grad(F, g_low, g_up, low, up):
    """Gradient of P^T A = L U from those of L [m, k] and U [k, n].

    Rows of L below, or columns of U beyond the square are solutions of the square's factors.
    """
    k, more, wider = low.shape[-1], low.shape[-2] - low.shape[-1], up.shape[-1] - up.shape[-2]
    g_low = F.mul(low, 0) if g_low is None else g_low
    g_up = F.mul(up, 0) if g_up is None else g_up
    square, top = F.narrow(low, -2, 0, k), F.narrow(up, -1, 0, k)
    left = F.matmul(t(F, square), F.narrow(g_low, -2, 0, k))
    right = F.matmul(F.narrow(g_up, -1, 0, k), t(F, top))
    below = F.narrow(g_low, -2, k, more) if more else None
    beyond = F.narrow(g_up, -1, k, wider) if wider else None
    if below is not None:
        right = right - F.matmul(t(F, F.narrow(low, -2, k, more)), below)
    if beyond is not None:
        left = left - F.matmul(beyond, t(F, F.narrow(up, -1, k, wider)))
    inner = F.linalg_solve_triangular(t(F, square), F.tril(left, -1) + F.triu(right), upper=True,
                                      unitriangular=True)
    made = F.linalg_solve_triangular(t(F, top), inner, upper=False, left=False)
    if below is not None:
        rest = F.linalg_solve_triangular(t(F, top), below, upper=False, left=False)
        made = F.cat([made, rest], -2)
    if beyond is not None:
        rest = F.linalg_solve_triangular(t(F, square), beyond, upper=True, unitriangular=True)
        made = F.cat([made, rest], -1)
    return made


@op("linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> named(LU=Tensor, pivots=Tensor)")
class linalg_lu_factor:
    """The LU factors of matrices in one (L without its unit diagonal), and LAPACK's pivots (int32,
    from 1)."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    nondiff = (1,)

    def rule(x, pivot=True):
        shape = matrix("linalg.lu_factor", x)
        if not pivot:
            raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the "
                               "CPU")
        return typed(x, shape), typed(x, (*shape[:-2], _smaller(shape)), dt.int32)

    layout = layout.columns

    def eager(np, x, pivot):
        return _eliminate(np, x)

    def vjp(F, g, out, x, pivot):
        real_only("lu_factor", x)
        lu, k = out[0], _smaller(out[0].shape)
        eye = F.eye(lu.shape[-2], dtype=lu.dtype, device=lu.device)
        low = F.narrow(F.tril(lu, -1), -1, 0, k) + F.narrow(eye, -1, 0, k)
        made = _lu_grad(F, F.narrow(F.tril(g[0], -1), -1, 0, k),
                        F.narrow(F.triu(g[0]), -2, 0, k), low, F.narrow(F.triu(lu), -2, 0, k))
        return F.matmul(t(F, F.linalg_permute_rows(eye, out[1])), made)

    def samples(s):
        yield s(s.f(3, 3))
        yield s(s.f(2, 3, 4))
        yield s(s.f(4, 3))


@op("linalg_lu(A: Tensor, *, pivot: bool = True) -> named(P=Tensor, L=Tensor, U=Tensor)")
class linalg_lu:
    """A = P L U."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    nondiff = (0,)

    def rule(x, pivot=True):
        shape = matrix("linalg.lu", x)
        if not pivot:
            raise RuntimeError("linalg.lu: LU without pivoting is not implemented on the CPU")
        (m, n), k = shape[-2:], _smaller(shape)
        return (typed(x, (*shape[:-2], m, m)), typed(x, (*shape[:-2], m, k)),
                typed(x, (*shape[:-2], k, n)))

    def eager(np, x, pivot):
        made, pivots = _eliminate(np, x)
        m, n = x.shape[-2:]
        k = min(m, n)
        low = np.tril(made[..., :k], -1)
        low[..., np.arange(k), np.arange(k)] = 1
        order = np.broadcast_to(np.arange(m), (*x.shape[:-2], m)).copy()
        for i in np.ndindex(*x.shape[:-2]):
            for a, b in enumerate(pivots[i] - 1):
                order[i][[a, b]] = order[i][[b, a]]
        p = (np.arange(m)[:, None] == order[..., None, :]).astype(x.dtype)
        return p, low, np.triu(made[..., :k, :])

    def vjp(F, g, out, x, pivot):
        real_only("lu", x)
        p, low, up = out
        return F.matmul(p, _lu_grad(F, g[1], g[2], low, up))

    def samples(s):
        yield s(s.f(3, 3))
        yield s(s.f(2, 3, 4))
        yield s(s.f(4, 3))


def _permuted(np, x, pivots, back):
    """The rows of x exchanged as the pivots say, or put back."""
    head = np.broadcast_shapes(x.shape[:-2], pivots.shape[:-1])
    x = np.broadcast_to(x, (*head, *x.shape[-2:])).copy()
    swaps = np.broadcast_to(pivots - 1, (*head, pivots.shape[-1]))
    for i in np.ndindex(*head):
        steps = list(enumerate(swaps[i]))
        for a, b in reversed(steps) if back else steps:
            x[i][[a, b]] = x[i][[b, a]]
    return x


@op("linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool "
    "= False) -> Tensor")
class linalg_lu_solve:
    """X with A X = B (X A = B where not `left`; A transposed where `adjoint`), from `lu_factor`'s
    results."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(lu, pivots, b, left=True, adjoint=False):
        shape = matrix("linalg.lu_solve", lu, True)
        matrix("linalg.lu_solve", b)
        if not rule.same(b.shape[-2 if left else -1], shape[-1]):
            raise RuntimeError(f"linalg.lu_solve: Incompatible shapes of LU and B for the equation "
                               f"{'AX' if left else 'XA'} = B ({shape[-2]}x{shape[-1]} and "
                               f"{b.shape[-2]}x{b.shape[-1]})")
        head = rule.broadcast(shape[:-2], tuple(b.shape[:-2]))
        return Spec((*head, *b.shape[-2:]), b.dtype, device_of((lu, b)))

    def layout(spec, lu, pivots, b, left, adjoint):
        shape = tuple(spec.shape)
        return layout.column_major(shape) if left else layout.contiguous(shape)

    def eager(np, lu, pivots, b, left, adjoint):
        def turned(x):
            return x.swapaxes(-1, -2).conj() if adjoint == left else x.swapaxes(-1, -2)
        if not left:  # X A = B is A^T X^T = B^T
            x = linalg_lu_solve.eager(np, lu, pivots, turned(b) if adjoint else turned(b), True,
                                      not adjoint)
            return x.swapaxes(-1, -2)
        low = np.tril(lu, -1) + np.eye(lu.shape[-1], dtype=lu.dtype)
        if adjoint:
            x = np.linalg.solve(np.triu(lu).swapaxes(-1, -2).conj(), b)
            return _permuted(np, np.linalg.solve(low.swapaxes(-1, -2).conj(), x), pivots, True)
        return np.linalg.solve(np.triu(lu), np.linalg.solve(low, _permuted(np, b, pivots, False)))

    def vjp(F, g, out, lu, pivots, b, left, adjoint):
        real_only("lu_solve", lu)

        def right():
            return F.linalg_lu_solve(lu, pivots, g, left=left, adjoint=not adjoint)

        def factors():  # of P L U X = B, or of its transpose
            rise, x = (right(), out) if left else (t(F, right()), t(F, out))
            if adjoint == left:  # A^T X = B: the same product with the roles exchanged
                rise, x = x, rise
            upper, lower = F.triu(lu), F.tril(lu, -1) + F.eye(lu.shape[-1], dtype=lu.dtype,
                                                              device=lu.device)
            low = F.linalg_permute_rows(rise, pivots)
            y = F.matmul(upper, x)
            of_upper = -F.matmul(F.matmul(t(F, lower), low), t(F, x))
            return F.triu(of_upper) - F.tril(F.matmul(low, t(F, y)), -1)
        return factors, None, right

    def samples(s):
        x = s.f(3, 3)
        lu, pivots = _eliminate(numpy, x)
        for left in (True, False):
            for adjoint in (True, False):
                yield s(lu, pivots, s.f(3, 3), left=left, adjoint=adjoint)
        yield s(lu, pivots, s.f(2, 3, 2))


@op("linalg_permute_rows(input: Tensor, pivots: Tensor) -> Tensor")
class linalg_permute_rows:
    """The rows of matrices exchanged as LAPACK's pivots say."""

    kind, host, where, dtypes, exact = HOST, True, "", "float", True
    stops = True

    def rule(x, pivots):
        head = rule.broadcast(tuple(x.shape[:-2]), tuple(pivots.shape[:-1]))
        return Spec((*head, *x.shape[-2:]), x.dtype, x.device)

    def eager(np, x, pivots):
        return _permuted(np, x, pivots, False)

    def vjp(F, g, out, x, pivots):
        n = x.shape[-2]  # back by the transposed permutation
        eye = F.eye(n, dtype=g.dtype, device=g.device)
        return F.matmul(t(F, F.linalg_permute_rows(eye, pivots)), g), None

    def samples(s):
        yield s(s.f(3, 2), numpy.array([2, 3, 3], numpy.int32))
        yield s(s.f(2, 3, 2), numpy.array([[2, 3, 3], [3, 2, 3]], numpy.int32))


@op("lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor")
class lu_solve:
    """`linalg.lu_solve` with its operands in the older order."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(b, lu, pivots):
        return linalg_lu_solve.rule(lu, pivots, b)

    def decomp(F, b, lu, pivots):
        return F.linalg_lu_solve(lu, pivots, b)

    def samples(s):
        lu, pivots = _eliminate(numpy, s.f(3, 3))
        yield s(s.f(3, 2), lu, pivots)


@op("linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> "
    "named(LU=Tensor, pivots=Tensor, info=Tensor)")
class linalg_lu_factor_ex:
    """`lu_factor` with an int32 flag: 0, or which pivot is 0."""

    where, tolerance, dtypes, nondiff = "linalg", TOLERANCE, "float", (1, 2)

    def rule(x, pivot=True, check_errors=False):
        lu, pivots = linalg_lu_factor.rule(x, pivot)
        return lu, pivots, typed(x, x.shape[:-2], dt.int32)

    def decomp(F, x, pivot, check_errors):
        lu, pivots = F.linalg_lu_factor(x, pivot=pivot)
        zero = F.diagonal(lu, 0, -2, -1) == 0
        place = F.argmax(F.to_dtype(zero, dt.int32), -1) + 1
        info = F.where(F.any(zero, -1), place, 0)
        return lu, pivots, F.to_dtype(info, dt.int32)

    def samples(s):
        yield s(s.f(3, 3, dtype=dt.float32))
        yield s(s.f(3, 3, dtype=dt.float32) * 0)


@op("linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> "
    "named(result=Tensor, info=Tensor)")
class linalg_solve_ex:
    """`solve` with an int32 flag that is 0; a singular matrix raises."""

    where, tolerance, dtypes, nondiff = "linalg", TOLERANCE, "float", (1,)

    def rule(a, b, left=True, check_errors=False):
        return linalg_solve.rule(a, b, left), typed(a, a.shape[:-2], dt.int32)

    def decomp(F, a, b, left, check_errors):
        return (F.linalg_solve(a, b, left=left),
                F.full(tuple(a.shape[:-2]), 0, dtype=dt.int32, device=a.device))

    def samples(s):
        yield s(s.f(3, 3) + (4 * numpy.eye(3)).astype(s.floating.np), s.f(3, 2))


@op("linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor")
class linalg_householder_product:
    """The first n columns of the product of reflections 1 - tau[i] v[i] v[i]^T; v[i] is below the
    diagonal."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x, tau):
        m, n = matrix("linalg.householder_product", x)[-2:]
        if m < n:
            raise RuntimeError("torch.linalg.householder_product: input.shape[-2] must be "
                               "greater than or equal to input.shape[-1]")
        if tau.shape[-1] > n:
            raise RuntimeError("torch.linalg.householder_product: input.shape[-1] must be "
                               "greater than or equal to tau.shape[-1]")
        return typed(x, x.shape)

    def decomp(F, x, tau):
        m, n = x.shape[-2:]
        eye = F.eye(m, dtype=x.dtype, device=x.device)
        low = F.tril(x, -1) + F.narrow(eye, 1, 0, n)
        q = F.expand(F.narrow(eye, 1, 0, n), tuple(x.shape))
        if tau.shape[-1] == 0:  # the identity, with a gradient of zeros
            return F.narrow(F.cat([q, x], -1), -1, 0, n)
        for i in reversed(range(tau.shape[-1])):
            v = F.narrow(low, -1, i, 1)
            scale = F.unsqueeze(F.narrow(tau, -1, i, 1), -1)
            vt = F.conj(t(F, v)) if x.dtype.is_complex else t(F, v)
            q = q - scale * F.matmul(v, F.matmul(vt, q))
        return q

    def samples(s):
        yield s(s.f(4, 3), s.f(3))
        yield s(s.f(2, 4, 3), s.f(2, 2))
        yield s.raises(RuntimeError, s.f(2, 3), s.f(2))

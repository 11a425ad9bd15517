"""Factorisations on the host (QR, eigenvalues, singular values, LU) and what is made of them.

Derivatives as in `linalg`. Those of eigenvectors and singular vectors exist where the values are
distinct, and only for losses that do not depend on the vectors' signs.
"""

from __future__ import annotations

import numpy

from lehr.base import dtype as dt
from lehr.base.proof import decide
from lehr.ops import layout
from lehr.ops.contract import transposed as t
from lehr.ops.linalg import TOLERANCE, LinAlgError, matrix, positive, real_only, typed
from lehr.ops.registry import HOST, op
from lehr.ops.rule import Spec, dims_of, reduced_shape


def _smaller(shape):
    m, n = shape[-2:]
    return m if decide(m, "<=", n) else n


def _diagonal(F, x):
    return F.diag_embed(x)


def _gaps(F, x):
    """1 / (x[j] - x[i]), 0 on the diagonal."""
    gap = F.unsqueeze(x, -2) - F.unsqueeze(x, -1)
    n = x.shape[-1]
    i = F.arange(n, device=x.device)
    off = F.unsqueeze(i, 1) != i
    return F.where(off, 1.0 / F.where(off, gap, 1.0), 0.0)


def _total(parts):
    """The sum of what there is."""
    made = None
    for p in parts:
        made = made if p is None else p if made is None else made + p
    return made


# QR


@op("linalg_qr(A: Tensor, mode: str = 'reduced') -> named(Q=Tensor, R=Tensor)")
class linalg_qr:
    """A = Q R with orthonormal columns of Q and upper triangular R; modes reduced, complete, r."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    layout = layout.columns

    def rule(x, mode="reduced"):
        shape = matrix("linalg.qr", x)
        m, n = shape[-2:]
        if mode not in ("reduced", "complete", "r"):
            raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of "
                               "'reduced' (default), 'r', or 'complete'")
        k = m if mode == "complete" else _smaller(shape)
        q = typed(x, (0,) if mode == "r" else (*shape[:-2], m, k))
        return q, typed(x, (*shape[:-2], k, n))

    def eager(np, x, mode):
        if mode == "r":
            return np.zeros(0, x.dtype), np.linalg.qr(x, "r")
        return tuple(np.linalg.qr(x, mode))

    def vjp(F, g, out, x, mode):
        real_only("qr", x)
        m, n = x.shape[-2:]
        if mode != "reduced" and not (mode == "complete" and m <= n):
            raise RuntimeError(f"The derivative of linalg.qr is not implemented for mode '{mode}' "
                               f"of a {m} by {n} matrix; use mode 'reduced'")
        (gq, gr), (q, r) = g, out
        if m >= n:
            return _qr_grad(F, gq, gr, q, r)
        left, right = F.narrow(r, -1, 0, m), F.narrow(x, -1, m, n - m)
        tail = None
        if gr is not None:  # A = [X Y] with Q R1 = X, R2 = Q^T Y
            tail = F.narrow(gr, -1, m, n - m)
            gr = F.narrow(gr, -1, 0, m)
            more = F.matmul(right, t(F, tail))
            gq = more if gq is None else gq + more
        first = _qr_grad(F, gq, gr, q, left)
        second = F.matmul(q, tail) if tail is not None else right * 0
        return F.cat([first, second], -1)

    def samples(s):
        yield s(s.f(4, 3))
        yield s(s.f(2, 3, 3))
        yield s(s.f(3, 5))
        yield s(s.f(4, 3, dtype=dt.float32), "complete")
        yield s(s.f(4, 3, dtype=dt.float32), "r")
        yield s.raises(RuntimeError, s.f(3))
        yield s.raises(RuntimeError, s.f(3, 3), "full")


def _qr_grad(F, gq, gr, q, r):
    parts = []
    if gr is not None:
        parts.append(F.matmul(r, t(F, gr)))
    if gq is not None:
        parts.append(-F.matmul(t(F, gq), q))
    inner = _total(parts)
    inner = F.tril(inner) + t(F, F.tril(inner, -1))
    rise = F.matmul(q, inner)
    rise = rise if gq is None else rise + gq
    return F.linalg_solve_triangular(t(F, r), rise, upper=False, left=False)


@op("qr(input: Tensor, some: bool = True) -> named(Q=Tensor, R=Tensor)")
class qr:
    """`linalg.qr`, complete where not `some`."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(x, some=True):
        return linalg_qr.rule(x, "reduced" if some else "complete")

    def decomp(F, x, some):
        return tuple(F.linalg_qr(x, "reduced" if some else "complete"))

    def samples(s):
        yield s(s.f(4, 3))


# Eigenvalues


@op("linalg_eigh(A: Tensor, UPLO: str = 'L') -> named(eigenvalues=Tensor, eigenvectors=Tensor)")
class linalg_eigh:
    """Eigenvalues (ascending) and eigenvectors (columns) of symmetric matrices, from one triangle.
    """

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(x, UPLO="L"):
        shape = matrix("linalg.eigh", x, True)
        if UPLO.upper() not in ("L", "U"):
            raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
        return typed(x, shape[:-1], x.dtype.to_real()), typed(x, shape)

    def eager(np, x, UPLO):
        try:
            return tuple(np.linalg.eigh(x, UPLO.upper()))
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.eigh: {error}") from None

    def vjp(F, g, out, x, UPLO):
        real_only("eigh", x)
        (gl, gv), (lam, v) = g, out
        parts = [] if gl is None else [_diagonal(F, gl)]
        if gv is not None:
            parts.append(F.matmul(t(F, v), gv) * _gaps(F, lam))
        inner = _total(parts)
        return F.matmul(F.matmul(v, (inner + t(F, inner)) * 0.5), t(F, v))

    def samples(s):  # float32: the gradient is that of a symmetric matrix; signs are not determined
        x = positive(s, 3, fixed=dt.float32)
        yield s(x)._replace(parity=False)
        yield s(numpy.stack((x, 2 * x)), "U")._replace(parity=False)
        yield s.raises(RuntimeError, s.f(2, 3))


@op("linalg_eigvalsh(A: Tensor, UPLO: str = 'L') -> Tensor")
class linalg_eigvalsh:
    """Eigenvalues (ascending) of symmetric matrices."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x, UPLO="L"):
        return linalg_eigh.rule(x, UPLO)[0]

    def decomp(F, x, UPLO):
        return F.linalg_eigh(x, UPLO)[0]

    def samples(s):
        yield s(positive(s, 3, fixed=dt.float32))


@op("linalg_eig(A: Tensor) -> named(eigenvalues=Tensor, eigenvectors=Tensor)")
class linalg_eig:
    """Complex eigenvalues and eigenvectors (columns) of square matrices."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(x):
        shape = matrix("linalg.eig", x, True)
        return typed(x, shape[:-1], x.dtype.to_complex()), typed(x, shape, x.dtype.to_complex())

    def eager(np, x):
        return tuple(np.linalg.eig(x))

    def vjp(F, g, out, x):
        # Boeddeker et al., 2019, with vectors of norm 1; the loss may not depend on their phases.
        (g_values, g_vectors), (values, vectors) = g, out
        adjoint = F.conj(t(F, vectors))
        inner = None
        if g_vectors is not None:
            turned = F.matmul(adjoint, g_vectors)
            along = F.unsqueeze(F.real(F.diagonal(turned, 0, -2, -1)), -2)
            gap = F.conj(F.unsqueeze(values, -2) - F.unsqueeze(values, -1))
            i = F.arange(x.shape[-1], device=x.device)
            off = F.unsqueeze(i, 1) != i
            free = turned - F.matmul(adjoint, vectors) * along
            inner = F.where(off, free / F.where(off, gap, 1.0), 0.0)
        inner = _total([inner, None if g_values is None else F.diag_embed(g_values)])
        made = F.linalg_solve(adjoint, F.matmul(inner, adjoint))
        return made if x.dtype.is_complex else F.real(made)

    def samples(s):
        yield s(s.f(3, 3, dtype=dt.float32))._replace(parity=False)
        yield s.raises(RuntimeError, s.f(2, 3))


@op("linalg_eigvals(A: Tensor) -> Tensor")
class linalg_eigvals:
    """Complex eigenvalues of square matrices, in no promised order."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x):
        return linalg_eig.rule(x)[0]

    def decomp(F, x):
        return F.linalg_eig(x)[0]

    def samples(s):
        yield s(s.f(3, 3, dtype=dt.float32))._replace(parity=False)


# Singular values


@op("linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> "
    "named(U=Tensor, S=Tensor, Vh=Tensor)")
class linalg_svd:
    """A = U diag(S) Vh, S descending; `full_matrices` completes U and Vh to square ones."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(x, full_matrices=True, driver=None):
        shape = matrix("linalg.svd", x)
        (m, n), k = shape[-2:], _smaller(shape)
        head = shape[:-2]
        return (typed(x, (*head, m, m if full_matrices else k)),
                typed(x, (*head, k), x.dtype.to_real()),
                typed(x, (*head, n if full_matrices else k, n)))

    def eager(np, x, full_matrices, driver):
        try:
            return tuple(np.linalg.svd(x, full_matrices))
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.svd: {error}") from None

    def vjp(F, g, out, x, full_matrices, driver):
        real_only("svd", x)
        (gu, gs, gvh), (u, s, vh) = g, out
        k = s.shape[-1]
        if full_matrices:  # the columns beyond k are arbitrary
            u, vh = F.narrow(u, -1, 0, k), F.narrow(vh, -2, 0, k)
            gu = None if gu is None else F.narrow(gu, -1, 0, k)
            gvh = None if gvh is None else F.narrow(gvh, -2, 0, k)
        row, column = F.unsqueeze(s, -2), F.unsqueeze(s, -1)
        inner = [] if gs is None else [_diagonal(F, gs)]
        outer = []
        gaps = None if gu is None and gvh is None else _gaps(F, s * s)
        if gu is not None:
            j = F.matmul(t(F, u), gu)
            inner.append((j - t(F, j)) * gaps * row)
            rise = gu / row
            outer.append(F.matmul(rise - F.matmul(u, F.matmul(t(F, u), rise)), vh))
        if gvh is not None:
            j = F.matmul(vh, t(F, gvh))
            inner.append(column * ((j - t(F, j)) * gaps))
            rise = gvh / column
            outer.append(F.matmul(u, rise - F.matmul(F.matmul(rise, t(F, vh)), vh)))
        if inner:
            outer.append(F.matmul(F.matmul(u, _total(inner)), vh))
        return _total(outer)

    def samples(s):  # the signs of the vectors are not determined
        for shape in ((4, 3), (3, 4), (2, 3, 3)):
            for full in (True, False):
                yield s(s.f(*shape, dtype=dt.float32), full)._replace(parity=False)
        yield s.raises(RuntimeError, s.f(3))


@op("linalg_svdvals(A: Tensor, *, driver: str | None = None) -> Tensor")
class linalg_svdvals:
    """Singular values, descending."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x, driver=None):
        return linalg_svd.rule(x)[1]

    def decomp(F, x, driver):
        return F.linalg_svd(x, False)[1]

    def samples(s):
        yield s(s.f(4, 3))
        yield s(s.f(2, 3, 4))


@op("svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> named(U=Tensor, S=Tensor, "
    "V=Tensor)")
class svd:
    """`linalg.svd` with V instead of its transpose; zeros for U and V where not `compute_uv`."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(x, some=True, compute_uv=True):
        full = not some or not compute_uv
        u, s, vh = linalg_svd.rule(x, full)
        return u, s, vh._replace(shape=(*vh.shape[:-2], vh.shape[-1], vh.shape[-2]))

    def decomp(F, x, some, compute_uv):
        u, s, vh = F.linalg_svd(x, not some or not compute_uv)
        return (u, s, t(F, vh)) if compute_uv else (u * 0, s, t(F, vh) * 0)

    def samples(s):
        yield s(s.f(4, 3, dtype=dt.float32))._replace(parity=False)
        yield s(s.f(4, 3, dtype=dt.float32), compute_uv=False)


def _cut(np, s, shape, atol, rtol):
    """The smallest singular value that counts."""
    rtol = (0.0 if atol is not None
            else max(shape) * np.finfo(s.dtype).eps) if rtol is None else rtol
    atol = 0.0 if atol is None else atol
    return np.maximum(np.asarray(atol)[..., None],
                      np.asarray(rtol)[..., None] * s.max(-1, initial=0)[..., None])


@op("linalg_pinv(A: Tensor, *, atol: float | Tensor | None = None, rtol: float | Tensor | None = "
    "None, hermitian: bool = False) -> Tensor")
class linalg_pinv:
    """The Moore-Penrose inverse; singular values up to max(atol, rtol * the largest) count as 0."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(x, atol=None, rtol=None, hermitian=False):
        shape = matrix("linalg.pinv", x)
        return typed(x, (*shape[:-2], shape[-1], shape[-2]))

    def eager(np, x, atol, rtol, hermitian):
        if hermitian:
            lam, v = np.linalg.eigh(x)
            size = np.abs(lam)
            keep = size > _cut(np, size, x.shape[-2:], atol, rtol)
            return (v * np.where(keep, 1 / np.where(keep, lam, 1),
                                 0)[..., None, :]) @ v.swapaxes(-1, -2).conj()
        u, s, vh = np.linalg.svd(x, False)
        keep = s > _cut(np, s, x.shape[-2:], atol, rtol)
        s = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
        return vh.swapaxes(-1, -2).conj() @ (s[..., None] * u.swapaxes(-1, -2).conj())

    def vjp(F, g, out, x, atol, rtol, hermitian):
        real_only("pinv", x)
        return _pinv_grad(F, g, out, x), None, None

    def samples(s):
        yield s(s.f(4, 3))
        yield s(s.f(2, 3, 4))
        yield s(positive(s, 3, fixed=dt.float32), hermitian=True)
        yield s(s.f(4, 3, dtype=dt.float32), rtol=0.5)  # the derivative is that of constant rank


def _pinv_grad(F, g, p, x):
    """From dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P (Golub, Pereyra, 1973)."""
    gt, pt = t(F, g), t(F, p)
    first = F.matmul(F.matmul(pt, g), pt)
    second = F.matmul(F.matmul(gt, p), pt)
    third = F.matmul(pt, F.matmul(p, gt))
    second = second - F.matmul(x, F.matmul(p, second))
    third = third - F.matmul(F.matmul(third, p), x)
    return second + third - first


@op("pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor")
class pinverse:
    """`linalg.pinv` with singular values up to rcond times the largest counted as 0."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(x, rcond=1e-15):
        return linalg_pinv.rule(x)

    def decomp(F, x, rcond):
        return F.linalg_pinv(x, rtol=rcond)

    def samples(s):
        yield s(s.f(4, 3))


@op("linalg_matrix_rank(A: Tensor, *, atol: float | Tensor | None = None, rtol: float | Tensor | "
    "None = None, hermitian: bool = False) -> Tensor")
class linalg_matrix_rank:
    """How many singular values are above max(atol, rtol * the largest)."""

    kind, host, where, nondiff, dtypes = HOST, True, "linalg", True, "float"
    stops = True

    def rule(x, atol=None, rtol=None, hermitian=False):
        return typed(x, matrix("linalg.matrix_rank", x)[:-2], dt.int64)

    def eager(np, x, atol, rtol, hermitian):
        s = np.abs(np.linalg.eigvalsh(x)) if hermitian else np.linalg.svd(x, compute_uv=False)
        return (s > _cut(np, s, x.shape[-2:], atol, rtol)).sum(-1)

    def samples(s):
        yield s(s.f(4, 3))
        yield s(s.f(4, 1) * s.f(1, 3), rtol=1e-3)
        yield s(s.f(2, 3, 3) * 0)


@op("linalg_lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = "
    "None) -> named(solution=Tensor, residuals=Tensor, rank=Tensor, singular_values=Tensor)")
class linalg_lstsq:
    """X of least norm that minimises |A X - B|; residuals where A has more rows than columns and
    full rank.

    The computation is the same whatever `driver` says (gelsy by default); singular values are
    returned where it names one that has them. """

    kind, host, where, tolerance, nondiff = HOST, True, "linalg", TOLERANCE, (2, 3)
    stops = True
    dtypes = "float"

    def rule(a, b, rcond=None, driver=None):
        shape = matrix("linalg.lstsq", a)
        m, n = shape[-2:]
        vector = len(b.shape) == len(shape) - 1
        columns = () if vector else b.shape[-1:]
        full = isinstance(m, int) and m > n and driver in ("gels", "gelsd", "gelss")
        return (typed(b, (*shape[:-2], n, *columns)),
                typed(b, (*shape[:-2], *columns) if full else (0,)),
                typed(b, (0,) if driver == "gels" else shape[:-2], dt.int64),
                typed(b, (*shape[:-2], _smaller(shape)) if driver in ("gelsd", "gelss") else (0,)))

    def layout(spec, a, b, rcond, driver):
        shape, ndim = tuple(spec.shape), len(a.shape)
        if spec.dtype is dt.int64 or len(shape) != ndim or len(b.shape) != ndim:
            return layout.contiguous(shape)
        # The first rows of B's memory, which has as many as the longer side of A.
        m, n = a.shape[-2:]
        rows = m if decide(m, ">=", n) else n
        full = layout.column_major((*shape[:-2], rows, shape[-1]))
        return (*full[:-2], 1, rows)

    def eager(np, a, b, rcond, driver):
        rcond = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rcond is None else rcond
        vector = b.ndim == a.ndim - 1
        b = b[..., None] if vector else b
        p = linalg_pinv.eager(np, a, None, rcond, False)
        x = p @ b
        rest = (np.abs(a @ x - b) ** 2).sum(-2)
        s = np.linalg.svd(a, compute_uv=False)
        rank = (s > rcond * s.max(-1, keepdims=True, initial=0)).sum(-1)
        x, rest = (x[..., 0], rest[..., 0]) if vector else (x, rest)
        none, (m, n) = np.zeros(0, a.dtype), a.shape[-2:]
        return (x, rest if m > n and driver in ("gels", "gelsd", "gelss") else none,
                np.zeros(0, np.int64) if driver == "gels" else rank,
                s if driver in ("gelsd", "gelss") else none)

    def vjp(F, g, out, a, b, rcond, driver):
        real_only("lstsq", a)
        vector = b.ndim == a.ndim - 1

        def columns(x):
            return F.unsqueeze(x, -1) if vector else x
        p, made = F.linalg_pinv(a), []

        def both():
            """Gradients of A and B (as columns)."""
            if made:
                return made
            made.extend((None, None))
            if g[0] is not None:
                rise = columns(g[0])
                made[:] = _pinv_grad(F, F.matmul(rise, t(F, columns(b))), p, a), F.matmul(t(F, p),
                                                                                          rise)
            has_rest = a.shape[-2] > a.shape[-1] and driver in ("gels", "gelsd", "gelss")
            if g[1] is not None and has_rest:  # X is the minimum: it may stay
                x = columns(out[0])
                rest = (F.matmul(a, x) - columns(b)) * F.unsqueeze(columns(g[1]) if vector
                                                                   else g[1], -2) * 2
                made[:] = _total([F.matmul(rest, t(F, x)), made[0]]), _total([-rest, made[1]])
            return made

        def right():
            made = both()[1]
            return F.squeeze(made, -1) if vector and made is not None else made
        return lambda: both()[0], right

    def samples(s):
        yield s(s.f(4, 3), s.f(4, 2))
        yield s(s.f(2, 3, 4), s.f(2, 3, 2))
        yield s(s.f(4, 3), s.f(4, 2), driver="gelsd")


# Norms of matrices


def _pair(ndim, dim):
    dims = dims_of(tuple(dim), ndim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple of ints. Got {list(dim)}")
    return tuple(d % ndim for d in dim)


ORDERS = ("fro", "nuc", float("inf"), float("-inf"), 1, -1, 2, -2)


@op("linalg_matrix_norm(A: Tensor, ord: Scalar | str = 'fro', dim: list[int] = (-2, -1), "
    "keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor")
class linalg_matrix_norm:
    """Norms of the matrices in two dimensions: fro, nuc, inf and -inf (row sums), 1 and -1 (column
    sums), 2 and -2 (singular values)."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x, ord="fro", dim=(-2, -1), keepdim=False, dtype=None):
        if len(x.shape) < 2:
            raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 "
                               "dimensions.")
        if ord not in ORDERS:
            raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
        if x.dtype.category < dt.FLOAT and dtype is None:
            raise RuntimeError("linalg.matrix_norm: Expected a floating point or complex tensor "
                               f"as input. Got {x.dtype}")
        made = (dtype or x.dtype).to_real()
        return Spec(reduced_shape(tuple(x.shape), _pair(len(x.shape), dim), keepdim), made,
                    x.device, None)

    def decomp(F, x, ord, dim, keepdim, dtype):
        x = x if dtype is None else F.to_dtype(x, dtype)
        rows, columns = _pair(x.ndim, dim)
        if ord == "fro":
            return F.linalg_vector_norm(x, 2, (rows, columns), keepdim)
        if ord in ("nuc", 2, -2):
            last = F.movedim(x, (rows, columns), (-2, -1))
            s = F.linalg_svdvals(last)
            made = F.sum(s, -1) if ord == "nuc" else (F.amax if ord == 2 else F.amin)(s, -1)
            for d in sorted((rows, columns)) if keepdim else ():
                made = F.unsqueeze(made, d)
            return made
        along, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = F.sum(F.abs(x), along, True)
        empty = isinstance(sums.shape[over], int) and sums.shape[over] == 0
        made = (F.sum if empty and ord > 0 else F.amax if ord > 0 else F.amin)(sums, over, True)
        for d in () if keepdim else sorted((rows, columns), reverse=True):
            made = F.squeeze(made, d)
        return made

    def samples(s):
        for order in ORDERS:
            yield s(s.f(3, 4), order)
        yield s(s.f(2, 3, 4), "nuc", (0, 2), True)
        yield s(s.f(2, 3, 4), 1, (2, 0))
        yield s(s.f(2, 3, 4), float("inf"), (-1, 0), True)
        yield s.raises(RuntimeError, s.f(3), 1)
        yield s.raises(RuntimeError, s.f(3, 3), 5)


@op("linalg_norm(A: Tensor, ord: Scalar | str | None = None, dim: int | list[int] | None = None, "
    "keepdim: bool = False, *, dtype: dtype | None = None) -> Tensor")
class linalg_norm:
    """A vector norm over one dimension, a matrix norm over two; without `ord` and `dim` that of all
    elements."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float half"

    def rule(x, ord=None, dim=None, keepdim=False, dtype=None):
        made = (dtype or x.dtype).to_real()
        if made.category < dt.FLOAT:
            raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor "
                               f"as input. Got {x.dtype}")
        if ord is not None and dim is None and len(x.shape) not in (1, 2):
            raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must "
                               f"be 1D or 2D. Got {len(x.shape)}D.")
        return Spec(reduced_shape(tuple(x.shape), dims_of(dim, len(x.shape)), keepdim), made,
                    x.device, None)

    def decomp(F, x, ord, dim, keepdim, dtype):
        two = isinstance(dim, (list, tuple)) and len(dim) == 2 or (dim is None and x.ndim == 2)
        if ord is not None and two:
            return F.linalg_matrix_norm(x, ord, (-2, -1) if dim is None else dim, keepdim,
                                        dtype=dtype)
        return F.linalg_vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)

    def samples(s):
        yield s(s.f(3, 4))
        yield s(s.f(3, 4), dim=1)
        yield s(s.f(3, 4, 2), 3, -1, True)
        yield s(s.f(4), 1)
        if s.floating in (dt.float32, dt.float64):
            yield s(s.f(3, 4), "nuc")
            yield s(s.f(3, 4, 2), 2, (0, 1))
        yield s.raises(RuntimeError, s.f(3, 4, 2), 2)


@op("linalg_cond(A: Tensor, p: Scalar | str | None = None) -> Tensor")
class linalg_cond:
    """norm(A) * norm(inverse); for 2 and -2 the ratio of the extreme singular values."""

    where, tolerance, dtypes = "linalg", {"float32": (1e-3, 1e-3), "float64": (1e-8, 1e-8)}, "float"

    def rule(x, p=None):
        return typed(x, matrix("linalg.cond", x, p not in (None, 2, -2))[:-2], x.dtype.to_real())

    def decomp(F, x, p):
        if p in (None, 2, -2):
            s = F.linalg_svdvals(x)
            high, low = F.select(s, -1, 0), F.select(s, -1, s.shape[-1] - 1)
            return low / high if p == -2 else high / low
        return F.linalg_matrix_norm(x, p) * F.linalg_matrix_norm(F.linalg_inv(x), p)

    def samples(s):
        x = s.f(3, 3) + (4 * numpy.eye(3)).astype(s.floating.np)
        for p in (None, -2, "fro", 1, float("inf"), "nuc"):
            yield s(x, p)

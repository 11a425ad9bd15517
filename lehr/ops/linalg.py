"""Linear algebra on the host: numpy's LAPACK on batches of matrices, with derivatives written over
ops.

Derivatives: Giles, "Collected matrix derivative results", 2008; SVD and QR: Townsend, 2016, Walter,
Lehmann, 2010. Functions of a symmetric matrix read its lower triangle and give the symmetric
gradient, as PyTorch. Half precision is not supported, as in PyTorch.
"""

from __future__ import annotations

import numpy

from lehr.base import dtype as dt
from lehr.ops import layout
from lehr.ops.contract import transposed as t
from lehr.ops.registry import HOST, op
from lehr.ops.rule import Spec, broadcast, device_of, same

TOLERANCE = {"float32": (2e-4, 2e-4), "float64": (1e-9, 1e-9)}  # other LAPACK, other order


class LinAlgError(RuntimeError):
    """A matrix that the operation cannot take: singular, not positive-definite, no convergence."""


def matrix(name, x, square=False, half=False):
    """Checks a batch of matrices (`half`: of half precision too) and returns its shape."""
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if x.dtype.category < dt.FLOAT or (x.dtype.wide is not x.dtype and not half):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got "
                           f"{x.dtype}")
    if square and not same(shape[-1], shape[-2]):
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are "
                           f"{shape[-2]} by {shape[-1]} matrices")
    return shape


def typed(x, shape, dtype=None):
    return Spec(tuple(shape), dtype or x.dtype, x.device)


def _squares(name):
    def made(x, *rest):
        return typed(x, matrix(name, x, True))
    return made


def _well(s, n=3, *batch):
    """Matrices far from singular, float32 or float64."""
    x = s.f(*batch, n, n)
    return x + (4 * numpy.eye(n)).astype(x.dtype)


def positive(s, n=3, *batch, fixed=None):
    """Symmetric positive-definite matrices."""
    x = s.f(*batch, n, n, dtype=fixed)
    return (x @ x.swapaxes(-1, -2) + numpy.eye(n)).astype(x.dtype)


def real_only(name, x):
    if x.dtype.is_complex:
        raise NotImplementedError(f"the derivative of {name} is implemented for real matrices "
                                  f"only; got {x.dtype}")


# Inverse, determinant, linear systems


@op("linalg_inv(A: Tensor) -> Tensor")
class linalg_inv:
    """The inverse of square matrices [.., n, n]; LinAlgError where there is none."""

    kind, host, rule, tolerance, dtypes = HOST, True, _squares("linalg.inv"), TOLERANCE, "float"
    stops = True
    where, layout = "linalg", layout.columns

    def eager(np, x):
        try:
            return np.linalg.inv(x)
        except np.linalg.LinAlgError:
            raise LinAlgError("linalg.inv: the input matrix is singular, the inversion could not "
                              "be "
                              "completed") from None

    def vjp(F, g, out, x):
        return -F.matmul(F.matmul(t(F, out), g), t(F, out))

    def samples(s):
        yield s(_well(s))
        yield s(_well(s, 2, 2, 3))
        yield s(s.f(0, 0))
        yield s.raises(RuntimeError, s.f(2, 3))
        yield s.raises(RuntimeError, s.f(3, 3) * 0)


@op("linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> named(inverse=Tensor, info=Tensor)")
class linalg_inv_ex:
    """The inverse and an int32 flag: 0, or 1 for singular matrices (whose inverse is then NaN)."""

    kind, host, where, tolerance, nondiff, dtypes = HOST, True, "linalg", TOLERANCE, (1,), "float"
    stops = True

    def rule(x, check_errors=False):
        shape = matrix("linalg.inv_ex", x, True)
        return typed(x, shape), typed(x, shape[:-2], dt.int32)

    layout = layout.columns

    def eager(np, x, check_errors):
        out, info = np.empty_like(x), np.zeros(x.shape[:-2], np.int32)
        for i in np.ndindex(*info.shape):
            try:
                out[i] = np.linalg.inv(x[i])
            except np.linalg.LinAlgError:
                out[i], info[i] = np.nan, 1
        if check_errors and info.any():
            raise LinAlgError("linalg.inv_ex: the input matrix is singular")
        return out, info

    def vjp(F, g, out, x, check_errors):
        y = out[0]
        return -F.matmul(F.matmul(t(F, y), g[0]), t(F, y))

    def samples(s):
        yield s(_well(s, 2, 3))


@op("linalg_det(A: Tensor) -> Tensor")
class linalg_det:
    """Determinants [..] of square matrices."""

    kind, host, tolerance, dtypes = HOST, True, TOLERANCE, "float"
    where = "linalg"

    def rule(x):
        return typed(x, matrix("linalg.det", x, True)[:-2])

    def eager(np, x):
        return np.linalg.det(x)

    def vjp(F, g, out, x):
        return F.unsqueeze(F.unsqueeze(g * out, -1), -1) * t(F, F.linalg_inv(x))

    def samples(s):
        yield s(_well(s))
        yield s(_well(s, 2, 2, 3))
        yield s.raises(RuntimeError, s.f(2, 3))


@op("linalg_slogdet(A: Tensor) -> named(sign=Tensor, logabsdet=Tensor)")
class linalg_slogdet:
    """The sign of the determinant and the logarithm of its absolute value."""

    kind, host, tolerance, nondiff, dtypes = HOST, True, TOLERANCE, (0,), "float"
    where = "linalg"

    def rule(x):
        shape = matrix("linalg.slogdet", x, True)[:-2]
        return typed(x, shape), typed(x, shape, x.dtype.to_real())

    def eager(np, x):
        return tuple(np.linalg.slogdet(x))

    def vjp(F, g, out, x):
        real_only("slogdet", x)
        return F.unsqueeze(F.unsqueeze(g[1], -1), -1) * t(F, F.linalg_inv(x))

    def samples(s):
        yield s(_well(s))
        yield s(_well(s, 2, 2, 3))


def older(name, target, result="Tensor"):
    """Declares `torch.name` and `Tensor.name`, what `torch.linalg` has under another name or place.
    """
    @op(f"{name}(input: Tensor) -> {result}")
    class made:
        rule, dtypes, tolerance, nondiff = target.rule, "float", TOLERANCE, target.nondiff
        __doc__ = f"`{target.places[0]}` as a function and method."

        def decomp(F, x):
            out = getattr(F, target.name)(x)
            return tuple(out) if isinstance(out, tuple) else out

        def samples(s):
            yield s(_well(s))
            yield s.raises(RuntimeError, s.f(2, 3))
    return made


older("inverse", linalg_inv)
older("det", linalg_det)
older("slogdet", linalg_slogdet, "named(sign=Tensor, logabsdet=Tensor)")


@op("logdet(input: Tensor) -> Tensor")
class logdet:
    """The logarithm of determinants: -inf for 0, NaN for negative ones."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(x):
        return typed(x, matrix("logdet", x, True)[:-2])

    def decomp(F, x):
        sign, log = F.linalg_slogdet(x)
        return F.where(sign < 0, float("nan"), log)

    def samples(s):
        yield s(positive(s))
        yield s(-positive(s))


def _vector(a, b):
    """Whether the right side of a system is a batch of vectors."""
    return len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1
                                 and tuple(b.shape) == tuple(a.shape[:-1]))


def _solved(np, a, b, left):
    try:
        if left:
            return np.linalg.solve(a, b)
        return np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.solve: The solver failed because the input matrix is singular."
                          ) from None


@op("linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor")
class linalg_solve:
    """X with A X = B (X A = B where not `left`); B [.., n, k], or [.., n] for vectors."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(a, b, left=True):
        shape = matrix("linalg.solve", a, True)
        if a.dtype is not b.dtype:
            raise RuntimeError("linalg.solve: Expected A and B to have the same dtype, but found "
                               f"A of type {a.dtype} and B of type {b.dtype} instead")
        vector = _vector(a, b)
        if not same(b.shape[-1] if vector or not left else b.shape[-2], shape[-1]):
            raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation "
                               f"{'AX' if left else 'XA'} = B ({shape[-2]}x{shape[-1]} and "
                               f"{'x'.join(map(str, b.shape[-2:]))})")
        if vector:
            return Spec(tuple(broadcast(shape[:-1], tuple(b.shape))), b.dtype, device_of((a, b)))
        head = broadcast(shape[:-2], tuple(b.shape[:-2]))
        return Spec((*head, *b.shape[-2:]), b.dtype, device_of((a, b)))

    def layout(spec, a, b, left):
        shape = tuple(spec.shape)
        return layout.column_major(shape) if left else layout.contiguous(shape)

    def eager(np, a, b, left):
        if _vector(a, b):
            return _solved(np, a, b[..., None], True)[..., 0]
        return _solved(np, a, b, left)

    def vjp(F, g, out, a, b, left):
        vector = _vector(a, b)
        made = []

        def right():
            if not made:
                rise = F.unsqueeze(g, -1) if vector else g
                made.append(F.linalg_solve(t(F, a), rise, left=left or vector))
            return F.squeeze(made[0], -1) if vector else made[0]

        def system():
            right()
            x = F.unsqueeze(out, -1) if vector else out
            return -F.matmul(made[0], t(F, x)) if left or vector else -F.matmul(t(F, x), made[0])
        return system, right

    def samples(s):
        yield s(_well(s), s.f(3, 2))
        yield s(_well(s, 3, 2), s.f(2, 3))
        yield s(_well(s), s.f(3))
        yield s(_well(s, 3, 2), s.f(3, 3, 2)[:1])
        yield s(_well(s), s.f(2, 3), left=False)
        yield s.raises(RuntimeError, _well(s), s.f(4, 2))
        yield s.raises(RuntimeError, s.f(3, 3) * 0, s.f(3, 2))


def _triangle(np, a, upper, unit):
    x = np.triu(a) if upper else np.tril(a)
    if unit:
        n = a.shape[-1]
        x[..., np.arange(n), np.arange(n)] = 1
    return x


@op("linalg_solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, "
    "unitriangular: bool = False) -> Tensor")
class linalg_solve_triangular:
    """`solve` for triangular A; only its triangle is read (not its diagonal where `unitriangular`).
    """

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True

    def rule(a, b, upper, left=True, unit=False):
        shape = matrix("linalg.solve_triangular", a, True)
        matrix("linalg.solve_triangular", b)
        if not same(b.shape[-2 if left else -1], shape[-1]):
            raise RuntimeError("linalg.solve_triangular: Incompatible shapes of A and B for the "
                               "equation "
                               f"{'AX' if left else 'XA'} = B ({shape[-2]}x{shape[-1]} and "
                               f"{b.shape[-2]}x{b.shape[-1]})")
        head = broadcast(shape[:-2], tuple(b.shape[:-2]))
        return Spec((*head, *b.shape[-2:]), b.dtype, device_of((a, b)))

    layout = layout.columns

    def eager(np, a, b, upper, left, unit):
        return _solved(np, _triangle(np, a, upper, unit), b, left)

    def vjp(F, g, out, a, b, upper, left, unit):
        made = []

        def right():
            if not made:
                made.append(F.linalg_solve_triangular(t(F, a), g, upper=not upper, left=left,
                                                      unitriangular=unit))
            return made[0]

        def system():
            full = -F.matmul(right(), t(F, out)) if left else -F.matmul(t(F, out), right())
            return F.triu(full, 1 if unit else 0) if upper else F.tril(full, -1 if unit else 0)
        return system, right

    def samples(s):
        yield s(_well(s), s.f(3, 2), upper=True)
        yield s(_well(s), s.f(3, 2), upper=False)
        yield s(_well(s, 3, 2), s.f(2, 3), upper=False, left=False)
        yield s(_well(s), s.f(3, 2), upper=True, unitriangular=True)
        yield s.raises(RuntimeError, _well(s), s.f(2, 3), upper=True)


@op("triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, "
    "unitriangular: bool = False) -> named(solution=Tensor, cloned_coefficient=Tensor)")
class triangular_solve:
    """X with A X = input for triangular A (or its transpose), and A."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(b, a, upper=True, transpose=False, unit=False):
        spec = linalg_solve_triangular.rule(a, b, upper, True, unit)
        return spec, Spec((*spec.shape[:-2], *a.shape[-2:]), a.dtype, spec.device)

    def decomp(F, b, a, upper, transpose, unit):
        system = t(F, a) if transpose else a
        x = F.linalg_solve_triangular(system, b, upper=upper != transpose, unitriangular=unit)
        return x, F.clone(F.expand(a, (*x.shape[:-2], *a.shape[-2:])))

    def samples(s):
        yield s(s.f(3, 2), _well(s))
        yield s(s.f(3, 2), _well(s), False, True)


# Cholesky


def _phi(F, x):
    """The lower triangle with its diagonal halved."""
    return F.tril(x) - F.diag_embed(F.diagonal(x, 0, -2, -1)) * 0.5


@op("linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor")
class linalg_cholesky:
    """L with A = L L^T (U with A = U^T U where `upper`) of symmetric positive-definite A."""

    kind, host, where, tolerance, dtypes = HOST, True, "linalg", TOLERANCE, "float"
    stops = True
    rule, layout = _squares("linalg.cholesky"), layout.columns

    def eager(np, x, upper):
        try:
            low = np.linalg.cholesky(x if not upper else x.swapaxes(-1, -2).conj())
        except np.linalg.LinAlgError:
            raise LinAlgError("linalg.cholesky: The factorization could not be completed because "
                              "the "
                              "input is not positive-definite.") from None
        return low.swapaxes(-1, -2).conj() if upper else low

    def vjp(F, g, out, x, upper):
        real_only("cholesky", x)
        low, g = (t(F, out), t(F, g)) if upper else (out, g)
        inner = _phi(F, F.matmul(t(F, low), g))
        inner = F.linalg_solve_triangular(t(F, low), inner, upper=True)
        inner = F.linalg_solve_triangular(low, inner, upper=False, left=False)
        return (inner + t(F, inner)) * 0.5

    def samples(s):  # float32: the gradient is that of a symmetric matrix, not of its entries
        yield s(positive(s, fixed=dt.float32))
        yield s(positive(s, 2, 3, fixed=dt.float32), upper=True)
        yield s.raises(RuntimeError, -positive(s))
        yield s.raises(RuntimeError, s.f(2, 3))


@op("cholesky(input: Tensor, upper: bool = False) -> Tensor")
class cholesky:
    """`linalg.cholesky` by its older name."""

    rule, tolerance, dtypes = _squares("cholesky"), TOLERANCE, "float"

    def decomp(F, x, upper):
        return F.linalg_cholesky(x, upper=upper)

    def samples(s):
        yield s(positive(s, fixed=dt.float32))
        yield s(positive(s, fixed=dt.float32), True)


@op("linalg_cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> "
    "named(L=Tensor, info=Tensor)")
class linalg_cholesky_ex:
    """`cholesky` with an int32 flag: 0, or the order of the first minor that is not positive."""

    kind, host, where, tolerance, nondiff, dtypes = HOST, True, "linalg", TOLERANCE, (1,), "float"
    stops = True

    def rule(x, upper=False, check_errors=False):
        shape = matrix("linalg.cholesky_ex", x, True)
        return typed(x, shape), typed(x, shape[:-2], dt.int32)

    layout = layout.columns

    def eager(np, x, upper, check_errors):
        out, info = np.zeros_like(x), np.zeros(x.shape[:-2], np.int32)
        for i in np.ndindex(*info.shape):
            try:
                out[i] = linalg_cholesky.eager(np, x[i], upper)
            except LinAlgError:
                info[i] = next(k for k in range(1, x.shape[-1] + 1)
                               if k == x.shape[-1] or not _factors(np, x[i][:k, :k]))
                if check_errors:
                    raise
        return out, info

    def vjp(F, g, out, x, upper, check_errors):
        return linalg_cholesky.vjp(F, g[0], out[0], x, upper)

    def samples(s):
        yield s(positive(s, fixed=dt.float32))


def _factors(np, x):
    try:
        np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return False
    return True


def _factor_grad(F, g, low, upper):
    """Gradient of a factor, its unread triangle included, from minus that of A, made symmetric."""
    low, both = (F.triu if upper else F.tril)(low), g + t(F, g)
    return -F.matmul(low, both) if upper else -F.matmul(both, low)


@op("cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor")
class cholesky_solve:
    """X with A X = input, from the Cholesky factor `input2` of A."""

    tolerance, dtypes = TOLERANCE, "float"

    def rule(b, low, upper=False):
        return linalg_solve_triangular.rule(low, b, upper)

    layout = layout.columns

    def decomp(F, b, low, upper):
        if upper:
            y = F.linalg_solve_triangular(t(F, low), b, upper=False)
            return F.linalg_solve_triangular(low, y, upper=True)
        y = F.linalg_solve_triangular(low, b, upper=False)
        return F.linalg_solve_triangular(t(F, low), y, upper=True)

    def vjp(F, g, out, b, low, upper):
        right = F.cholesky_solve(g, low, upper)
        return right, lambda: _factor_grad(F, F.matmul(right, t(F, out)), low, upper)

    def samples(s):
        yield s(s.f(3, 2), _well(s))
        yield s(s.f(2, 3, 2), _well(s, 3, 2), True)


@op("cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor")
class cholesky_inverse:
    """The inverse of A from its Cholesky factor."""

    rule, tolerance, dtypes = _squares("cholesky_inverse"), TOLERANCE, "float"
    layout = layout.columns

    def decomp(F, low, upper):
        eye = F.expand(F.eye(low.shape[-1], dtype=low.dtype, device=low.device), tuple(low.shape))
        return F.cholesky_solve(eye, low, upper)

    def vjp(F, g, out, low, upper):
        return _factor_grad(F, F.matmul(out, F.matmul(g, out)), low, upper)

    def samples(s):
        yield s(_well(s))
        yield s(_well(s, 3, 2), True)


# Functions made of these


@op("linalg_tensorinv(input: Tensor, ind: int = 2) -> Tensor")
class linalg_tensorinv:
    """The inverse of a tensor seen as a matrix of its first `ind` dimensions by the others."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(x, ind=2):
        rows, columns = _split(x, ind)
        if ind <= 0:
            raise RuntimeError("Expected a strictly positive integer for 'ind'")
        if not same(rows, columns):
            raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[ind:]) "
                               f"== prod(self.shape[:ind]), but got {columns} != {rows}")
        return typed(x, (*x.shape[ind:], *x.shape[:ind]))

    def decomp(F, x, ind):
        rows, columns = _split(x, ind)
        made = F.linalg_inv(F.reshape(x, (rows, columns)))
        return F.reshape(made, (*x.shape[ind:], *x.shape[:ind]))

    def samples(s):
        yield s(_well(s, 6).reshape(2, 3, 6))
        yield s(_well(s, 6).reshape(6, 3, 2), 1)


def _split(x, ind):
    rows = columns = 1
    for i, n in enumerate(x.shape):
        if i < ind:
            rows = rows * n
        else:
            columns = columns * n
    return rows, columns


@op("linalg_tensorsolve(A: Tensor, B: Tensor, dims: list[int] | None = None) -> Tensor")
class linalg_tensorsolve:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A move to its end first."""

    where, tolerance, dtypes = "linalg", TOLERANCE, "float"

    def rule(a, b, dims=None):
        order = _moved(a, dims)
        shape = tuple(a.shape[d] for d in order)[len(b.shape):]
        rows, columns = _split(a, 0)[1], _split(b, 0)[1]
        if isinstance(rows, int) and isinstance(columns, int) and rows != columns * columns:
            raise RuntimeError("Expected self to satisfy the requirement "
                               "prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim])")
        return typed(a, shape)

    def decomp(F, a, b, dims):
        a = F.permute(a, _moved(a, dims))
        n = _split(b, 0)[1]
        x = F.linalg_solve(F.reshape(a, (n, n)), F.reshape(b, (n,)))
        return F.reshape(x, tuple(a.shape[b.ndim:]))

    def samples(s):
        yield s(_well(s, 6).reshape(2, 3, 6), s.f(2, 3))
        yield s(_well(s, 6).reshape(6, 2, 3), s.f(6))


def _moved(a, dims):
    n = len(a.shape)
    last = [d % n for d in dims or ()]
    return (*(d for d in range(n) if d not in last), *last)


@op("linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor")
class linalg_vander:
    """Powers 0 .. N - 1 of every element, in a new last dimension."""

    where, dtypes = "linalg", "float"

    def rule(x, N=None):
        if not x.shape and N is None:
            raise RuntimeError("linalg.vander: a 0-D x needs N.")
        n = x.shape[-1] if N is None else N
        if isinstance(n, int) and n <= 1:
            raise RuntimeError("linalg.vander: N must be greater than 1.")
        return typed(x, (*(x.shape or (1,)), n))

    def decomp(F, x, N):
        x = x if x.shape else F.unsqueeze(x, 0)
        n = x.shape[-1] if N is None else N
        ones = F.full((*x.shape, 1), 1, dtype=x.dtype, device=x.device)
        return F.cumprod(F.cat([ones, F.expand(F.unsqueeze(x, -1), (*x.shape, n - 1))], -1), -1)

    def samples(s):
        yield s(s.f(3))
        yield s(s.f(2, 3), N=5)
        yield s(s.f(), N=3)


@op("matrix_exp(input: Tensor) -> Tensor")
class matrix_exp:
    """The exponential of square matrices: scaling, a series, squaring (Moler, Van Loan, 2003)."""

    kind, host, tolerance, dtypes, aliases = HOST, True, TOLERANCE, "float", ("linalg.matrix_exp",)

    def rule(x):
        return typed(x, matrix("linalg.matrix_exp", x, True, True))

    def eager(np, x):
        wide = x.astype(np.result_type(x, np.float64))
        size = np.abs(wide).sum(-1).max(-1, initial=0)
        squarings = np.maximum(np.ceil(np.log2(np.maximum(size, 1e-300) / 0.5)), 0).astype(int)
        wide = wide / (2.0 ** squarings)[..., None, None]
        term = total = np.broadcast_to(np.eye(x.shape[-1]), x.shape).astype(wide.dtype)
        for k in range(1, 19):  # 0.5 ** 18 / 18! is below the last place
            term = term @ wide / k
            total = total + term
        for k in range(int(squarings.max(initial=0))):
            total = np.where((squarings > k)[..., None, None], total @ total, total)
        return total.astype(x.dtype)

    def vjp(F, g, out, x):
        n = x.shape[-1]  # exp [[A^T, g], [0, A^T]] has the derivative in its corner
        top = F.cat([t(F, x), g], -1)
        low = F.cat([x * 0, t(F, x)], -1)
        block = F.matrix_exp(F.cat([top, low], -2))
        return F.narrow(F.narrow(block, -2, 0, n), -1, n, n)

    def samples(s):
        yield s(s.f(3, 3))
        yield s(s.f(2, 3, 3, domain=(-8.0, 8.0))[:, :2, :2])
        yield s.raises(RuntimeError, s.f(2, 3))

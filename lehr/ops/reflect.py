"""QR by Householder's reflections as LAPACK stores them (`geqrf`, `ormqr`), and the factors that
LU's packed form holds."""

from __future__ import annotations

from typing import Any

import numpy

from lehr.base import dtype as dt
from lehr.ops import layout
from lehr.ops.contract import transposed as t
from lehr.ops.factor import _smaller
from lehr.ops.linalg import TOLERANCE, matrix, typed
from lehr.ops.registry import HOST, op
from lehr.ops.rule import broadcast, same


@op("geqrf(input: Tensor) -> named(a=Tensor, tau=Tensor)")
class geqrf:
    """R in the upper triangle of `a`, below it the reflections' vectors without their leading 1;
    `tau` has their factors. No derivative, as in PyTorch: `linalg.qr` has one."""

    kind, host, tolerance, nondiff, dtypes = HOST, True, TOLERANCE, True, "float"
    layout = layout.columns

    def rule(x: Any) -> Any:
        shape = matrix("torch.geqrf", x)
        return typed(x, shape), typed(x, (*shape[:-2], _smaller(shape)))

    def eager(np: Any, x: Any) -> Any:
        if not x.size:
            return x, np.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
        packed, tau = np.linalg.qr(x, mode="raw")
        return packed.swapaxes(-1, -2), tau

    def samples(s: Any) -> Any:
        yield s(s.f(4, 3))
        yield s(s.f(2, 3, 4))
        yield s.raises(RuntimeError, s.f(3))


@op("ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) "
    "-> Tensor")
class ormqr:
    """Q @ other (other @ Q where not `left`) with the Q, or its adjoint, that `geqrf` stored."""

    tolerance, dtypes = TOLERANCE, "float"
    where = "function method"

    def rule(x: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
        shape = matrix("torch.ormqr", x)
        size = tuple(other.shape)
        if len(size) < 2:
            raise RuntimeError("torch.ormqr: other must have at least 2 dimensions.")
        if not same(size[-2 if left else -1], shape[-2]):
            raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to "
                               f"input.shape[-2], got {list(size)} and {list(shape)}")
        if len(size) != len(shape) or len(tau.shape) != len(shape) - 1:
            raise RuntimeError("torch.ormqr: input, tau and other must be batches of one rank, got "
                               f"{list(shape)}, {list(tau.shape)} and {list(size)}")
        if tau.shape[-1] > shape[-1]:
            raise RuntimeError("torch.ormqr: tau.shape[-1] must be less than or equal to "
                               f"input.shape[-1], got {tau.shape[-1]} and {shape[-1]}")
        for name, y in (("tau", tau), ("other", other)):
            if y.dtype is not x.dtype:
                raise RuntimeError(f"torch.ormqr: Expected input and {name} to have the same "
                                   f"dtype, but {name} has dtype {y.dtype} and input has dtype "
                                   f"{x.dtype}")
        head = broadcast(shape[:-2], size[:-2])
        return typed(other, (*head, *size[-2:]))

    def decomp(F: Any, x: Any, tau: Any, other: Any, left: bool, transpose: bool) -> Any:
        m, k = x.shape[-2], tau.shape[-1]
        eye = F.eye(m, dtype=x.dtype, device=x.device)
        low = F.tril(F.narrow(x, -1, 0, k), -1) + F.narrow(eye, 1, 0, k)
        imaginary = x.dtype.is_complex
        order = range(k) if left == transpose else reversed(range(k))
        for i in order:
            v = F.narrow(low, -1, i, 1)
            adjoint = F.conj(t(F, v)) if imaginary else t(F, v)
            scale = F.unsqueeze(F.narrow(tau, -1, i, 1), -1)
            scale = F.conj(scale) if imaginary and transpose else scale
            step = (F.matmul(v, F.matmul(adjoint, other)) if left
                    else F.matmul(F.matmul(other, v), adjoint))
            other = other - scale * step
        return other

    def samples(s: Any) -> Any:
        x, tau = (y.astype(s.floating.np) for y in geqrf.eager(
            numpy, numpy.asarray(s.f(4, 3), numpy.float64)))
        yield s(x, tau, s.f(4, 2))
        yield s(x, tau, s.f(2, 4), False, True)
        yield s.raises(RuntimeError, x, tau, s.f(3, 2))


@op("lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = "
    "True) -> named(P=Tensor, L=Tensor, U=Tensor)")
class lu_unpack:
    """P, L and U with P L U = A from `linalg.lu_factor(A)`; what is not asked for has no elements.
    """

    where, tolerance, nondiff, dtypes = "function", TOLERANCE, (0,), "float"

    def rule(lu: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
        shape = matrix("torch.lu_unpack", lu)
        if unpack_pivots and pivots.dtype is not dt.int32:
            raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor "
                               f"of torch.int32 dtype. Got {pivots.dtype}")
        (m, n), k, head = shape[-2:], _smaller(shape), shape[:-2]
        none = (0,)
        return (typed(lu, (*head, m, m) if unpack_pivots else none),
                typed(lu, (*head, m, k) if unpack_data else none),
                typed(lu, (*head, k, n) if unpack_data else none))

    def decomp(F: Any, lu: Any, pivots: Any, unpack_data: bool, unpack_pivots: bool) -> Any:
        m, k = lu.shape[-2], _smaller(lu.shape)
        none = F.full((0,), 0, dtype=lu.dtype, device=lu.device)
        p, low, up = none, none, none
        eye = F.eye(m, dtype=lu.dtype, device=lu.device)
        if unpack_pivots:
            p = t(F, F.linalg_permute_rows(F.expand(eye, (*lu.shape[:-2], m, m)), pivots))
            p = F.clone(p, memory_format="contiguous_format")
        if unpack_data:
            low = F.tril(F.narrow(lu, -1, 0, k), -1) + F.narrow(eye, -1, 0, k)
            up = F.triu(F.narrow(lu, -2, 0, k))
        return p, low, up

    def samples(s: Any) -> Any:
        for shape in ((3, 4), (4, 3)):
            yield s(s.f(*shape), numpy.array([2, 3, 3], numpy.int32))
        yield s(s.f(3, 3), numpy.array([3, 2, 3], numpy.int32), True, False)

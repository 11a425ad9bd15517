"""Truncated singular value decompositions by random projection (Halko, Martinsson, Tropp, 2011)."""

from __future__ import annotations

from typing import Any

from lehr.tensor.random import randn
from lehr.tensor.tensor import Tensor

F = Tensor.F


def _turned(x: Any) -> Any:
    made = F.transpose(x, -2, -1)
    return F.conj(made) if x.dtype.is_complex else made


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2,
                M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U [.., m, q], S [.., q], V [.., n, q] with A - M near U diag(S) V^H, after `niter` power
    iterations. The subspace is random: set the seed for the same result."""
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    if len(A.shape) < 2:
        raise ValueError(f"svd_lowrank needs a matrix [.., m, n], got {list(A.shape)}")
    m, n = A.shape[-2:]
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than "
                         f"min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    x = A if M is None else F.sub(A, F.expand(M, tuple(A.shape)))
    flip = m < n
    x = _turned(x) if flip else x
    start = randn(x.shape[-1], q, dtype=x.dtype, device=x.device)
    base = F.linalg_qr(F.matmul(x, start))[0]
    for _ in range(niter):
        base = F.linalg_qr(F.matmul(_turned(x), base))[0]
        base = F.linalg_qr(F.matmul(x, base))[0]
    u, s, vh = F.linalg_svd(F.matmul(_turned(base), x), False)
    left, right = F.matmul(base, u), _turned(vh)
    return (right, s, left) if flip else (left, s, right)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True,
                niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of A, with the mean of its rows taken off where `center`."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not center:
        return svd_lowrank(A, q, niter)
    return svd_lowrank(F.sub(A, F.mean(A, -2, True)), q, niter)


__all__ = ["pca_lowrank", "svd_lowrank"]

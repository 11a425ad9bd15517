"""Parametrizations: weight normalization, spectral normalization, orthogonality."""

from __future__ import annotations

from typing import Any

from lehr.nn import functional as F
from lehr.nn.module import Module
from lehr.nn.utils import parametrize
from lehr.tensor import random
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class _WeightNorm(Module):
    """g v / |v|, the norm over all dimensions but `dim` (Salimans & Kingma, 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """The weight."""
        return Tensor.F._weight_norm(weight_v, weight_g, self.dim)  # type: ignore[no-any-return]

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """(g, v) of a weight."""
        return Tensor.F.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Splits a weight into magnitude (original0) and direction (original1)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def old_names(state_dict: Any, prefix: str, *rest: Any) -> None:
        """Checkpoints of `nn.utils.weight_norm`."""
        pair = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in pair):
            for i, key in enumerate(pair):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)
    module._register_load_state_dict_pre_hook(old_names)
    return module


class _SpectralNorm(Module):
    """weight / its largest singular value, estimated by power iteration (Miyato et al., 2018)."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0,
                 eps: float = 1e-12) -> None:
        super().__init__()
        n = weight.ndim
        if dim >= n or dim < -n:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{n}, {n - 1}] "
                             "but got "
                             f"{dim})")
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + n
        self.eps = eps
        if n > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            rows, cols = matrix.shape
            for key, size in (("_u", rows), ("_v", cols)):
                drawn = Tensor.F.normal((size,), 0.0, 1.0, *random.take(None), dtype=weight.dtype,
                                        device=weight.device)
                self.register_buffer(key, F.normalize(drawn, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            order = (self.dim, *(d for d in range(weight.dim()) if d != self.dim))
            weight = weight.permute(*order)
        return weight.flatten(1)  # type: ignore[no-any-return]

    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        mv = Tensor.F.mv
        with no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(F.normalize(mv(weight_mat, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(mv(Tensor.F.t(weight_mat), self._u), dim=0,
                                          eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        """The normalized weight; one more iteration when training."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        sigma = Tensor.F.dot(u, Tensor.F.mv(matrix, v))
        return weight / sigma

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> Module:
    """Divides a weight by its spectral norm; `dim` is that of the outputs."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    parametrize.register_parametrization(module, name,
                                         _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


class _Orthogonal(Module):
    """An orthogonal (or semi-orthogonal) matrix, as the exponential or Cayley transform of a skew
    one."""

    def __init__(self, weight: Tensor, kind: str, use_trivialization: bool) -> None:
        super().__init__()
        self.kind = kind
        self.shape = tuple(weight.shape)
        if use_trivialization:
            self.register_buffer("base", _orthonormal(weight.detach()))

    def forward(self, X: Tensor) -> Tensor:
        """The orthogonal matrix of X."""
        G = Tensor.F
        n, k = X.size(-2), X.size(-1)
        wide = n < k
        if wide:
            X = X.mT
            n, k = k, n
        if self.kind == "householder":
            Q = _reflections(X)
        else:
            low = G.tril(X)
            if n != k:
                zeros = G.full((*X.shape[:-2], n, n - k), 0.0, dtype=X.dtype, device=X.device)
                low = G.cat([low, zeros], -1)
            skew = low - low.mH
            if self.kind == "matrix_exp":
                Q = G.matrix_exp(skew)
            else:
                eye = G.eye(n, dtype=skew.dtype, device=skew.device)
                Q = G.linalg_solve(eye - skew * 0.5, eye + skew * 0.5)
            Q = Q[..., :k] if n != k else Q
        if hasattr(self, "base"):
            Q = G.matmul(self.base, Q) if self.kind != "householder" else Q
        return Q.mT if wide else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        """What gives (a matrix near) Q; with a base, Q becomes the base and the parameter 0."""
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a "
                             "tensor of "
                             f"shape {Q.shape}.")
        if not hasattr(self, "base"):
            if self.kind != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential "
                                          "or the Cayley parametrizations when "
                                          "use_trivialization=False.")
            return Q
        wide = Q.size(-2) < Q.size(-1)
        tall = Q.mT if wide else Q
        self.base = _completed(_orthonormal(tall))
        zeros = Tensor.F.zeros_like(tall)
        return zeros.mT if wide else zeros  # type: ignore[no-any-return]


def _orthonormal(x: Tensor) -> Tensor:
    """The orthogonal factor of x, signs such that an orthonormal x stays."""
    q, r = Tensor.F.linalg_qr(x if x.size(-2) >= x.size(-1) else x.mT)
    q = q * Tensor.F.sign(Tensor.F.diagonal(r, 0, -2, -1)).unsqueeze(-2)
    return q if x.size(-2) >= x.size(-1) else q.mT


def _completed(q: Tensor) -> Tensor:
    """An orthogonal square matrix that begins with the columns of q."""
    n, k = q.size(-2), q.size(-1)
    if n == k:
        return q
    drawn = Tensor.F.normal((*q.shape[:-2], n, n - k), 0.0, 1.0, *random.take(None), dtype=q.dtype,
                            device=q.device)
    for _ in range(2):
        drawn = drawn - Tensor.F.matmul(q, Tensor.F.matmul(q.mT, drawn))
    return Tensor.F.cat([q, _orthonormal(drawn)], -1)  # type: ignore[no-any-return]


def _reflections(x: Tensor) -> Tensor:
    """The product of the Householder reflections of x's lower columns: [.., n, k]."""
    G = Tensor.F
    n, k = x.size(-2), x.size(-1)
    q = G.eye(n, k, dtype=x.dtype, device=x.device)
    for j in reversed(range(k)):
        v = x[..., j:, j:j + 1] if j else x[..., j:j + 1]  # type: ignore[index]
        v = v / G.linalg_vector_norm(v, 2, [-2], True)
        part = q[..., j:, :]
        part = part - v * 2.0 * G.matmul(v.mT, part)
        q = part if j == 0 else G.cat([q[..., :j, :].expand(*part.shape[:-2], j, k), part], -2)
    return q  # type: ignore[no-any-return]


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """Makes a weight orthogonal: orthogonal_map "matrix_exp" | "cayley" | "householder"."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} "
                         "dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         'Got: '
                         f"{orthogonal_map}")
    trivial = use_trivialization and orthogonal_map != "householder"
    parametrize.register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, trivial),
                                         unsafe=True)
    return module


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

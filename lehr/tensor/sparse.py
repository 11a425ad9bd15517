"""`torch.sparse` and what makes sparse tensors; lookups whose gradients are sparse.

Sparse tensors are lists of places (`lehr.tensor.coo`). Other layouts (csr, csc, bsr, bsc) raise.
"""

from __future__ import annotations

from typing import Any

from lehr.base import dtype as dt
from lehr.tensor import format
from lehr.tensor.coo import Coo, added, made, mm, picked, refuse, sum
from lehr.tensor.coo import addmm as _addmm
from lehr.tensor.create import as_tensor
from lehr.tensor.function import Function
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor

F = Tensor.F


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *,
                      dtype: Any = None, device: Any = None, pin_memory: bool = False,
                      requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> Coo:
    """The tensor with `values` [n, *dense] at `indices` [k, n]; equal places add up.

    size: [k sizes, *dense], by default as large as the places ask for. `requires_grad=True` makes a
    leaf; without it gradients flow to `values`. RuntimeError for places outside of `size`.
    """
    outside(indices, values)
    if values is None:
        size = tuple(indices if size is None else size)
        index = F.zeros((len(size), 0), dtype=dt.int64)
        held: Any = F.zeros((0,), dtype=dtype or dt.Default.dtype)
    else:
        held = as_tensor(values, dtype=dtype, device=device)
        index = F.to_dtype(as_tensor(indices, device=held.device), dt.int64)
    if len(index.shape) == 1:
        index = F.unsqueeze(index, 0)
    k, n = (int(m) for m in index.shape)
    if not held.shape and n == 1:
        held = F.reshape(held, [1])
    if not held.shape or int(held.shape[0]) != n:
        raise RuntimeError(f"number of indices {n} and number of values {list(held.shape)} differ: "
                           "indices [sparse dimensions, n] want values [n, *dense dimensions]")
    ends = F.amax(index, [1]).tolist() if n else [-1] * k
    if size is None:
        size = (*(end + 1 for end in ends), *held.shape[1:])
    size = tuple(int(m) for m in size)
    if len(size) != k + len(held.shape) - 1 or size[k:] != tuple(held.shape[1:]):
        raise RuntimeError(f"size {list(size)} does not fit indices {list(index.shape)} and values "
                           f"{list(held.shape)}")
    if n and (any(end >= m for end, m in zip(ends, size, strict=False))
              or int(F.amin(index).item()) < 0):
        raise RuntimeError("size is inconsistent with indices: an index is outside of "
                           f"{list(size)} (the greatest are {ends})")
    if requires_grad:
        held = held.detach().requires_grad_()
    return made(index, held, size, bool(is_coalesced) or n < 2)


def legacy(*args: Any, **kwargs: Any) -> Coo:
    """`torch.sparse.FloatTensor(indices, values, size)`."""
    return sparse_coo_tensor(*args, **kwargs)


FloatTensor = DoubleTensor = LongTensor = IntTensor = HalfTensor = legacy


def outside(*tensors: Any) -> None:
    """A capture stops before sparse tensors are made or read."""
    if STATE.tracer is not None:
        STATE.tracer.sparse()


def to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Any = None,
              **kwargs: Any) -> Coo:
    """The elements that are not zero, by their places; `sparse_dim`: how many dimensions these have
    (all by default). The other layouts raise NotImplementedError."""
    outside()
    if layout not in (None, format.sparse_coo) or kwargs:
        refuse(f"to_sparse(layout={layout})")
    n = len(self._shape)
    k = n if sparse_dim is None else sparse_dim
    if not 0 <= k <= n or (k == 0 and n):
        raise RuntimeError(f"sparse_dim must be between 1 and {n}, got {k}")
    full = F.ne(self, 0)
    full = F.any(F.reshape(full, [*self._shape[:k], -1]), -1) if k < n else full
    index = F.transpose(F.nonzero(full), 0, 1)
    there = made(index, F.zeros((int(index.shape[1]),)), self._shape, True)
    return made(index, picked(self, there), self._shape, True)


def to_sparse_coo(self: Tensor) -> Coo:
    """`to_sparse()`."""
    return to_sparse(self)


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself (in `dtype`): it is dense."""
    return self if dtype is None else F.to_dtype(self, dtype)


def sparse_mask(self: Tensor, mask: Any) -> Coo:
    """The elements at the places of the sparse tensor `mask`."""
    outside()
    if not isinstance(mask, Coo):
        raise RuntimeError("sparse_mask expects a sparse mask")
    if tuple(self._shape) != mask._shape:
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size "
                           f"{list(self._shape)} but mask has size {list(mask._shape)}")
    return mask._with(picked(self, mask))


def _strided(name: str) -> Any:
    def ask(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got Strided")
    ask.__name__ = name
    return ask


coalesce, indices, values, _indices, _values, _nnz = (
    _strided(n) for n in ("coalesce", "indices", "values", "_indices", "_values", "_nnz"))


def sparse_dim(self: Tensor) -> int:
    """0: all dimensions are dense."""
    return 0


def dense_dim(self: Tensor) -> int:
    """How many dimensions."""
    return len(self._shape)


def spmm(input: Any, mat2: Any) -> Any:
    """`sparse.mm`."""
    outside()
    return mm(input, mat2)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * mat + alpha * (mat1 @ mat2), mat1 sparse."""
    outside()
    return _addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Coo:
    """beta * input + alpha * (mat1 @ mat2) at the places of the sparse matrix `input`."""
    outside()
    mine = input.coalesce()
    rows = F.index_select(mat1, 0, mine._index[0])
    columns = F.transpose(F.index_select(mat2, 1, mine._index[1]), 0, 1)
    dots = F.sum(F.mul(rows, columns), [1])
    return mine._with(F.add(F.mul(mine._held, beta), F.mul(dots, alpha)))


def spdiags(diagonals: Any, offsets: Tensor, shape: Any, layout: Any = None) -> Coo:
    """The matrix of `shape` with row i of `diagonals` on diagonal offsets[i], by columns."""
    outside()
    if layout not in (None, format.sparse_coo):
        refuse(f"spdiags(layout={layout})")
    diagonals = F.reshape(diagonals, [-1, diagonals._shape[-1]])
    places, held = [], []
    for i, offset in enumerate(F.reshape(offsets, [-1]).tolist()):
        first, last = max(0, offset), min(shape[1], shape[0] + offset, diagonals._shape[1])
        columns = F.arange(first, max(first, last))
        places.append(F.stack([F.sub(columns, offset), columns], 0))
        held.append(F.index_select(diagonals[i], 0, columns))
    return made(F.cat(places, 1), F.cat(held, 0), tuple(shape), False).coalesce()


# -- lookups


class Lookup(Function):
    """Rows of a table; the gradient of the table has the rows that were read."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor, padding_idx: int | None,
                scale: bool) -> Tensor:
        """weight [rows, dim], index [*] -> [*, dim]."""
        ctx.save_for_backward(index)
        ctx.shape, ctx.padding, ctx.scale = tuple(weight._shape), padding_idx, scale
        rows: Tensor = F.embedding(index, weight, padding_idx, None, 2.0, scale)
        return rows

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """A sparse gradient, not coalesced."""
        if ctx.scale:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse "
                               "gradients")
        rows, dim = ctx.shape
        line, held = F.reshape(ctx.saved_tensors[0], [-1]), F.reshape(g, [-1, dim])
        line = F.to_dtype(line, dt.int64)
        if ctx.padding is not None:
            kept = F.reshape(F.nonzero(F.ne(line, ctx.padding % rows)), [-1])
            line, held = F.index_select(line, 0, kept), F.index_select(held, 0, kept)
        return made(F.unsqueeze(line, 0), held, ctx.shape, False), None, None, None


def lookup(weight: Tensor, index: Tensor, padding_idx: int | None, scale: bool) -> Tensor:
    """`nn.functional.embedding(sparse=True)` of a table that requires a gradient."""
    outside()
    return Lookup.apply(weight, index, padding_idx, scale)  # type: ignore[no-any-return]


# -- optimizer steps


def sgd_step(p: Tensor, grad: Coo, buffer: Any, lr: Any, momentum: Any, dampening: Any,
             weight_decay: Any, nesterov: bool, maximize: bool, first: bool) -> None:
    """p -= lr * grad, in the rows of the gradient."""
    if momentum or weight_decay:
        raise RuntimeError("SGD of sparse gradients takes no momentum and no weight_decay: every "
                           "row would move at every step; use grad.to_dense(), or SparseAdam")
    added(p, grad, lr if maximize else -lr)


def adagrad_step(p: Tensor, grad: Coo, total: Tensor, step: Tensor, lr: Any, lr_decay: Any,
                 eps: Any, weight_decay: Any, maximize: bool) -> None:
    """Adagrad in the rows of the gradient."""
    if weight_decay:
        raise RuntimeError("weight_decay option is not compatible with sparse gradients")
    step.add_(1)
    g = grad.coalesce()
    held = F.neg(g._held) if maximize else g._held
    added(total, g._with(F.mul(held, held)))
    root = F.add(F.sqrt(picked(total, g)), eps)
    added(p, g._with(F.div(held, root)), -lr / (1 + (step.item() - 1) * lr_decay))


def adam_rows(p: Tensor, grad: Coo, mean: Tensor, square: Tensor, step: int, lr: Any,
              betas: tuple[float, float], eps: float, maximize: bool) -> None:
    """Adam in the rows of the gradient alone: the means of other rows do not decay."""
    g = grad.coalesce()
    held = F.neg(g._held) if maximize else g._held
    b1, b2 = betas
    old, old_square = picked(mean, g), picked(square, g)
    change = F.mul(F.sub(held, old), 1 - b1)
    square_change = F.mul(F.sub(F.mul(held, held), old_square), 1 - b2)
    added(mean, g._with(change))
    added(square, g._with(square_change))
    root = F.add(F.sqrt(F.add(square_change, old_square)), eps)
    scale = lr * (1 - b2 ** step) ** 0.5 / (1 - b1 ** step)
    added(p, g._with(F.div(F.add(change, old), root)), -scale)


STEPS: dict[str, Any] = {"sgd_step": sgd_step, "adagrad_step": adagrad_step}


def update(name: str, args: tuple[Any, ...]) -> None:
    """An optimizer's step with a sparse gradient."""
    step = STEPS.get(name)
    if step is None:
        raise RuntimeError(f"{name.removesuffix('_step')} does not support sparse gradients: use "
                           "optim.SparseAdam, SGD or Adagrad, or layers without sparse=True")
    step(*args)


__all__ = ["Coo", "FloatTensor", "addmm", "mm", "sampled_addmm", "sparse_coo_tensor", "spdiags",
           "spmm", "sum"]

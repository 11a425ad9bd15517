"""`SparseAdam`: Adam in the rows that a sparse gradient has."""

from __future__ import annotations

from typing import Any

from lehr.optim.optimizer import Optimizer, ParamsT
from lehr.optim.rate import check, check_betas
from lehr.tensor.tensor import Tensor


class SparseAdam(Optimizer):
    """Adam (Kingma & Ba, 2014) of sparse gradients (`nn.Embedding(sparse=True)`): rows that a
    gradient does not have stay as they are, and so do their running means."""

    def __init__(self, params: ParamsT, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, maximize: bool = False) -> None:
        if not 0 < lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        check(eps=eps)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        odd = [i for i, p in enumerate(p for g in self.param_groups for p in g["params"])
               if p.is_sparse]
        if odd:
            raise ValueError(f"Sparse params at indices {odd}: SparseAdam requires dense parameter "
                             "tensors")

    def step(self, closure: Any = None) -> Any:
        """One step; `closure` computes the loss again and returns it."""
        return self._stepped(closure)

    def _update(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if not grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please "
                                       "consider Adam instead")
                self._move(p, grad, group)

    def _move(self, p: Tensor, grad: Any, group: dict[str, Any]) -> None:
        from lehr.tensor.sparse import adam_rows
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=Tensor.F.zeros_like(p), exp_avg_sq=Tensor.F.zeros_like(p))
        state["step"] += 1
        lr = group["lr"]
        adam_rows(p, grad, state["exp_avg"], state["exp_avg_sq"], state["step"],
                  lr.item() if isinstance(lr, Tensor) else lr, group["betas"], group["eps"],
                  group["maximize"])

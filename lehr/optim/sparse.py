"""`SparseAdam`, which lehr has not: its gradients are dense."""

from __future__ import annotations

from typing import Any

from lehr.optim.optimizer import Optimizer, ParamsT


class SparseAdam(Optimizer):
    """Adam of sparse gradients. lehr has dense gradients alone, so this says so at once."""

    def __init__(self, params: ParamsT, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "optim.SparseAdam is for sparse gradients, and lehr's are dense (also those of "
            "embeddings with sparse=True): use optim.Adam, whose steps on a dense gradient are "
            "defined for every row")

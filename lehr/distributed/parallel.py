"""`DistributedDataParallel`: one model in each process, with the mean of all gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from lehr.distributed import collective, world
from lehr.nn.module import Module
from lehr.tensor.mode import no_grad
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class DistributedDataParallel(Module):
    """Calls `module`; after each backward pass every gradient is the mean over the group.

    Parameters and buffers start as those of the first process; with broadcast_buffers buffers
    become its again before each forward pass in training. Gradients are exchanged when the pass is
    over, by dtype. With find_unused_parameters, parameters that a pass did not use count as zero
    gradients where another process used them; without, such a pass raises in every process
    (RuntimeError, which names them).
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
                 process_group: Any = None, bucket_cap_mb: float | None = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 **options: Any) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = device_ids, output_device
        self.broadcast_buffers, self.process_group = broadcast_buffers, process_group
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.require_backward_grad_sync = True
        self._live = [p for p in module.parameters() if p.requires_grad]
        if not self._live:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have "
                               "any parameters that require a gradient.")
        self._waiting: Any = None
        self._used: set[int] = set()    # ids of parameters that the pass has reached
        world.resolve(process_group)
        if init_sync:
            for t in [*module.parameters(), *module.buffers()]:
                collective.broadcast(t.detach(), group_src=0, group=process_group)
        for p in self._live:
            p.register_post_accumulate_grad_hook(self._arrived)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        if self.broadcast_buffers and self.training and self.require_backward_grad_sync:
            for t in self.module.buffers():
                collective.broadcast(t.detach(), group_src=0, group=self.process_group)
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside exchange nothing: gradients add up in each process."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: give every process the same number of batches."""
        raise NotImplementedError("DistributedDataParallel.join: give every process the same "
                                  "number of batches (DistributedSampler does)")

    def _arrived(self, p: Tensor) -> None:
        walk = STATE.walk
        if walk is not self._waiting:
            self._used = set()
        self._used.add(id(p))
        if self.require_backward_grad_sync and walk is not self._waiting:
            self._waiting = walk
            walk.after.append(self._exchange)

    def _exchange(self) -> None:
        self._waiting = None
        size = world.get_world_size(self.process_group)
        if size == 1:
            return
        if not self.find_unused_parameters:
            self._check_used(size)
        kinds: dict[Any, list[Tensor]] = {}
        for p in self._live:
            kinds.setdefault(p.dtype, []).append(p)
        with no_grad():
            for params in kinds.values():
                self._mean(params)

    def _check_used(self, size: int) -> None:
        """RuntimeError in every process where one of them did not reach a parameter."""
        live = [p for p in self._live if p.requires_grad]
        count = Tensor._from_array(np.array([id(p) in self._used for p in live], np.int32))
        collective.all_reduce(count, collective.ReduceOp.SUM, self.process_group)
        missed = [p for p, n in zip(live, count.tolist(), strict=True) if n < size]
        if not missed:
            return
        mine = [name for name, p in self.module.named_parameters()
                if any(p is q for q in missed) and id(p) not in self._used]
        found: list[Any] = [None] * size
        collective.all_gather_object(found, mine, self.process_group)
        told = "; ".join(f"rank {r}: {', '.join(names)}" for r, names in enumerate(found) if names)
        raise RuntimeError(
            "Expected to have finished reduction: parameters that were not used in producing the "
            f"loss got no gradient in this backward pass ({told}). Use them, freeze them "
            "(requires_grad_(False)), or pass find_unused_parameters=True to "
            "DistributedDataParallel.")

    def _mean(self, params: list[Tensor]) -> None:
        used = Tensor._from_array(np.array([p.grad is not None for p in params], np.uint8))
        collective.all_reduce(used, collective.ReduceOp.MAX, self.process_group)
        params = [p for p, u in zip(params, used.tolist(), strict=True) if u]
        if not params:
            return
        rows = [np.zeros(p.numel(), p.dtype.np) if p.grad is None
                else np.ascontiguousarray(p.grad._array).reshape(-1) for p in params]
        flat = Tensor._from_array(np.concatenate(rows))
        collective.all_reduce(flat, collective.ReduceOp.AVG, self.process_group)
        at = 0
        for p in params:
            part = flat[at:at + p.numel()].view(tuple(p.shape))  # type: ignore[index]
            at += p.numel()
            if p.grad is None:
                p.grad = part.clone()
            else:
                p.grad.copy_(part)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": None}


__all__ = ["DistributedDataParallel"]

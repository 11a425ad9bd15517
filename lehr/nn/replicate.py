"""Copies of a module on several devices of one process."""

from __future__ import annotations

from typing import Any

from lehr.nn.module import Module


class DataParallel(Module):
    """Splits batches over the GPUs of one process.

    With at most one device it calls the module, as PyTorch does. More devices in one process are
    not supported: use one process for each (`DistributedDataParallel`).
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                "nn.DataParallel over several devices of one process is not supported: start one "
                "process for each GPU and use nn.parallel.DistributedDataParallel")
        self.module, self.dim = module, dim
        self.device_ids = list(device_ids or [])
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*inputs, **kwargs)


__all__ = ["DataParallel"]

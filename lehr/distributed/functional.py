"""Collectives that return their result and write nothing
(`torch.distributed._functional_collectives`).

A group is a ProcessGroup, a DeviceMesh of one dimension, or a (mesh, dimension). Nothing is
recorded for backward, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from lehr.distributed import collective
from lehr.distributed.device_mesh import DeviceMesh
from lehr.distributed.world import ProcessGroup, resolve
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


def _group(group: Any) -> ProcessGroup:
    if isinstance(group, tuple):
        return resolve(group[0].get_group(group[1]))
    return resolve(group.get_group() if isinstance(group, DeviceMesh) else group)


def _first(t: Tensor, dim: int) -> Tensor:
    """A copy whose dimension `dim` comes first."""
    return t.detach().movedim(dim, 0).contiguous().clone()


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: collectives are done when they return."""
    return tensor


@no_grad()
def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The sum (or `reduceOp`: avg, product, min, max, band, bor, bxor) over the group."""
    made = self.detach().clone()
    collective.all_reduce(made, reduceOp.lower(), _group(group))
    return made


@no_grad()
def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """The tensor of process `src`."""
    made = self.detach().clone()
    collective.broadcast(made, src, _group(group))
    return made


@no_grad()
def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Every process's tensor, joined along `gather_dim`."""
    g, given = _group(group), _first(self, gather_dim)
    made = given.new_empty((g.size() * given.shape[0], *given.shape[1:]))
    collective.all_gather_into_tensor(made, given, g)
    return made.movedim(0, gather_dim).contiguous()


@no_grad()
def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any,
                          tag: str = "") -> Tensor:
    """This process's part, along `scatter_dim`, of what `all_reduce` gives."""
    g, given = _group(group), _first(self, scatter_dim)
    if given.shape[0] % g.size():
        raise ValueError(f"dimension {scatter_dim} of size {given.shape[0]} does not divide into "
                         f"{g.size()} parts")
    made = given.new_empty((given.shape[0] // g.size(), *given.shape[1:]))
    collective.reduce_scatter_tensor(made, given, reduceOp.lower(), g)
    return made.movedim(0, scatter_dim).contiguous()


@no_grad()
def all_to_all_single(self: Tensor, output_split_sizes: list[int] | None,
                      input_split_sizes: list[int] | None, group: Any, tag: str = "") -> Tensor:
    """Parts exchanged between all, along the first dimension."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    made = self.new_empty((rows, *self.shape[1:]))
    collective.all_to_all_single(made, self.detach().contiguous(), output_split_sizes,
                                 input_split_sizes, _group(group))
    return made

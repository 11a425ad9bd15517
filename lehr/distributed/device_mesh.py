"""Processes as a grid: a group of processes for every line along every dimension."""

from __future__ import annotations

import math
from typing import Any

from lehr.base import dtype as dt
from lehr.distributed.world import (
    ProcessGroup,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)
from lehr.tensor.create import as_tensor
from lehr.tensor.tensor import Tensor


class DeviceMesh:
    """`mesh`: int tensor (or nested lists) of ranks. All processes make the same one, in order.

    Attributes: device_type, mesh, mesh_dim_names (one name a dimension, or None), shape, ndim.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Any = None,
                 _groups: list[ProcessGroup] | None = None) -> None:
        self.device_type = device_type
        self.mesh: Any = as_tensor(mesh, dtype=dt.int32)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        ranks = self.mesh.reshape(-1).tolist()
        if len(set(ranks)) != len(ranks):
            raise RuntimeError(f"DeviceMesh cannot hold a rank twice: {ranks}")
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError(f"mesh_dim_names {self.mesh_dim_names} should have a name for each "
                               f"of {self.mesh.ndim} dimensions")
        if not is_initialized():
            init_process_group()
        if any(not 0 <= r < get_world_size() for r in ranks):
            raise RuntimeError(f"Mesh should not be bigger than the world of {get_world_size()} "
                               f"processes, but found ranks {ranks}")
        self._groups = self._made() if _groups is None else _groups

    def _made(self) -> list[ProcessGroup]:
        """The group of each dimension that this process is in; every process makes them all."""
        rank, own = get_rank(), []
        for dim in range(self.mesh.ndim):
            for line in self.mesh.movedim(dim, -1).reshape(-1, self.mesh.shape[dim]).tolist():
                made = new_group(line)
                if rank in line:
                    own.append(made)
        return own

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(int(n) for n in self.mesh.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        return int(self.mesh.ndim)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes, in all or along a dimension."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def _dim(self, dim: int | str | None) -> int:
        if dim is None:
            if self.ndim != 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional "
                                   "kwarg `mesh_dim` needs to be specified when device_mesh.ndim "
                                   "> 1.")
            return 0
        if isinstance(dim, str):
            if dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Mesh dimension '{dim}' does not exist: there are "
                               f"{self.mesh_dim_names}")
            return self.mesh_dim_names.index(dim)  # type: ignore[union-attr]
        return dim

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this process along a dimension."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this process, one a dimension."""
        return [self.get_group(i) for i in range(self.ndim)]

    def get_rank(self) -> int:
        """This process's rank among all."""
        return get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this process stands; None outside of the mesh."""
        found = (self.mesh == get_rank()).nonzero().tolist()
        return found[0] if found else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's place along a dimension."""
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError(f"rank {get_rank()} is not in the mesh")
        return place[self._dim(mesh_dim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along named dimensions that this process is in; it shares groups."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim(n) for n in wanted]
        if dims != sorted(dims):
            raise KeyError(f"mesh dimensions have to be in order: {wanted} of "
                           f"{self.mesh_dim_names}")
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError(f"rank {get_rank()} is not in the mesh")
        part = self.mesh[tuple(slice(None) if i in dims else place[i] for i in range(self.ndim))]
        return DeviceMesh(self.device_type, part, mesh_dim_names=wanted,
                          _groups=[self._groups[d] for d in dims])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return (self.device_type, self.shape, tuple(self.mesh.reshape(-1).tolist()),
                self.mesh_dim_names)

    def __repr__(self) -> str:
        sizes: Any = self.shape
        if self.mesh_dim_names is not None:
            sizes = "(" + ", ".join(f"{k}={n}" for k, n in zip(self.mesh_dim_names, self.shape,
                                                              strict=True)) + ")"
        return f"DeviceMesh({sizes}, device: '{self.device_type}')"


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *,
                     mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
    """The mesh of all ranks, in order, in a grid of `mesh_shape`."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique: {mesh_dim_names}")
        if len(mesh_dim_names) != len(mesh_shape):
            raise RuntimeError(f"mesh_shape {tuple(mesh_shape)} and mesh_dim_names "
                               f"{tuple(mesh_dim_names)} should have the same length")
    if not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}.")
    ranks: Tensor = Tensor.F.reshape(Tensor.F.arange(math.prod(mesh_shape)), list(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]

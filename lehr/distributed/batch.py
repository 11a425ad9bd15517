"""Messages between single processes, sent and received together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.distributed import collective
from lehr.distributed.world import Work, resolve
from lehr.tensor.tensor import Tensor


class P2POp:
    """One message: `op` is `isend` or `irecv`, `peer` the other process's number in the whole,
    `group_peer` its number in the group."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None,
                 group: Any = None, tag: int = 0, group_peer: int | None = None) -> None:
        if op not in (collective.isend, collective.irecv):
            raise RuntimeError("Invalid ``op``. Expected ``op`` to be of type "
                               "``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.group, self.tag = op, tensor, resolve(group), tag
        self.root = collective._root(self.group, peer, group_peer)
        self.peer, self.group_peer = self.group.ranks[self.root], self.root
        if self.root == self.group.rank():
            raise ValueError(f"process {self.peer} sends itself nothing: copy the tensor")


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Does all messages at once, in whatever order the others do theirs; done when it returns."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv expects a list of P2POp that is not empty")
    group = p2p_op_list[0].group
    if any(p.group is not group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    every = [collective._flat(p.tensor).view(np.uint8) for p in p2p_op_list]
    ways: dict[Any, dict[int, list[np.ndarray]]] = {collective.isend: {}, collective.irecv: {}}
    for p, a in zip(p2p_op_list, every, strict=True):  # messages between two follow each other
        ways[p.op].setdefault(p.root, []).append(a)
    sending, filling = ([(root, np.concatenate(parts)) for root, parts in ways[op].items()]
                        for op in (collective.isend, collective.irecv))
    collective._swap(group, sending, filling)
    left = dict(filling)
    for p, a in zip(p2p_op_list, every, strict=True):
        if p.op is collective.irecv:
            collective._write(p.tensor, left[p.root][:a.size])
            left[p.root] = left[p.root][a.size:]
    return [Work(p.tensor) for p in p2p_op_list]

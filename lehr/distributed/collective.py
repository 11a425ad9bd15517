"""Operations of a whole group: each process calls them with tensors of the same shape and dtype.

Sums run around a ring, so every process gets the same bits; tensors are written in place.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from lehr.distributed.world import GroupMember, ProcessGroup, Work, resolve
from lehr.tensor.mode import no_grad
from lehr.tensor.tensor import Tensor


class ReduceOp:
    """How values of several processes become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = (
        "sum", "avg", "product", "min", "max", "band", "bor", "bxor")


FUNCTIONS: dict[str, Any] = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def _member(group: Any) -> ProcessGroup | None:
    """The group, None for a process outside it, which does nothing."""
    return None if group == GroupMember.NON_GROUP_MEMBER else resolve(group)


def _flat(t: Any, what: str = "tensor") -> np.ndarray:
    """A copy of a tensor's elements in a row."""
    if not isinstance(t, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{what}` of type "
                        f"torch.Tensor but got {type(t)} instead.")
    return np.array(t.detach()._array, order="C").reshape(-1)


def _write(t: Tensor, flat: np.ndarray) -> None:
    with no_grad():
        made = Tensor._from_array(np.ascontiguousarray(flat.view(np.uint8)))
        t.detach().copy_(made.view(t.dtype).view(tuple(t.shape)))


def _bytes(a: np.ndarray) -> Any:
    return a.view(np.uint8)


def _done(async_op: bool, value: Any = None) -> Any:
    return Work(value) if async_op else None


def _swap(g: ProcessGroup, out: list[tuple[int, np.ndarray]],
          into: list[tuple[int, np.ndarray]]) -> None:
    g.mesh.exchange([(g.ranks[r], _bytes(a)) for r, a in out],
                    [(g.ranks[r], _bytes(a)) for r, a in into])


def _fold(op: str, dtype: np.dtype) -> Any:
    if op not in FUNCTIONS:
        raise ValueError(f"unknown ReduceOp {op!r}")
    if op in ("sum", "avg", "product") and dtype == np.bool_:
        raise RuntimeError("Invalid scalar type: bool tensors cannot be summed")
    return FUNCTIONS[op]


def _scatter_ring(g: ProcessGroup, a: np.ndarray, op: str) -> list[np.ndarray]:
    """The parts of `a`; the one of this process's number is reduced over the group."""
    n, me, fold = g.size(), g.rank(), _fold(op, a.dtype)
    parts = np.array_split(a, n)
    right, left = (me + 1) % n, (me - 1) % n
    for step in range(n - 1):
        give, take = parts[(me - step - 1) % n], parts[(me - step - 2) % n]
        got = np.empty_like(take)
        _swap(g, [(right, give)], [(left, got)])
        fold(take, got, out=take)
    if op == "avg":
        parts[me][...] = parts[me] / n
    return parts


def _gather_ring(g: ProcessGroup, parts: list[np.ndarray]) -> None:
    """Fills every part with that of the process of its number."""
    n, me = g.size(), g.rank()
    for step in range(n - 1):
        _swap(g, [((me + 1) % n, parts[(me - step) % n])],
              [((me - 1) % n, parts[(me - step - 1) % n])])


def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: Any = None,
               async_op: bool = False) -> Any:
    """Every process's tensor becomes the reduction of all."""
    g = _member(group)
    if g is not None and g.size() > 1:
        a = _flat(tensor)
        _gather_ring(g, _scatter_ring(g, a, op))
        _write(tensor, a)
    return _done(async_op, [tensor])


def reduce(tensor: Tensor, dst: int | None = None, op: str = ReduceOp.SUM, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Any:
    """The tensor of process `dst` becomes the reduction of all; the others' stay."""
    g = _member(group)
    if g is not None and g.size() > 1:
        a = _flat(tensor)
        _gather_ring(g, _scatter_ring(g, a, op))
        if g.rank() == _root(g, dst, group_dst):
            _write(tensor, a)
    return _done(async_op, [tensor])


def _root(g: ProcessGroup, number: int | None, inside: int | None) -> int:
    """A root's number in the group, from its number in the whole or in the group."""
    return inside if inside is not None else g.ranks.index(0 if number is None else number)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Any:
    """Every process's tensor becomes that of process `src`."""
    g = _member(group)
    if g is not None and g.size() > 1:
        a, root = _flat(tensor), _root(g, src, group_src)
        _spread(g, a, root)
        if g.rank() != root:
            _write(tensor, a)
    return _done(async_op, [tensor])


def _spread(g: ProcessGroup, a: np.ndarray, root: int) -> None:
    if g.rank() == root:
        _swap(g, [(r, a) for r in range(g.size()) if r != root], [])
    else:
        _swap(g, [], [(root, a)])


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None,
               async_op: bool = False) -> Any:
    """tensor_list[i] becomes the tensor of process i."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    mine = _flat(tensor)
    rows = [mine if r == g.rank() else _flat(t) for r, t in enumerate(tensor_list)]
    if len(rows) != g.size():
        raise ValueError(f"all_gather needs {g.size()} tensors, got {len(rows)}")
    _gather_ring(g, rows)
    for t, row in zip(tensor_list, rows, strict=True):
        _write(t, row)
    return _done(async_op, [list(tensor_list)])


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None,
                           async_op: bool = False) -> Any:
    """`output_tensor` becomes the tensors of all, one after the other."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    mine, whole = _flat(input_tensor), _flat(output_tensor)
    if whole.size != mine.size * g.size():
        raise ValueError(f"the output needs {mine.size * g.size()} elements, it has {whole.size}")
    parts = np.split(whole, g.size())
    parts[g.rank()][...] = mine
    _gather_ring(g, parts)
    _write(output_tensor, whole)
    return _done(async_op, [output_tensor])


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: str = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Any:
    """`output` becomes this process's part of the reduction of all inputs."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    a = _flat(input)
    if a.size != output.numel() * g.size():
        raise ValueError(f"the input needs {output.numel() * g.size()} elements, it has {a.size}")
    _write(output, _scatter_ring(g, a, op)[g.rank()])
    return _done(async_op, [output])


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM,
                   group: Any = None, async_op: bool = False) -> Any:
    """`output` becomes the reduction of every process's input_list[this process's number]."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    whole = Tensor._from_array(np.concatenate([_flat(t) for t in input_list]))
    return reduce_scatter_tensor(output, whole, op, group, async_op)


def gather(tensor: Tensor, gather_list: Any = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Any:
    """At process `dst` gather_list[i] becomes the tensor of process i."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    root, mine = _root(g, dst, group_dst), _flat(tensor)
    if g.rank() != root:
        _swap(g, [(root, mine)], [])
        return _done(async_op)
    rows = [np.empty_like(mine) for _ in range(g.size())]
    rows[root] = mine
    _swap(g, [], [(r, rows[r]) for r in range(g.size()) if r != root])
    for t, row in zip(gather_list, rows, strict=True):
        _write(t, row)
    return _done(async_op, [gather_list])


def scatter(tensor: Tensor, scatter_list: Any = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Any:
    """Process i's tensor becomes scatter_list[i] of process `src`."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    root, mine = _root(g, src, group_src), _flat(tensor)
    if g.rank() == root:
        rows = [_flat(t) for t in scatter_list]
        _swap(g, [(r, rows[r]) for r in range(g.size()) if r != root], [])
        mine = rows[root]
    else:
        _swap(g, [], [(root, mine)])
    _write(tensor, mine)
    return _done(async_op, [tensor])


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
               group: Any = None, async_op: bool = False) -> Any:
    """output[i] becomes input[this process's number] of process i."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    me = g.rank()
    give, take = [_flat(t) for t in input_tensor_list], [_flat(t) for t in output_tensor_list]
    take[me] = give[me]
    others = [r for r in range(g.size()) if r != me]
    _swap(g, [(r, give[r]) for r in others], [(r, take[r]) for r in others])
    for t, row in zip(output_tensor_list, take, strict=True):
        _write(t, row)
    return _done(async_op, [list(output_tensor_list)])


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None,
                      input_split_sizes: Any = None, group: Any = None,
                      async_op: bool = False) -> Any:
    """`all_to_all` over parts of the first dimension."""
    g = _member(group)
    if g is None:
        return _done(async_op)
    n = g.size()
    takes = list(output.detach().split(output_split_sizes or output.shape[0] // n))
    gives = list(input.detach().split(input_split_sizes or input.shape[0] // n))
    return all_to_all(takes, gives, group, async_op)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
         group_dst: int | None = None) -> None:
    """Sends a tensor to one process, which calls `recv`."""
    g = resolve(group)
    _swap(g, [(_root(g, dst, group_dst), _flat(tensor))], [])


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
         group_src: int | None = None) -> int:
    """Receives a tensor from one process, which must be named; its number."""
    if src is None and group_src is None:
        raise NotImplementedError("recv from any process: name it with src")
    g, a = resolve(group), _flat(tensor)
    root = _root(g, src, group_src)
    _swap(g, [], [(root, a)])
    _write(tensor, a)
    return g.ranks[root]


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
          group_dst: int | None = None) -> Work:
    """`send`; done when it returns."""
    send(tensor, dst, group, tag, group_dst)
    return Work()


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
          group_src: int | None = None) -> Work:
    """`recv`; done when it returns."""
    recv(tensor, src, group, tag, group_src)
    return Work()


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """Waits until every process is here."""
    g = _member(group)
    if g is not None and g.size() > 1:
        _gather_ring(g, _scatter_ring(g, np.zeros(g.size(), np.int8), "max"))
    return _done(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier`."""
    barrier(group)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """object_list[i] becomes the (pickled) object of process i."""
    g = _member(group)
    if g is None:
        return
    mine = np.frombuffer(pickle.dumps(obj), np.uint8).copy()
    sizes = [np.array([mine.size], np.int64) for _ in range(g.size())]
    _gather_ring(g, sizes)
    rows = [mine if r == g.rank() else np.empty(int(n[0]), np.uint8) for r, n in enumerate(sizes)]
    _gather_ring(g, rows)
    for i, row in enumerate(rows):
        object_list[i] = pickle.loads(row.tobytes())


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
                  group: Any = None, group_dst: int | None = None) -> None:
    """`all_gather_object`, kept by process `dst` alone."""
    g = _member(group)
    if g is None:
        return
    made: list[Any] = [None] * g.size()
    all_gather_object(made, obj, group)
    if g.rank() == _root(g, dst, group_dst) and object_gather_list is not None:
        object_gather_list[:] = made


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None,
                          device: Any = None, group_src: int | None = None) -> None:
    """Every process's list becomes that of process `src`, pickled."""
    g = _member(group)
    if g is None or g.size() == 1:
        return
    root = _root(g, src, group_src)
    data = pickle.dumps(list(object_list)) if g.rank() == root else b""
    size = np.array([len(data)], np.int64)
    _spread(g, size, root)
    a = np.frombuffer(data, np.uint8).copy() if g.rank() == root \
        else np.empty(int(size[0]), np.uint8)
    _spread(g, a, root)
    object_list[:] = pickle.loads(a.tobytes())

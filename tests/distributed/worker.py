"""A program for `lehr launch`: every collective, compared with what one process computes."""

import copy
import sys

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel


def value(rank, n=5):
    return torch.arange(n) * 1.5 + rank * 10


def messages(rank, size):
    """Several messages to one neighbour and from the other, at once."""
    after, before = (rank + 1) % size, (rank - 1) % size
    boxes = [torch.empty(5), torch.empty(3)]
    dist_ops = [dist.P2POp(dist.irecv, boxes[0], before),
                dist.P2POp(dist.isend, value(rank), after),
                dist.P2POp(dist.irecv, boxes[1], before),
                dist.P2POp(dist.isend, value(rank, 3), after)]
    assert all(work.wait() for work in dist.batch_isend_irecv(dist_ops))
    assert torch.equal(boxes[0], value(before)) and torch.equal(boxes[1], value(before, 3))


def functions(rank, size, every):
    """Collectives that return what they find."""
    whole = torch.stack([value(r) for r in range(size)], 1)
    group = dist.group.WORLD
    assert torch.equal(functional.all_gather_tensor(value(rank)[:, None], 1, group), whole)
    x = value(rank)
    assert torch.equal(functional.all_reduce(x, "sum", group), every.sum(0))
    assert torch.equal(x, value(rank)) and functional.wait_tensor(x) is x
    assert torch.equal(functional.broadcast(x, 1, group), value(1))
    part = functional.reduce_scatter_tensor(whole, "sum", 1, group)
    assert torch.equal(part[:, 0], size * value(rank))
    rows = functional.all_to_all_single(torch.full((size,), float(rank)), None, None, group)
    assert rows.tolist() == list(range(size))


def anything(rank, size):
    """Anything that can be pickled."""
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank, "pad": "x" * rank})
    assert [t["rank"] for t in things] == list(range(size))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    every = torch.stack([value(r) for r in range(size)])
    for op, want in (("SUM", every.sum(0)), ("AVG", every.mean(0)), ("MAX", every.max(0)[0]),
                     ("MIN", every.min(0)[0]), ("PRODUCT", every.prod(0))):
        x = value(rank)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        assert torch.allclose(x, want), (op, x, want)
    x = value(rank).to(torch.bfloat16)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and x.dtype is torch.bfloat16
    x = torch.ones(2, 3).T  # not contiguous, smaller than the group
    dist.all_reduce(x[:1])
    assert x[:1].eq(size).all() and x[1:].eq(1).all()
    x = value(rank)
    dist.broadcast(x, src=1)
    assert torch.equal(x, value(1))
    rows = [torch.empty(5) for _ in range(size)]
    dist.all_gather(rows, value(rank))
    assert torch.equal(torch.stack(rows), every)
    whole = torch.empty(size * 5)
    dist.all_gather_into_tensor(whole, value(rank))
    assert torch.equal(whole.view(size, 5), every)
    part = torch.empty(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
    assert torch.equal(part, size * torch.arange(2.0 * size)[2 * rank:2 * rank + 2])
    rows = [torch.empty(5) for _ in range(size)] if rank == 1 else None
    dist.gather(value(rank), rows, dst=1)
    assert rank != 1 or torch.equal(torch.stack(rows), every)
    x = torch.empty(5)
    dist.scatter(x, [value(r) for r in range(size)] if rank == 0 else None, src=0)
    assert torch.equal(x, value(rank))
    outs = [torch.empty(1) for _ in range(size)]
    dist.all_to_all(outs, [torch.tensor([rank * 100.0 + r]) for r in range(size)])
    assert [t.item() for t in outs] == [r * 100 + rank for r in range(size)]
    x = torch.empty(5)
    if rank == 0:
        dist.send(value(7), 1)
    elif rank == 1:
        dist.recv(x, 0)
        assert torch.equal(x, value(7))
    messages(rank, size)
    functions(rank, size, every)
    anything(rank, size)
    mesh = dist.init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "tp"))
    for name, want in (("dp", 1), ("tp", size)):
        x = torch.ones(1)
        dist.all_reduce(x, group=mesh.get_group(name))
        assert x.item() == want and mesh[name].size() == want
    assert mesh.get_coordinate() == [0, rank] and mesh["tp"].get_local_rank() == rank
    objects = ["from 2", 3] if rank == 2 else [None, None]
    dist.broadcast_object_list(objects, src=2)
    assert objects == ["from 2", 3]
    pair = dist.new_group([0, 2])
    x = torch.tensor([float(rank)])
    dist.all_reduce(x, group=pair)
    assert x.item() == (1 if rank == 1 else 2)
    assert dist.get_rank(pair) == {0: 0, 1: -1, 2: 1}[rank]
    big = torch.full((300_000,), float(rank))  # more than the sockets hold
    dist.all_reduce(big)
    assert big.eq(3).all()

    torch.manual_seed(rank)
    net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))
    net.register_parameter("spare", torch.nn.Parameter(torch.ones(2)))
    try:
        DistributedDataParallel(copy.deepcopy(net))(value(rank)).sum().backward()
        raise AssertionError("an unused parameter passed")
    except RuntimeError as error:
        assert all(f"rank {r}: spare" in str(error) for r in range(size)), error
    model = DistributedDataParallel(net, find_unused_parameters=True)
    model(value(rank)).sum().backward()
    assert net.spare.grad is None
    lone = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))
    lone.load_state_dict({k: v for k, v in net.state_dict().items() if k != "spare"})
    (sum(lone(value(r)).sum() for r in range(size)) / size).backward()
    for p, q in zip(net[0].parameters(), lone[0].parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, atol=1e-4)
    with model.no_sync():
        model(value(rank)).sum().backward()
    try:
        torch.nn.SyncBatchNorm(5)(value(rank).view(1, 5) + torch.ones(2, 1))
        raise AssertionError("statistics of one process were taken for all")
    except NotImplementedError as error:
        assert f"over {size} processes" in str(error)

    @torch.compile
    def shared(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1
    for k in (1.0, 2.0):
        assert shared(torch.full((2,), k)).tolist() == [2 * k * size + 1] * 2
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    if rank == 0:
        print("all", size)


if __name__ == "__main__":
    if sys.argv[1:] == ["fail"]:
        import os
        import time
        if os.environ["RANK"] == "1":
            sys.exit(7)
        time.sleep(60)
    main()

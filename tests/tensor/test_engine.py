"""The tape's engine: long chains, memory, threads, and what frees what."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import lehr
from lehr.tensor.node import Node, Saved


def test_a_long_chain_neither_recurses_nor_leaks() -> None:
    x = lehr.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    last = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert last() is None


def test_a_long_chain_of_double_backward() -> None:
    x = lehr.ones(1, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.0001
    (g,) = lehr.autograd.grad(y, x, create_graph=True)
    assert g.item() == pytest.approx(1.0001 ** 3000, rel=1e-3)


def test_a_dropped_graph_is_freed_by_reference_counts() -> None:
    gc.collect()
    gc.disable()
    try:
        x = lehr.ones(4, requires_grad=True)
        y = (x.exp() * x.sigmoid()).tanh().sum()
        nodes = [weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.next_functions[0][0])]
        del y
        assert [n() for n in nodes] == [None, None]
    finally:
        gc.enable()


def test_retain_grad_and_hooks_make_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = lehr.ones(4, requires_grad=True)
        y = x.exp()
        y.retain_grad()
        node = weakref.ref(y.grad_fn)
        y.sum().backward()
        del y
        assert node() is None
    finally:
        gc.enable()


def test_saved_values_are_freed_by_backward() -> None:
    x = lehr.ones(4, requires_grad=True)
    h = x * 2
    storage = weakref.ref(h._storage)
    y = h.exp().sin().sum()
    del h
    y.backward()
    assert storage() is None
    assert y.grad_fn is not None


def saved(node: Node) -> int:
    parts = [*node.args, node.out]
    return sum(type(a) is Saved for a in parts)


def test_a_frozen_weight_costs_no_input() -> None:
    x = lehr.ones(2, 3, requires_grad=True)
    w = lehr.ones(3, 2)
    assert saved((x @ w).grad_fn) == 1
    assert saved((lehr.ones(2, 3) * x).grad_fn) == 1
    assert saved((x * x).grad_fn) == 2
    assert saved((x + x).grad_fn) == 0


def test_in_place_activations_keep_one_copy() -> None:
    x = lehr.ones(8, requires_grad=True)
    y = x * 1
    y.sigmoid_()
    node = y.grad_fn
    assert node.out.tensor._storage is y._storage


def test_gradients_are_stolen_only_when_alone() -> None:
    x = lehr.ones(3, requires_grad=True)
    kept = []
    y = x * 2
    y.register_hook(kept.append)
    y.sum().backward()
    x.grad.zero_()
    assert kept[0].tolist() == [1, 1, 1]
    seed = lehr.ones(3)
    z = lehr.ones(3, requires_grad=True)
    (z + 0).backward(seed)
    z.grad.zero_()
    assert seed.tolist() == [1, 1, 1]


def test_threads_have_their_own_modes() -> None:
    seen = []

    def run() -> None:
        seen.append(lehr.is_grad_enabled())
        x = lehr.ones(100, requires_grad=True)
        for _ in range(50):
            (x * 2).sum().backward()
        seen.append(x.grad[0].item())
    with lehr.no_grad():
        threads = [threading.Thread(target=run) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert seen.count(True) == 4 and seen.count(100.0) == 4


def test_backward_inside_backward() -> None:
    class Inner(lehr.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with lehr.enable_grad():
                y = x.detach().requires_grad_()
                (y * 3).sum().backward()
            return y.grad * g
    x = lehr.ones(2, requires_grad=True)
    Inner.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_numpy_keeps_its_warnings() -> None:
    with pytest.warns(RuntimeWarning):
        np.array([1.0]) / np.array([0.0])
    assert (lehr.ones(1) / 0).item() == np.inf  # and lehr gives none (warnings are errors here)


def test_an_op_in_a_finalizer_in_the_middle_of_an_op() -> None:
    class Last:
        def __del__(self) -> None:
            made.append((lehr.ones(2) + 1).sum().item())
    made: list[float] = []

    class Data(np.ndarray):
        pass
    from lehr.ops import registry
    from lehr.tensor import dispatch, kernel
    op = registry.get("exp")
    plan = kernel.plan(op, (lehr.ones(2),), dispatch.strides_of)

    def body(np_: object, x: object) -> object:
        Last()
        return x
    kernel.quietly(plan, body, [np.ones(2)])
    assert made == [4.0]


def test_children_after_fork_compute() -> None:
    code = ("import os, lehr\n"
            "x = lehr.ones(3, requires_grad=True)\n"
            "pid = os.fork()\n"
            "(x * 2).sum().backward()\n"
            "assert x.grad.tolist() == [2, 2, 2]\n"
            "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
            "else: os._exit(0)\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_result_that_the_rule_does_not_read_may_be_written_in_place():
    x = lehr.randn(2, 3, 4, 4, requires_grad=True)
    norm = lehr.nn.BatchNorm2d(3)
    norm(x).relu().square().sum().backward()
    want, x.grad = x.grad.clone(), None
    lehr.nn.functional.relu(norm(x), inplace=True).square().sum().backward()
    assert lehr.allclose(x.grad, want)


def test_a_walk_that_fails_has_added_what_came_before() -> None:
    """A leaf has its gradient as soon as nothing is left to visit that leads to it, also where its
    end of the tape is older than the node that fails."""
    a, b, c = (lehr.ones(2, requires_grad=True) for _ in range(3))
    held = a + b, a * 2         # these leaves' ends live on
    t = lehr.maximum(c, c)
    t.sum().backward()
    total = (t * 2).sum() + (a * 3).sum() + (b * t.detach()).sum() + (c * 0).sum()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()
    assert a.grad.tolist() == [3, 3] and b.grad.tolist() == [1, 1]
    assert c.grad.tolist() == [1, 1]    # the node that failed leads to it
    assert held

    def refuse(g: lehr.Tensor) -> None:
        raise ValueError("no")

    h = b * 2
    h.register_hook(refuse)
    with pytest.raises(ValueError, match="no"):
        (h.sum() + a.sum()).backward()
    assert a.grad.tolist() == [4, 4] and b.grad.tolist() == [1, 1]

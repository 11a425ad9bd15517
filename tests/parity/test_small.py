"""Names of every corner that programs use, against torch's."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import lehr

BOTH = pytest.mark.parametrize("m", [torch, lehr], ids=["torch", "lehr"])


@BOTH
def test_bundles(m: Any) -> None:
    from lehr.tensor import bundle
    tools = torch._utils if m is torch else bundle
    parts = [m.ones(2, 3), m.zeros(4), m.arange(2.0)]
    flat = tools._flatten_dense_tensors(parts)
    back = tools._unflatten_dense_tensors(flat, parts)
    assert flat.shape == (12,) and [b.tolist() for b in back] == [p.tolist() for p in parts]
    flat.zero_()
    assert back[0].sum() == 0       # views
    some = [m.ones(4), m.ones(2, dtype=m.float64), m.ones(4), m.ones(1)]
    sizes = [[t.numel() for t in group] for group in tools._take_tensors(some, 30)]
    assert sizes == [[4], [4, 1], [2]]


@BOTH
def test_swap(m: Any) -> None:
    a, b = m.nn.Parameter(m.ones(2)), m.zeros(3, 3)
    b.tag = "b"
    a.grad = m.full((2,), 7.0)
    m.utils.swap_tensors(a, b)
    assert a.shape == (3, 3) and a.tag == "b" and type(b) is m.nn.Parameter and b.requires_grad
    assert b.grad.tolist() == [7, 7] and a.grad is None and not hasattr(b, "tag")


def test_swap_of_a_tensor_in_a_graph() -> None:
    held = lehr.ones(2, requires_grad=True)
    kept = held * 2
    for t in (held, kept, lehr.ones(3)[1:]):
        with pytest.raises(RuntimeError, match="exchanged"):
            lehr.utils.swap_tensors(t, lehr.ones(2))


@BOTH
def test_storages_from_buffers(m: Any) -> None:
    s = m.ByteStorage.from_buffer(b"\x01\x02\xff")
    assert list(s) == [1, 2, 255] and m.ByteTensor(s).tolist() == [1, 2, 255]
    raw = np.array([1, 500, -3], ">i2").tobytes()
    assert list(m.ShortStorage.from_buffer(raw, byte_order="big")) == [1, 500, -3]


@BOTH
def test_files(m: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "numbers")
    np.arange(6, dtype="f4").tofile(path)
    x = m.from_file(path, shared=False, size=4)
    x += 1
    assert x.tolist() == [1, 2, 3, 4] and np.fromfile(path, "f4").tolist() == [0, 1, 2, 3, 4, 5]
    y = m.from_file(path, shared=True, size=8)
    y[7] = 9
    del y
    assert np.fromfile(path, "f4").tolist() == [0, 1, 2, 3, 4, 5, 0, 9]


@BOTH
def test_futures(m: Any) -> None:
    import lehr.futures
    futures = torch.futures if m is torch else lehr.futures
    f: Any = futures.Future()
    g = f.then(lambda done: done.value() + 1)
    bad = f.then(lambda done: 1 / 0)
    threading.Timer(0.02, lambda: f.set_result(4)).start()
    assert g.wait() == 5 and f.done() and futures.wait_all([f, g]) == [4, 5]
    assert [x.value() for x in futures.collect_all([f, g]).wait()] == [4, 5]
    with pytest.raises((ZeroDivisionError, RuntimeError)):
        bad.wait()
    seen: list[Any] = []
    f.add_done_callback(lambda done: seen.append(done.value()))
    assert seen == [4]
    with pytest.raises(RuntimeError):
        f.set_result(5)


def test_cond() -> None:
    def run(x: Any) -> Any:
        return lehr.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,))
    call = lehr.compile(run)
    for x in (lehr.ones(3), -lehr.ones(3)):
        assert call(x).tolist() == run(x).tolist() == (x * 2 if x[0] > 0 else x - 1).tolist()
    assert lehr.cond(False, lambda: 1, lambda: 2) == 2


@BOTH
def test_lists_of_tensors_in_place(m: Any) -> None:
    a, b = [m.tensor([1.0, 5]), m.tensor([2.0])], [m.tensor([3.0, 4]), m.tensor([1.0])]
    m._foreach_maximum_(a, b)
    assert [t.tolist() for t in a] == [[3, 5], [2]]
    m._foreach_minimum_(a, [2.0, 1.0])
    assert [t.tolist() for t in a] == [[2, 2], [1]]
    m._foreach_add_(a, 1)
    assert [t.tolist() for t in m._foreach_maximum(a, 2.5)] == [[3, 3], [2.5]]


def test_other_names() -> None:
    import lehr.nn.modules.module as module
    import lehr.utils.model_zoo as zoo

    import lehr.utils.checkpoint as checkpoint
    made = lehr.nn.Linear(2, 2).load_state_dict({}, strict=False)
    assert isinstance(made, module._IncompatibleKeys)
    assert zoo.load_url is lehr.hub.load_state_dict_from_url
    assert checkpoint.tree_map(lambda x: x + 1, {"a": [1, (2,)]}) == {"a": [2, (3,)]}
    with lehr.DisableTorchFunctionSubclass():
        assert lehr.ones(1).item() == 1


@pytest.fixture
def alone(monkeypatch: Any) -> Any:
    for key, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"),
                       ("MASTER_PORT", "0")):
        monkeypatch.setenv(key, value)
    yield
    lehr.distributed.destroy_process_group()


def test_mesh_of_one_process(alone: Any) -> None:
    import lehr.distributed as dist
    mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    assert mesh.shape == (1, 1) and mesh.ndim == 2 and mesh.size() == mesh.size(0) == 1
    assert mesh["tp"].mesh_dim_names == ("tp",) and mesh["tp"].get_group() is mesh.get_group("tp")
    assert mesh.get_local_rank("dp") == 0 and mesh.get_coordinate() == [0, 0]
    assert repr(mesh) == "DeviceMesh((dp=1, tp=1), device: 'cpu')" and mesh == mesh["dp", "tp"]
    x = lehr.ones(2)
    dist.all_reduce(x, group=mesh.get_group("dp"))
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="mesh_dim"):
        mesh.get_group()
    with pytest.raises(RuntimeError, match="world"):
        dist.init_device_mesh("cpu", (2,))
    with pytest.raises(KeyError, match="pp"):
        mesh["pp"]


@pytest.mark.parametrize("use", [
    lambda x: torch.add(x, 1), lambda x: torch.nn.Linear(2, 2)(x), lambda x: torch.ones(2) + x,
    lambda x: torch.nn.PairwiseDistance()(x, x), lambda x: torch.nn.functional.gelu(x)])
def test_functions_of_pytorch_refuse_tensors_of_lehr(use: Any) -> None:
    with pytest.raises(TypeError):
        use(lehr.ones(1, 2))

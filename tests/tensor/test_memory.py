"""Storages: sharing, resizing, `data`, copies, and writes that go straight into memory."""

from __future__ import annotations

import copy
import os
import pickle
import resource

import numpy as np
import pytest

import lehr
from lehr.ops import registry
from lehr.tensor import dispatch, heap
from lehr.tensor.direct import DIRECT


def test_numpy_shares_memory_both_ways() -> None:
    a = np.zeros((2, 3), np.float32)
    x = lehr.from_numpy(a)
    x[0, 1] = 5
    assert a[0, 1] == 5
    x.numpy()[1, 2] = 7
    assert x[1, 2] == 7 and x.untyped_storage().data_ptr() == a.ctypes.data
    y = lehr.from_numpy(a.T)
    y.mul_(2)
    assert a[0, 1] == 10 and y.stride() == (1, 3)
    assert lehr.as_tensor(a).data_ptr() == lehr.from_dlpack(a).data_ptr() == a.ctypes.data
    assert np.from_dlpack(x).ctypes.data == a.ctypes.data


def test_strided_views_of_arrays() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    for view in (a[:, ::2], a[1:, :, ::3], a.transpose(2, 0, 1), a[..., 0], a[:0]):
        x = lehr.from_numpy(view)
        assert np.array_equal(x.numpy(), view)
        assert np.array_equal((x + 1).numpy(), view + 1)


def test_resize_keeps_the_beginning() -> None:
    x = lehr.arange(4.0)
    x.resize_(2)
    assert x.tolist() == [0, 1]
    x.resize_(2, 3)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3] and x.shape == (2, 3)
    v = lehr.arange(4.0)
    w = v[2:]
    v.resize_(8)
    v[2] = 9
    assert w[0] == 9  # the view looks at the memory that moved
    with pytest.raises(RuntimeError, match="require grad"):
        lehr.ones(2, requires_grad=True).resize_(3)


def test_untyped_storages() -> None:
    x = lehr.arange(4, dtype=lehr.int16)
    s = x.untyped_storage()
    assert len(s) == s.nbytes() == 8 and s.data_ptr() == x.data_ptr()
    assert s == x[1:].untyped_storage() and s != x.clone().untyped_storage()
    s[0] = 5
    assert x[0] == 5 and x._version == 1
    s.resize_(0)
    assert x.untyped_storage().nbytes() == 0
    t = lehr.arange(4.0).storage()
    assert len(t) == 4 and t[1] == 1.0 and t.tolist() == [0, 1, 2, 3]
    assert lehr.is_storage(s) and isinstance(t, lehr.FloatStorage)


def test_set_and_data() -> None:
    x, y = lehr.zeros(2), lehr.ones(3)
    assert x.set_(y) is x and x.shape == (3,)
    x[0] = 4
    assert y[0] == 4
    x.set_(y.untyped_storage(), 1, (2,), (1,))
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.set_(y.untyped_storage(), 2, (2,), (1,))
    w = lehr.ones(2, requires_grad=True)
    (w * 3).sum().backward()
    w.data = lehr.full((2,), 5.0)
    assert w.tolist() == [5, 5] and w.requires_grad and w.grad.tolist() == [3, 3]
    w.data.add_(1)
    assert w.tolist() == [6, 6] and w._version == 0
    w.data = lehr.zeros(3, dtype=lehr.float64)
    (w * 2).sum().backward(inputs=[w]) if w.grad is None else None
    w.grad = None
    (w * 2).sum().backward()
    assert w.grad.shape == (3,) and w.grad.dtype is lehr.float64


def test_copies_keep_sharing() -> None:
    x = lehr.arange(6.0)
    pair = {"whole": x, "part": x[2:4], "grad": lehr.ones(2, requires_grad=True)}
    for made in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        made["whole"][2] = 77
        assert made["part"][0] == 77 and x[2] == 2
        assert made["grad"].requires_grad
    y = copy.copy(x)
    y[0] = 9
    assert x[0] == 9


def test_attributes_are_copied() -> None:
    x = lehr.ones(2)
    x.note = [1, 2]
    assert copy.deepcopy(x).note == [1, 2] and pickle.loads(pickle.dumps(x)).note == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_shared_memory_reaches_across_fork() -> None:
    x = lehr.zeros(3).share_memory_()
    v = x[1:]
    assert x.is_shared() and not lehr.zeros(1).is_shared()
    pid = os.fork()
    if pid == 0:
        v.add_(5)
        os._exit(0)
    os.waitpid(pid, 0)
    assert x.tolist() == [0, 5, 5]


DTYPES = [lehr.float32, lehr.float64, lehr.bfloat16, lehr.int64, lehr.int8, lehr.uint8, lehr.bool]


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_direct_writes_are_the_ops(name: str, dtype: lehr.dtype) -> None:
    """Writing straight into memory gives what the op gives, or does not happen."""
    op = registry.get(name)
    others = [lehr.tensor([2, 3, 4]).to(dtype), lehr.tensor(3).to(dtype), 2, 1.5, -0.0, True,
              lehr.tensor([1.5, 2.5, 0.5]), lehr.tensor(2.0, dtype=lehr.float64)]
    for other in others:
        x = lehr.tensor([[1, 2, 3], [4, 5, 6]]).to(dtype)
        args = (x,) if name == "zero" else (x, other, *(p.default for p in op.params[2:]))
        try:
            want = dispatch.call(op, (x.clone(), *args[1:])).to(dtype)
        except (RuntimeError, TypeError, NotImplementedError, AttributeError):
            continue
        if DIRECT[name](x, args):
            assert lehr.equal(x, want), (name, dtype, other)


def test_overlapping_operands() -> None:
    x = lehr.arange(9.0).reshape(3, 3)
    want = (x + x.t()).tolist()
    assert x.add_(x.t()).tolist() == want
    y = lehr.arange(5.0)
    y[1:].copy_(y[:-1].clone())
    z = lehr.arange(5.0)
    z[1:].copy_(z[:-1])
    assert z.tolist() == y.tolist()


def test_freed_memory_stays_unless_the_user_decides(monkeypatch) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    if not heap.keep():
        pytest.skip("not glibc's heap")
    faults = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        made = [lehr.ones(1 << 20) for _ in range(8)]  # 4 MB each
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del made
    assert faults[-1] < 8 << 10 >> 2, faults  # a page is 4 KiB; 8192 are written
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    assert not heap.keep()


def test_an_array_is_an_object_of_its_own():
    """What is done to it, and not to its memory, the tensor does not see."""
    x = lehr.arange(6.0)
    a, b = x.numpy(), x.numpy()
    a.shape = (2, 3)
    b.flags.writeable = False
    a[0, 0] = 9
    x.add_(1)
    assert a is not b and (x + 0).tolist() == [10, 2, 3, 4, 5, 6] == b.tolist()

"""Training that torch began goes on in lehr, and the other way round: the same losses."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lehr

torch = pytest.importorskip("torch")

OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    "Adam": {"lr": 0.01, "amsgrad": True}, "AdamW": {"lr": 0.01}, "Adagrad": {"lr": 0.05},
    "RMSprop": {"lr": 0.005, "momentum": 0.5, "centered": True}, "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01}, "RAdam": {"lr": 0.01}, "Adadelta": {}, "ASGD": {"lr": 0.01},
    "Rprop": {"lr": 0.01},
}


class Run:
    """A model with its optimizer and schedule in one library."""

    def __init__(self, lib, name):
        nn = lib.nn
        self.lib = lib
        self.model = nn.Sequential(nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(),
                                   nn.Linear(18, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
        first, rest = list(self.model[0].parameters()), list(self.model[1:].parameters())
        self.optimizer = getattr(lib.optim, name)(
            [{"params": first}, {"params": rest, "lr": 0.02}], **OPTIMIZERS[name])
        self.schedule = lib.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        r = np.random.RandomState(0)
        self.x = lib.from_numpy(r.randn(6, 1, 8).astype(np.float32))
        self.y = lib.from_numpy(r.randn(6, 2).astype(np.float32))

    def steps(self, count):
        losses = []
        for _ in range(count):
            loss = (self.model(self.x) - self.y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(), "epoch": 3, "note": ("a", [1.5, None])}

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        assert state["epoch"] == 3 and state["note"] == ("a", [1.5, None])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("begins, goes_on", [(torch, lehr), (lehr, torch)], ids=["to", "from"])
def test_training_goes_on(name, begins, goes_on, tmp_path):
    begins.manual_seed(0)
    first = Run(begins, name)
    first.steps(4)
    begins.save(first.state(), tmp_path / "c.pt")
    second = Run(goes_on, name)
    second.load(goes_on.load(tmp_path / "c.pt"))  # weights_only: the default of both
    np.testing.assert_allclose(second.steps(4), first.steps(4), rtol=2e-4)


def test_generators_and_rng_states_stay_apart(tmp_path):
    """A generator's state is bytes of its own kind: the other library's is refused by size."""
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        lehr.set_rng_state(lehr.from_numpy(torch.get_rng_state().numpy()))


@pytest.mark.parametrize("make", [
    lambda lib: lib.arange(6).reshape(2, 3), lambda lib: lib.ones(2, 3).T,
    lambda lib: lib.arange(12.0)[2::3], lambda lib: lib.zeros(0, 3),
    lambda lib: lib.tensor(3.5, dtype=lib.float64), lambda lib: lib.tensor([True, False]),
    lambda lib: lib.ones(3, dtype=lib.float16)])
def test_dlpack_shares_memory_both_ways(make):
    for source, target in ((torch, lehr), (lehr, torch)):
        x = make(source)
        y = target.from_dlpack(x)
        assert tuple(y.shape) == tuple(x.shape) and str(y.dtype) == str(x.dtype)
        assert y.stride() == x.stride() or x.numel() < 2
        assert y.tolist() == x.tolist()
        if x.numel():
            assert y.data_ptr() == x.data_ptr()
            y.fill_(1)
            assert x.flatten()[0].item() == 1


def test_numpy_shares_memory_both_ways():
    a = np.arange(6.0)
    x, y = lehr.from_numpy(a), torch.from_numpy(a)
    x[0] = 9
    assert y[0] == 9 and np.asarray(x)[0] == 9 and np.shares_memory(x.numpy(), a)
    with pytest.raises(RuntimeError, match="requires grad"):
        lehr.ones(2, requires_grad=True).numpy()


def shapes(lib):
    x = lib.arange(4.0, dtype=lib.float64).view(2, 2).requires_grad_()
    base = lib.arange(6)
    return {"leaf": x, "view": base[1:4], "base": base, "half": lib.ones(2, dtype=lib.bfloat16),
            "parameter": lib.nn.Parameter(lib.ones(2)), "device": lib.device("cpu"),
            "dtype": lib.int64, "size": lib.Size([1, 2])}


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy,
                                   lambda v: pickle.loads(pickle.dumps(v))],
                         ids=["deepcopy", "copy", "pickle"])
def test_copies(again):
    facts = []
    for lib in (lehr, torch):
        made = again(shapes(lib))
        if again in (copy.copy, copy.deepcopy):  # lehr's pickles keep shared memory shared
            made["base"][2] = 77
        facts.append([
            made["view"].tolist(), made["leaf"].requires_grad, made["leaf"].is_leaf,
            made["leaf"].tolist(), str(made["half"].dtype), made["half"].tolist(),
            type(made["parameter"]) is lib.nn.Parameter, made["parameter"].requires_grad,
            str(made["device"]), made["dtype"] is lib.int64, tuple(made["size"]),
            type(made["size"]) is lib.Size])
    assert facts[0] == facts[1]


def test_copies_of_what_is_no_leaf():
    for lib in (lehr, torch):
        with pytest.raises(RuntimeError, match="deepcopy protocol"):
            copy.deepcopy(lib.ones(2, requires_grad=True) * 2)
        net = lib.nn.Linear(2, 2)
        net(lib.ones(1, 2)).sum().backward()
        twin = copy.deepcopy(net)
        assert twin.weight.grad is None and twin.weight.data_ptr() != net.weight.data_ptr()
        leaf = lib.ones(2, requires_grad=True)
        leaf.sum().backward()
        twin = copy.deepcopy(leaf)
        assert twin.grad.tolist() == [1, 1] and twin.grad is not leaf.grad
        assert pickle.loads(pickle.dumps(net)).weight.tolist() == net.weight.tolist()

"""Processes that act together."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import lehr
import lehr.distributed as dist
from lehr.distributed import checkpoint

WORKER = Path(__file__).with_name("worker.py")


def launch(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lehr.cli", "launch", "--nproc-per-node", "3",
                           str(WORKER), *args], capture_output=True, text=True, timeout=120)


def test_collectives_of_three_processes():
    made = launch()
    assert made.returncode == 0, made.stderr[-3000:]
    assert made.stdout.strip() == "all 3"


def test_a_failed_process_ends_the_others():
    begin = time.monotonic()
    made = launch("fail")
    assert made.returncode == 7 and "rank 1 ended" in made.stderr
    assert time.monotonic() - begin < 50


@pytest.fixture
def alone(monkeypatch):
    for key, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"),
                       ("MASTER_PORT", "0")):
        monkeypatch.setenv(key, value)
    dist.init_process_group()
    yield
    dist.destroy_process_group()


def test_one_process(alone):
    x = lehr.arange(3.0)
    dist.all_reduce(x)
    rows = [lehr.empty(3)]
    dist.all_gather(rows, x)
    assert rows[0].tolist() == [0, 1, 2] and dist.get_world_size() == 1
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group()
    with pytest.raises(TypeError, match="Expected parameter `tensor`"):
        dist.gather(3)


def test_what_is_lacking_is_named(monkeypatch):
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.get_rank()
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK expected.*lehr launch"):
        dist.init_process_group("gloo")
    with pytest.raises(NotImplementedError, match="gloo"):
        dist.init_process_group("nccl")
    assert dist.is_available() and not dist.is_initialized() and not dist.is_nccl_available()


def test_stores():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=2)
    other = dist.TCPStore("127.0.0.1", server.port, timeout=2)
    for a, b in ((server, other), *[(s, s) for s in (dist.HashStore(),)]):
        a.set("k", "v")
        assert b.get("k") == b"v" and b.add("n", 2) == 2 and a.add("n", 3) == 5
        assert b.check(["k", "n"]) and not b.check(["none"])
        assert a.delete_key("k") and not b.delete_key("k") and a.num_keys() == 1
        dist.PrefixStore("p", a).set("x", b"\0\1")
        assert b.get("p/x") == b"\0\1"
        a.set_timeout(0.05)
        with pytest.raises(dist.DistStoreError, match="'none'"):
            a.get("none")
    other.close()
    server.close()


def test_checkpoints_hold_the_moment_of_the_call(tmp_path):
    model = lehr.nn.Linear(3, 2)
    want = model.weight.detach().clone()
    future = checkpoint.async_save({"model": model.state_dict(), "epoch": 4},
                                   checkpoint_id=tmp_path / "a")
    with lehr.no_grad():
        model.weight.add_(1)
    future.result()
    state = {"model": model.state_dict(), "epoch": 0}
    checkpoint.load(state, checkpoint_id=str(tmp_path / "a"))
    assert lehr.equal(model.weight, want) and state["epoch"] == 4
    checkpoint.save({"m": model}, checkpoint_id=tmp_path / "b")
    fresh = lehr.nn.Linear(3, 2)
    checkpoint.load({"m": fresh}, checkpoint_id=tmp_path / "b")
    np.testing.assert_array_equal(fresh.weight.detach().numpy(), want.numpy())
    with pytest.raises(checkpoint.CheckpointException, match="other"):
        checkpoint.load({"other": 1}, checkpoint_id=tmp_path / "b")
    with pytest.raises(checkpoint.CheckpointException, match=r"\(3, 3\)"):
        checkpoint.load({"m": {"weight": lehr.ones(3, 3)}}, checkpoint_id=tmp_path / "b")
    with pytest.raises(checkpoint.CheckpointException, match="does not exist"):
        checkpoint.load({}, checkpoint_id=tmp_path / "c")
    (tmp_path / "file").write_text("")
    failed = checkpoint.async_save({}, checkpoint_id=tmp_path / "file")
    with pytest.raises(OSError):
        failed.result()

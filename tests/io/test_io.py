"""Files: exchanged with torch, shared memory kept, damaged and hostile ones refused by name."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

import lehr
from lehr.io import safetensors
from lehr.io.format import Damaged

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
          "bool", "complex64")


def objects(m):
    base = m.arange(12).reshape(3, 4)
    return {
        "plain": [1, 2.5, "x", None, True, (1, 2), {3, 4}, b"b", 1 + 2j],
        "types": {d: m.ones(2, 3).to(getattr(m, d)) for d in DTYPES},
        "views": [base, base[1:, 1:], base.t()], "scalar": m.tensor(3.0), "empty": m.zeros(0, 3),
        "parameter": m.nn.Parameter(m.ones(2)), "frozen": m.nn.Parameter(m.ones(1), False),
        "leaf": m.ones(2, requires_grad=True), "size": m.Size([2, 3]), "dtype": m.float32,
        "device": m.device("cpu"),
        "model": m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3)).state_dict(),
        "ordered": collections.OrderedDict(a=1),
    }


def facts(m, x):
    """What must be the same on both sides."""
    if isinstance(x, m.Tensor):
        numbers = x.detach().to(m.complex64 if x.is_complex() else m.float32).numpy().tolist()
        return (type(x).__name__, str(x.dtype), tuple(x.shape), tuple(x.stride()),
                x.requires_grad, numbers)
    if isinstance(x, dict):
        return {k: facts(m, v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [facts(m, v) for v in x]
    return str(x) if isinstance(x, (m.dtype, m.device)) else x


def test_exchange_with_torch(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    lehr.manual_seed(0)
    theirs = objects(torch)
    mine = objects(lehr)
    mine["model"] = lehr.nn.Sequential(lehr.nn.Linear(2, 3), lehr.nn.BatchNorm1d(3)).state_dict()
    torch.save(theirs, tmp_path / "t.pt")
    assert facts(lehr, lehr.load(tmp_path / "t.pt")) == facts(torch, theirs)
    lehr.save(mine, tmp_path / "l.pt")
    assert facts(torch, torch.load(tmp_path / "l.pt")) == facts(lehr, mine)
    torch.save(theirs, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert facts(lehr, lehr.load(tmp_path / "old.pt")) == facts(torch, theirs)


def test_optimizers_and_scalers_come_back(tmp_path):
    p = lehr.nn.Parameter(lehr.ones(3))
    o = lehr.optim.AdamW([p])
    p.grad = lehr.ones(3)
    o.step()
    lehr.save({"o": o.state_dict(), "rng": lehr.get_rng_state()}, tmp_path / "s.pt")
    got = lehr.load(tmp_path / "s.pt")
    q = lehr.optim.AdamW([lehr.nn.Parameter(lehr.ones(3))])
    q.load_state_dict(got["o"])
    assert repr(q.state_dict()) == repr(o.state_dict())
    lehr.set_rng_state(got["rng"])


def test_storages_are_shared_within_a_file(tmp_path):
    base = lehr.zeros(4)
    lehr.save([base, base[1:3]], tmp_path / "v.pt")
    a, b = lehr.load(tmp_path / "v.pt")
    b.fill_(5.0)
    assert a.tolist() == [0.0, 5.0, 5.0, 0.0]


def test_buffers_and_files():
    f = io.BytesIO()
    lehr.save({"x": lehr.ones(2)}, f)
    f.seek(0)
    assert lehr.load(f)["x"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("place", ["cpu", {"cpu": "cpu"}, lambda storage, location: storage, None])
def test_map_location(tmp_path, place):
    lehr.save(lehr.ones(2), tmp_path / "x.pt")
    assert lehr.load(tmp_path / "x.pt", map_location=place).tolist() == [1.0, 1.0]


def test_map_location_elsewhere(tmp_path):
    lehr.save(lehr.ones(2), tmp_path / "x.pt")
    assert lehr.load(tmp_path / "x.pt", map_location="meta").device.type == "meta"


def test_mapped_files(tmp_path):
    lehr.save({"x": lehr.arange(1000), "y": lehr.ones(3)}, tmp_path / "m.pt")
    got = lehr.load(tmp_path / "m.pt", mmap=True)
    assert got["x"].tolist() == list(range(1000)) and got["x"].data_ptr() % 64 == 0
    got["y"].fill_(7.0)
    assert lehr.load(tmp_path / "m.pt")["y"].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError):
        lehr.load(io.BytesIO(b"x"), mmap=True)


class Config:
    def __init__(self, n):
        self.n = n


def test_classes_have_to_be_allowed(tmp_path):
    lehr.save({"c": Config(3)}, tmp_path / "c.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"Config.*add_safe_globals"):
        lehr.load(tmp_path / "c.pt")
    assert lehr.load(tmp_path / "c.pt", weights_only=False)["c"].n == 3
    with lehr.serialization.safe_globals([Config]):
        assert lehr.load(tmp_path / "c.pt")["c"].n == 3
    with pytest.raises(pickle.UnpicklingError):
        lehr.load(tmp_path / "c.pt")


def archive(body, **records):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr("a/data.pkl", body)
        for name, data in records.items():
            z.writestr(f"a/data/{name}", data)
    f.seek(0)
    return f


class Call:
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


HOSTILE = {
    "system": b"cos\nsystem\n(S'echo hacked'\ntR.",
    "eval": b"cbuiltins\neval\n(S'1'\ntR.",
    "getattr": b"cbuiltins\ngetattr\n(cbuiltins\nlist\nS'append'\ntR.",
    "dtype_state": b"ctorch\nfloat32\n}S'name'\nS'x'\nsb.",
    "storage_state": b"ctorch\nFloatStorage\n}S'dtype'\nNsb.",
    "extension": b"\x82\x01.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name):
    with pytest.raises((pickle.UnpicklingError, Damaged)):
        lehr.load(archive(HOSTILE[name]))
    assert lehr.float32.name == "float32"
    f = io.BytesIO()
    lehr.save(lehr.ones(1), f)
    f.seek(0)
    assert lehr.load(f).dtype is lehr.float32


def test_tensors_stay_within_their_storage():
    body = (b"ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\n"
            b"I4\ntQ%stR.")
    good = body % b"I0\n(I4\nt(I1\ntI00\nN"
    assert lehr.load(archive(good, **{"0": bytes(16)})).tolist() == [0.0] * 4
    for tail in (b"I0\n(I5\nt(I1\ntI00\nN", b"I-1\n(I4\nt(I1\ntI00\nN", b"I1\n(I2\nt(I9\ntI00\nN"):
        with pytest.raises(Damaged, match="beyond"):
            lehr.load(archive(body % tail, **{"0": bytes(16)}))
    with pytest.raises(Damaged, match="bytes"):
        lehr.load(archive(good, **{"0": bytes(8)}))
    with pytest.raises(Damaged, match="no record"):
        lehr.load(archive(good))


def _spoiled(data, how):
    n = len(data)
    return {"empty": b"", "text": b"hello, world" * 20, "cut": data[: n // 2], "tail": data[:-50],
            "head": b"\0" * 40 + data[40:], "one": data[:40]}.get(how)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("how", ["empty", "text", "cut", "tail", "head", "one"])
def test_damaged_files_say_so(tmp_path, how, old):
    path = tmp_path / "model.pt"
    if old:
        torch = pytest.importorskip("torch")
        torch.save({"w": torch.ones(500)}, path, _use_new_zipfile_serialization=False)
    else:
        lehr.save({"w": lehr.ones(500)}, path)
    path.write_bytes(_spoiled(path.read_bytes(), how))
    with pytest.raises((Damaged, pickle.UnpicklingError), match="model.pt"):
        lehr.load(path)


def test_one_flipped_byte_is_found(tmp_path):
    path = tmp_path / "model.pt"
    lehr.save({"w": lehr.full((500,), 3.25)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(np.full(4, 3.25, np.float32).tobytes()) + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match=r"model.pt.*data/0"):
        lehr.load(path)


def test_a_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "x.pt"
    lehr.save(lehr.ones(2), path)
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        lehr.save({"f": lambda: 1}, path)
    assert lehr.load(path).tolist() == [1.0, 1.0] and os.listdir(tmp_path) == ["x.pt"]


def test_whole_modules(tmp_path):
    n = lehr.nn.Sequential(lehr.nn.Linear(2, 2), lehr.nn.ReLU())
    lehr.save(n, tmp_path / "n.pt")
    again = lehr.load(tmp_path / "n.pt", weights_only=False)
    assert repr(again) == repr(n)
    assert again(lehr.ones(1, 2)).tolist() == n(lehr.ones(1, 2)).tolist()


def test_modules_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    n = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)).eval()
    torch.save(n, tmp_path / "n.pt")
    again = lehr.load(tmp_path / "n.pt", weights_only=False)
    assert repr(again) == repr(n) and not again.training
    want = n(torch.ones(1, 2)).detach().numpy()
    np.testing.assert_allclose(again(lehr.ones(1, 2)).detach().numpy(), want, atol=1e-5)


# safetensors


def test_safetensors_exchange(tmp_path):
    numpy_side = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    mine = {"a": lehr.arange(6).reshape(2, 3).t(), "b": lehr.ones(3).to(lehr.bfloat16),
            "c": lehr.tensor(True), "d": lehr.zeros(0, 2), "e": lehr.ones(2, dtype=lehr.float64)}
    safetensors.save_file(mine, path, {"format": "pt"})
    got = safetensors.load_file(path)
    for k, t in mine.items():
        assert facts(lehr, got[k])[1:3] == facts(lehr, t)[1:3]
        assert facts(lehr, got[k])[5] == facts(lehr, t)[5]
    assert safetensors.metadata(path) == {"format": "pt"}
    their = {k: v for k, v in mine.items() if k != "b"}
    data = safetensors.save(their)
    for k, a in numpy_side.load(data).items():
        assert a.tolist() == their[k].tolist()
    made = numpy_side.save({"x": np.arange(5, dtype=np.int32)})
    assert safetensors.load(made)["x"].tolist() == [0, 1, 2, 3, 4]


def _entry(**kw):
    row = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **kw}
    text = json.dumps({"w": row}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize("data", [
    b"", b"\x05", b"\xff" * 20, (10).to_bytes(8, "little") + b"not json..", _entry(dtype="F7"),
    _entry(shape=[3]), _entry(shape=[-2]), _entry(data_offsets=[0, 16]),
    _entry(data_offsets=[8, 0]), _entry(data_offsets="x"), _entry()[:-4]])
def test_damaged_safetensors(data, tmp_path):
    with pytest.raises(Damaged):
        safetensors.load(data)
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    with pytest.raises(Damaged, match="w.safetensors"):
        safetensors.load_file(path)


def test_locations_and_types_of_storages():
    from lehr import serialization

    assert serialization.location_tag(lehr.ones(2).untyped_storage()) == "cpu"
    assert serialization.location_tag(lehr.ones(2).storage()) == "cpu"
    with pytest.raises(RuntimeError, match="data location of builtins.int"):
        serialization.location_tag(3)
    assert serialization.normalize_storage_type(lehr.FloatStorage) is lehr.FloatStorage

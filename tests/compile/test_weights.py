"""Weights that stay packed between calls are packed again when anything has written to them.

Every op that writes, every way to another view of the memory and every way to hand it out is tried
on a weight that is packed: the next call has to see the new numbers.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import pathlib
import pickle
import re
import threading
import warnings

import numpy as np
import pytest

import lehr as torch
from lehr.base import dtype as dt
from lehr.compiler import weight as weights
from lehr.compiler.counters import stats
from lehr.compiler.run import memory, target, template
from lehr.ops import registry
from lehr.ops.sample import samples_of
from lehr.tensor import api, dispatch
from lehr.tensor.memory import UntypedStorage

pytestmark = pytest.mark.skipif("avx512f" not in target.host().features,
                                reason="products here do not pack")
TILES = target.host().features >= template.TILES
BYTES = 6 if TILES else 4      # of a packed number
SIZE = 128
WAYS = {"view": lambda w: w, "data": lambda w: w.data, "detach": lambda w: w.detach(),
        "data of data": lambda w: w.data.detach().data}


class Line(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


class Watched:
    """A compiled layer beside the same without packing."""

    def __init__(self, weight=None, **kind):
        self.line = Line(torch.randn(SIZE, SIZE) if weight is None else weight)
        self.x = torch.randn(SIZE, SIZE, **kind)
        self.call = torch.compile(self.line)
        self.plain = torch.compile(self.line, options={"pack_weights": False})

    @property
    def weight(self):
        return self.line.weight

    def pack(self):
        """Calls until the weight is packed."""
        for _ in range(5):
            before = stats()["packed_calls"]
            self.call(self.x)
            if stats()["packed_calls"] > before:
                return
        raise AssertionError("the weight was not packed")

    def fresh(self):
        """The result sees the weight as it is."""
        for _ in range(3):
            np.testing.assert_array_equal(self.call(self.x), self.plain(self.x))

    def loose(self):
        """The weight is never packed any more, and results see it as it is."""
        before = stats()["packed_calls"]
        self.fresh()
        self.fresh()
        assert stats()["packed_calls"] == before


@pytest.fixture(scope="module")
def one():
    return Watched()


@pytest.fixture
def shared(one):
    with torch.no_grad():
        yield one


@pytest.fixture
def watched():
    with torch.no_grad():
        yield Watched()


def bits(t):
    return t._array.tobytes()


def tensors(a):
    if isinstance(a, (list, tuple)):
        return type(a)(map(tensors, a))
    return torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a


def attempts(op):
    """(dtype, shape, sample) of good calls on something that is no larger than the weight."""
    for dtype in (dt.float32, dt.int32, dt.bool_):
        for s in samples_of(op, dtype):
            first = s.args[0] if s.args else None
            if s.error is None and isinstance(first, np.ndarray) and 0 < first.size < SIZE ** 2:
                yield dtype, first.shape, s


def part(w, dtype, shape):
    """A view of the beginning of the weight as numbers of a dtype."""
    flat = w.view(-1) if dtype is dt.float32 else w.view(-1).view(dtype)
    return flat[:int(np.prod(shape))].view(shape)


INPLACE = sorted((op for op in registry.OPS.values() if "inplace" in op.where.split()
                  and op.name not in dispatch.RELAYOUTS), key=lambda op: op.name)
# What these write is what was there: a number that is one already, a layout.
IDLE = frozenset(("positive", "nan_to_num"))


@pytest.mark.parametrize("op", INPLACE, ids=lambda op: op.name)
def test_every_op_in_place(shared, op):
    kept = shared.weight.clone()
    written = set()
    for way, alias in WAYS.items():
        for dtype, shape, s in attempts(op):
            shared.pack()
            before = bits(shared.weight)
            view = part(alias(shared.weight), dtype, shape)
            try:
                getattr(view, f"{op.api}_")(*map(tensors, s.args[1:]), **{
                    k: tensors(v) for k, v in s.kwargs.items()})
            except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
                pass        # not with this dtype: the weight may have been written all the same
            shared.fresh()
            changed = bits(shared.weight) != before
            shared.weight.copy_(kept)
            if changed:
                written.add(way)
                break
    assert written == set(WAYS) or op.name in IDLE


RANDOM = "normal_ uniform_ log_normal_ exponential_ cauchy_ random_ bernoulli_".split()
WRITES = {
    **{name: lambda w, name=name: getattr(w, name)() for name in RANDOM},
    "geometric_": lambda w: w.geometric_(0.3),
    "copy_": lambda w: w.copy_(torch.ones(SIZE)),
    "apply_": lambda w: w.detach().apply_(lambda v: v + 1),
    "map_": lambda w: w.detach().map_(torch.ones(SIZE, SIZE), lambda a, b: a + b),
    "map2_": lambda w: w.detach().map2_(torch.ones(SIZE, SIZE), torch.ones(SIZE, SIZE),
                               lambda a, b, c: a + b + c),
    "fill_diagonal_": lambda w: w.fill_diagonal_(9.0),
    "polygamma_": lambda w: w.polygamma_(1),
    "conj_physical_": lambda w: w.add_(1).conj_physical_(),
    "set an element": lambda w: w.__setitem__((3, 5), 7.0),
    "set by index": lambda w: w.__setitem__(torch.tensor([1, 4]), 7.0),
    "+=": lambda w: w.__iadd__(1),
    "nn.functional": lambda w: torch.nn.functional.relu_(w),
    "init": lambda w: torch.nn.init.orthogonal_(w),
    "foreach": lambda w: torch._foreach_add_([w], [torch.ones(SIZE, SIZE)]),
    "foreach a number": lambda w: torch._foreach_mul_([w, torch.ones(2)], 2.0),
    "foreach copy": lambda w: torch._foreach_copy_([w], [torch.ones(SIZE, SIZE)]),
    "transposed": lambda w: w.t().add_(1),
    "strided": lambda w: w.as_strided((5,), (3,)).add_(1),
    "a copied tensor": lambda w: __import__("copy").copy(w).data.add_(1),
    "storage fill": lambda w: w.untyped_storage().fill_(1),
    "storage copy": lambda w: w.untyped_storage().copy_(torch.ones(SIZE, SIZE).untyped_storage()),
    "storage element": lambda w: w.untyped_storage().__setitem__(3, 65),
    "typed storage": lambda w: w.storage().__setitem__(3, 65.0),
    "set of its storage": lambda w: torch.empty(0).set_(w.untyped_storage(), 0, (5,)).add_(1),
    "set of a tensor": lambda w: torch.empty(0).set_(w).add_(1),
    "data of another": lambda w: sharing(w).add_(1),
    "load_state_dict": lambda w: Line(w).load_state_dict({"weight": torch.ones(SIZE, SIZE)}),
    "compiled": lambda w: torch.compile(lambda t: t.add_(1))(w),
    "compiled, of data": lambda w: torch.compile(lambda t: t.data.mul_(2))(w),
    "custom op": lambda w: mutates()(w),
    "random of an op": lambda w: torch.nn.functional.dropout(w, 0.5, True, True),
    "running statistics": lambda w: torch.nn.functional.batch_norm(
        torch.randn(4, SIZE), w[0], w[1].abs_(), training=True),
}


def sharing(w):
    other = torch.empty(1)
    other.data = w
    return other


@functools.cache
def mutates():
    """An op of the user's; made when it is used, since the tests of all ops list them at import."""
    @torch.library.custom_op("weights::mutate", mutates_args=("t",))
    def mutate(t: torch.Tensor) -> None:
        t.mul_(3)
    return mutate


@pytest.mark.parametrize("name", WRITES)
def test_every_other_write(watched, name):
    kept = watched.weight.clone()
    for alias in WAYS.values():
        watched.pack()
        before = bits(watched.weight)
        WRITES[name](alias(watched.weight))
        assert bits(watched.weight) != before
        watched.fresh()
        watched.weight.copy_(kept)


def test_no_method_that_writes_is_forgotten():
    placed = {n for n in api._PLACED if n.endswith("_") and not n.startswith("_")}
    other = {"requires_grad_", "detach_", "resize_", "resize_as_", "set_", "as_strided_",
             "share_memory_"}       # write no number; those that move memory are below
    assert placed - other <= set(WRITES)


def inside(a):
    """The tensors of an argument or a result."""
    if isinstance(a, torch.Tensor):
        yield a
    elif isinstance(a, (list, tuple)):
        for x in a:
            yield from inside(x)


def test_no_result_shares_memory_under_other_counts():
    """A result on the memory of an argument is a view of it: writes to it are counted there."""
    shared, hidden = set(), set()
    for op in registry.OPS.values():
        for dtype in (dt.float32, dt.int64):
            for s in samples_of(op, dtype):
                if s.error is not None:
                    continue
                args = tensors(tuple(s.bind(op)))
                try:
                    found = dispatch.call(op, args)
                except (RuntimeError, TypeError, ValueError, NotImplementedError):
                    continue
                for o in inside(found):
                    for a in inside(args):
                        if o is not a and np.shares_memory(o._array, a._array):
                            one = o._storage.origin is a._storage.origin
                            (shared if one else hidden).add(op.name)
    assert not hidden
    assert len(shared) > 20


def outs():
    for op in registry.OPS.values():
        function = getattr(torch, op.api, None)
        if "function" in op.where.split() and callable(function):
            yield op, function


def test_every_out(watched):
    shared = watched
    kept, written = shared.weight.clone(), set()
    shared.pack()
    for op, function in outs():
        for s in samples_of(op, dt.float32)[:3]:
            try:
                args = [*map(tensors, s.args)]
                named = {k: tensors(v) for k, v in s.kwargs.items()}
                made = function(*args, **named)
                if type(made) is not torch.Tensor or made.dtype is not torch.float32:
                    continue
                out = part(shared.weight.data, dt.float32, made.shape)
                before = bits(shared.weight)
                function(*args, **named, out=out)
            except Exception:
                continue
            if bits(shared.weight) != before:
                written.add(op.name)
                shared.fresh()
                shared.weight.copy_(kept)
                shared.pack()
                break
    assert len(written) > 100


def steps():
    for name in torch.optim.__all__:
        cls = getattr(torch.optim, name)
        if isinstance(cls, type) and name not in ("Optimizer", "SparseAdam", "LBFGS"):
            for options in ({}, {"foreach": True}, {"fused": True}, {"foreach": False}):
                yield pytest.param(cls, options, id="-".join([name, *map(str, options)]))


@pytest.mark.parametrize("cls, options", steps())
def test_every_optimizer(watched, cls, options):
    try:
        optimizer = cls([watched.weight], lr=0.1, **options)
    except (TypeError, RuntimeError):
        pytest.skip("no such option")
    for _ in range(2):
        watched.pack()
        before = bits(watched.weight)
        watched.weight.grad = torch.randn(SIZE, SIZE)
        optimizer.step()
        assert bits(watched.weight) != before
        watched.fresh()


def test_a_closure(watched):
    optimizer = torch.optim.LBFGS([watched.weight])

    def closure():
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = watched.line(watched.x).square().mean()
            loss.backward()
        return loss

    watched.pack()
    before = bits(watched.weight)
    optimizer.step(closure)
    assert bits(watched.weight) != before
    watched.fresh()


def test_training_by_compiled_steps(watched):
    optimizer = torch.optim.AdamW(watched.line.parameters(), lr=0.01)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        with torch.enable_grad():
            watched.line(x).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        watched.pack()
        before = bits(watched.weight)
        step(watched.x)
        assert bits(watched.weight) != before
        watched.fresh()


# -- other memory ----------------------------------------------------------------------------------

MOVES = {
    "data": lambda t: setattr(t.weight, "data", torch.ones(SIZE, SIZE)),
    "set_": lambda t: t.weight.set_(torch.ones(SIZE, SIZE)),
    "vector": lambda t: torch.nn.utils.vector_to_parameters(torch.ones(SIZE * SIZE), [t.weight]),
    "a parameter": lambda t: setattr(t.line, "weight",
                                     torch.nn.Parameter(torch.ones(SIZE, SIZE))),
    "assign": lambda t: t.line.load_state_dict({"weight": torch.ones(SIZE, SIZE)}, assign=True),
    "to and back": lambda t: t.line.double().float().weight.data.add_(1),
    "swap": lambda t: torch.utils.swap_tensors(
        t.weight, torch.nn.Parameter(torch.ones(SIZE, SIZE))),
    "resize": lambda t: (t.weight.untyped_storage().resize_(SIZE * SIZE * 8), t.weight.add_(1)),
    "the layout": lambda t: setattr(t.weight, "data", t.weight.data.t()),
    "flags": lambda t: t.weight.requires_grad_(False).add_(1),
}


@pytest.mark.parametrize("name", MOVES)
def test_other_memory(watched, name):
    watched.pack()
    before = watched.call(watched.x)
    MOVES[name](watched)
    assert not np.array_equal(before, watched.plain(watched.x))
    watched.fresh()
    watched.weight.data.add_(1)
    watched.fresh()


# -- memory that others may write to ---------------------------------------------------------------

def numbers_at(address):
    return np.ctypeslib.as_array((ctypes.c_float * SIZE).from_address(address))


def out_of_band(t):
    held = []
    pickle.dumps(t, 5, buffer_callback=held.append)
    return np.frombuffer(held[0].raw(), np.float32) if held else t.detach().numpy()


EXPOSED = {
    "numpy": lambda w: w.detach().numpy(),
    "numpy by force": lambda w: w.numpy(force=True),
    "numpy of data": lambda w: w.data.numpy(),
    "numpy of a view": lambda w: w.data[:3].t().numpy(),
    "asarray": lambda w: np.asarray(w.detach()),
    "array": lambda w: np.array(w.detach(), copy=False),
    "dlpack": lambda w: np.from_dlpack(w.detach()),
    "data_ptr": lambda w: numbers_at(w.data_ptr()),
    "data_ptr of a view": lambda w: numbers_at(w.detach()[2].data_ptr()),
    "storage's data_ptr": lambda w: numbers_at(w.untyped_storage().data_ptr()),
    "typed storage's data_ptr": lambda w: numbers_at(w.storage().data_ptr()),
    "part of a storage": lambda w: storage_part(w),
    "pickle": out_of_band,
    "share_memory": lambda w: w.share_memory_().detach().numpy(),
    "shared": lambda w: shared_part(w),
}


def storage_part(w):
    made = w.untyped_storage()[:16]
    assert type(made) is UntypedStorage
    return torch.empty(0).set_(made, 0, (4,))


def shared_part(w):
    """What a forked process sees."""
    w.share_memory_()
    return w.detach()._array


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", EXPOSED)
def test_exposed_memory_is_not_packed(watched, name, early):
    if not early:
        watched.pack()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alias = EXPOSED[name](watched.weight)
    watched.loose()
    before = bits(watched.weight)
    alias[...] = 3
    assert bits(watched.weight) != before
    watched.loose()


FOREIGN = {
    "from_numpy": lambda a: torch.from_numpy(a),
    "as_tensor": lambda a: torch.as_tensor(a),
    "asarray": lambda a: torch.asarray(a),
    "frombuffer": lambda a: torch.frombuffer(a, dtype=torch.float32).view(SIZE, SIZE),
    "from_dlpack": lambda a: torch.from_dlpack(a),
    "view": lambda a: torch.from_numpy(a.reshape(-1)).view(SIZE, SIZE),
    "a bytearray": lambda a: torch.frombuffer(a.data, dtype=torch.float32).view(SIZE, SIZE),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_memory_of_others_is_not_packed(name):
    a = np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
    with torch.no_grad():
        t = Watched(FOREIGN[name](a))
        t.loose()
        a[...] = 2
        assert (t.weight == 2).all()
        t.loose()


def test_parts_of_storages_are_not_packed():
    whole = torch.randn(2, SIZE, SIZE)
    with torch.no_grad():
        part = whole.untyped_storage()[4:4 * SIZE * SIZE + 4]
        t = Watched(torch.empty(0).set_(part, 0, (SIZE, SIZE)))
        t.loose()
        whole.mul_(2)
        t.loose()


def test_mapped_files_are_not_packed(tmp_path):
    path = tmp_path / "w"
    torch.save({"weight": torch.randn(SIZE, SIZE)}, path)
    np.ones(SIZE * SIZE, np.float32).tofile(tmp_path / "raw")
    with torch.no_grad():
        for w in (torch.load(path, mmap=True)["weight"],
                  torch.from_file(str(tmp_path / "raw"), True, SIZE * SIZE).view(SIZE, SIZE)):
            Watched(w).loose()
        t = Watched(torch.load(path)["weight"])
        t.pack()


@pytest.mark.parametrize("name", ["copy_", "erf_"])
def test_a_write_that_is_interrupted(watched, monkeypatch, name):
    """Ctrl-C while numbers are copied is noticed when they are."""
    def copyto(to, *given, held=np.copyto):
        held(to, *given)
        raise KeyboardInterrupt

    watched.pack()
    before = bits(watched.weight)
    arguments = [torch.ones(SIZE, SIZE)] * (name == "copy_")
    with monkeypatch.context() as patch:
        patch.setattr(np, "copyto", copyto)
        with pytest.raises(KeyboardInterrupt):
            getattr(watched.weight, name)(*arguments)
    assert bits(watched.weight) != before
    watched.fresh()


def test_all_writes_are_counted_in_one_place():
    """No file but one counts a write by itself."""
    root = pathlib.Path(torch.__file__).parent
    found = [str(p) for p in root.rglob("*.py") if p.name != "storage.py"
             and re.search(r"_storage\.version \+?=[^=]", p.read_text())]
    assert not found


# -- what packing keeps ----------------------------------------------------------------------------

def test_a_weight_that_changes_at_every_call_is_never_packed(watched):
    watched.fresh()
    before = stats()
    for n in range(6):
        watched.weight.add_(n + 1)
        np.testing.assert_array_equal(watched.call(watched.x), watched.plain(watched.x))
    after = stats()
    assert [after[n] - before[n] for n in ("weights_packed", "packed_calls")] == [0, 0]


def test_memory_goes_with_the_function_and_with_changes():
    gc.collect()
    before = memory.host.stats()["allocated"]
    with torch.no_grad():
        t = Watched()
        t.pack()
        held = memory.host.stats()["allocated"] - before
        assert held >= SIZE * SIZE * BYTES
        t.weight.add_(1)
        t.call(t.x)
        assert memory.host.stats()["allocated"] - before < held - SIZE * SIZE * BYTES + 4096
        t.pack()
        del t
    gc.collect()
    assert memory.host.stats()["allocated"] - before < SIZE * SIZE * BYTES
    assert not weights._known or all(p.origin is not None for p in weights._known.values())


def test_float32_products_of_many_rows_pack_by_themselves(watched):
    watched.x = torch.randn(512, SIZE)
    watched.loose()


def test_functions_share_a_packed_weight(watched):
    watched.pack()
    before = stats()["weights_packed"]
    other = Watched()
    other.line = watched.line
    other.call = torch.compile(lambda x: watched.line(x) + 1)
    other.pack()
    assert stats()["weights_packed"] == before


def test_a_new_look_at_the_guards_keeps_what_is_packed(watched, monkeypatch):
    watched.pack()
    of = weights.Weights.of
    before = stats()
    bound = []
    monkeypatch.setattr(weights.Weights, "of", classmethod(
        lambda cls, *given: bound.append(of(*given)) or bound[-1]))
    watched.line.note = 1       # another word of memory: the guards hold
    for _ in range(3):
        watched.call(watched.x)
    after = stats()
    assert len(bound) == 1
    assert after["weights_packed"] == before["weights_packed"]
    assert after["packed_calls"] >= before["packed_calls"] + 2


def test_an_op_of_the_users_may_write_to_a_weight_in_secret(watched):
    late = []

    @torch.library.custom_op("weights::secret", mutates_args=())
    def secret(t: torch.Tensor) -> torch.Tensor:
        if late:
            watched.weight.data.add_(1)
        return t.clone()

    secret.register_fake(torch.empty_like)
    call = torch.compile(lambda x: watched.line(secret(watched.line(x))))
    first = [call(watched.x) for _ in range(4)][-1]
    late.append(True)
    assert abs(call(watched.x) - first).max() > 1       # seen in the very call


def test_the_option(watched):
    before = stats()
    for _ in range(4):
        watched.plain(watched.x)
    assert stats() == before | {"captures": stats()["captures"]} | {
        n: stats()[n] for n in before if n not in ("weights_packed", "packed_calls")}


def test_training_keeps_nothing():
    t = Watched()
    before = stats()["weights_packed"]
    for _ in range(4):
        t.call(t.x).sum().backward()
    assert stats()["weights_packed"] == before


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e-40])
def test_numbers_that_tiles_do_not_take(watched, value):
    watched.weight[2, 3] = value
    if TILES:
        watched.loose()
    else:       # packed as all others
        watched.pack()
        watched.fresh()
    watched.x[4, 3] = value     # 0 times infinity
    watched.x[5, 3] = 0
    watched.fresh()
    watched.weight[2, 3] = 1
    watched.pack()
    watched.fresh()


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "autocast"])
@pytest.mark.parametrize("threads", [1, 2])
def test_same_bits_for_any_rows(kind, threads):
    held = torch.get_num_threads()
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    model = torch.nn.Sequential(torch.nn.Linear(200, 333), torch.nn.ReLU(),
                                torch.nn.Linear(333, 192)).to(dtype)
    call = torch.compile(model, dynamic=True)
    plain = torch.compile(model, dynamic=True, options={"pack_weights": False})
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=kind == "autocast"):
            before = stats()
            for rows in (200, 300, 333, 1000, 300, 64, 500, 7):
                x = torch.randn(rows, 200, dtype=dtype)
                np.testing.assert_array_equal(call(x).float(), plain(x).float())
            after = stats()
        assert after["weights_packed"] - before["weights_packed"] >= 2
        assert after["packed_calls"] - before["packed_calls"] >= 3
    finally:
        torch.set_num_threads(held)


def test_a_write_while_a_weight_is_packed_is_seen(watched, monkeypatch):
    pack, written = weights.Weight.pack, []

    def slow(self, writes):
        made = pack(self, writes)       # of the numbers before
        if not written:
            watched.weight.data.add_(1)
            written.append(made)
        return made

    monkeypatch.setattr(weights.Weight, "pack", slow)
    while not written:
        watched.call(watched.x)
    watched.fresh()
    assert written[0] is not None
    watched.pack()


def test_threads_see_the_last_write(watched):
    watched.pack()
    failed = []

    def run():
        with torch.no_grad():
            for _ in range(30):
                got = watched.call(watched.x)
                if not np.isfinite(got.numpy()).all():
                    failed.append(got)

    for n in range(5):
        several = [threading.Thread(target=run) for _ in range(4)]
        for t in several:
            t.start()
        watched.weight.mul_(-1.5)       # while they run
        for t in several:
            t.join()
        watched.fresh()
        assert not failed, n

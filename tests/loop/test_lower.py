"""Lowering case by case: golden programs, layouts, write-backs, calls, numbers, errors."""

from __future__ import annotations

import numpy as np
import pytest

from lehr.base import dtype as dt
from lehr.base.sym import Var
from lehr.compiler.graph.ir import Builder, Location, RefType, ScalarType, TensorType
from lehr.compiler.loop import interp
from lehr.compiler.loop.element import Unlowered
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import Extern, Kernel
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.text import print_program, print_step
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from lehr.ops import families
from lehr.ops.registry import OPS, get, op
from lehr.ops.rule import Spec

assert families.FAMILIES
F32 = dt.float32


class Build:
    def __init__(self):
        self.b = Builder("p")
        self.F = self.b.F

    def x(self, name, *shape, dtype=F32):
        return self.b.param(name, TensorType(shape, dtype))

    def ref(self, name, *shape, strides=None):
        return self.b.param(name, RefType(TensorType(shape, F32), strides))

    def program(self, *outputs, **options):
        graph = pipeline.run(self.b.finish({"outputs": outputs}))
        return verify(lower(graph, **options))


def kinds(program):
    return [type(s).__name__ for s in program.steps]


def test_softmax_is_one_kernel_with_a_staged_row():
    m = Build()
    text = print_program(verify(fuse(m.program(m.F.softmax(m.x("x", 8, 64), -1)))))
    assert text == """\
program p(x: param f32[8,64]) {
  out0: output f32[8,64]
  t1: local f32[]
  t2: local f32[64]
  t3: local f32[]
  kernel amax0(i0: 8; i1: 64, k0: 64) {
    t1[] = max.f32[k0](x[i0,k0])
    t2[i1] for (i1) = exp.f32(sub.f32(x[i0,i1], t1[], f32(1.0)))
    t3[] = sum.f32[k0](t2[k0])
    out0[i0,i1] for (i1) = div.f32(t2[i1], t3[], None)
  }
  return out0
}"""


def test_heads_are_read_where_they_lie():
    m = Build()
    qkv = m.x("qkv", 2, 16, 96)
    q, k = (m.F.permute(m.F.view(m.F.slice(qkv, 2, i * 32, (i + 1) * 32, 1), (2, 16, 4, 8)),
                        (0, 2, 1, 3)) for i in (0, 1))
    program = m.program(m.F.matmul(q, m.F.transpose(k, -1, -2)))
    assert kinds(program) == ["Extern"]
    assert print_step(program.steps[0]).splitlines()[0] == (
        "extern matmul0: matmul(in(0), in(1), None) of "
        "(view(qkv, {0}, [2,4,16,8], [1536,8,96,1]), view(qkv, {32}, [2,4,8,16], [1536,8,1,96])) "
        "-> view(out0, {0}, [2,4,16,16], [1024,256,16,1])")


def test_operands_that_are_no_rectangle_are_copied():
    m = Build()
    a = m.F.view(m.F.permute(m.x("x", 2, 3, 4), (1, 0, 2)), (3, 8))
    a = m.F.view(m.F.permute(m.F.view(a, (3, 2, 4)), (2, 1, 0)), (8, 3))
    program = m.program(m.F.matmul(a, m.x("y", 3, 5)))
    assert kinds(program) == ["Kernel", "Extern"]


def test_result_and_param_strides():
    m = Build()
    x = m.x("x", 3, 4)
    program = m.program(m.F.neg(x), x, result_strides=[(1, 3), None],
                        param_strides={"x": (1, 3)})
    assert program.params[0].strides == (1, 3)
    assert [b.strides for b in program.results] == [(1, 3), (4, 1)]
    assert kinds(program) == ["Kernel", "Kernel"]  # a parameter that is returned is copied
    with pytest.raises(ValueError, match="1 result strides for 2 results"):
        m.program(m.F.neg(x), x, result_strides=[None])


def test_equal_results_have_memory_of_their_own():
    m = Build()
    y = m.F.neg(m.x("x", 3))
    program = m.program(y, y, m.F.view(y, (3, 1)))
    assert len(set(program.results)) == 3
    a, b, c = interp.run(program, [np.arange(3, dtype=np.float32)])
    assert a.tolist() == b.tolist() == c.ravel().tolist() == [0, -1, -2]


# Write-backs


def stores(program):
    return [s.buffer.name for k in program.steps if isinstance(k, Kernel) for s in k.stores]


def test_update_in_place():
    m = Build()
    w = m.ref("w", 3, 4, strides=(1, 3))
    m.F.write(w, m.F.mul(m.F.read(w), m.x("x", 3, 4)))
    program = m.program()
    assert stores(program) == ["w"] and program.params[0].strides == (1, 3)


def test_old_value_used_later_needs_a_copy():
    m = Build()
    w = m.ref("w", 3, 4)
    old = m.F.read(w)
    new = m.F.exp(old)
    m.F.write(w, new)
    late = m.F.matmul(old, m.F.transpose(new, 0, 1))
    program = m.program(late)
    assert stores(program) == ["w_new", "w"] and kinds(program)[-1] == "Kernel"


def test_neighbours_read_need_a_copy():
    m = Build()
    w = m.ref("w", 4)
    m.F.write(w, m.F.add(m.F.flip(m.F.read(w), [0]), 1))
    program = m.program()
    assert stores(program) == ["w_new", "w"]
    w0 = np.arange(4, dtype=np.float32)
    for p in (program, verify(fuse(program))):
        w1 = w0.copy()
        interp.run(p, [w1])
        assert w1.tolist() == [4, 3, 2, 1]


def test_swap():
    m = Build()
    a, b = m.ref("a", 3), m.ref("b", 3)
    old = m.F.read(a), m.F.read(b)
    m.F.write(a, old[1])
    m.F.write(b, old[0])
    program = m.program(old[0])
    for p in (program, verify(fuse(program))):
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        (out,) = interp.run(p, [x, y])
        assert x.tolist() == [1, 1, 1] and y.tolist() == out.tolist() == [0, 1, 2]


def test_cache_is_written_where_it_lies():
    m = Build()
    cache = m.ref("cache", 2, 8, 4)
    at = m.x("at", 1, dtype=dt.int64)
    m.F.write(cache, m.F.index_copy(m.F.read(cache), 1, at, m.x("new", 2, 1, 4)))
    program = verify(fuse(m.program()))
    check, copy = program.steps     # the check is done before anything is written
    assert [s.buffer.name for s in copy.stores] == ["cache"] and len(copy.binds) == 1
    assert check.stores[0].buffer.shape == ()
    with pytest.raises(IndexError, match="index 8 is out of bounds for a dimension of size 8"):
        interp.run(program, [np.zeros((2, 8, 4), np.float32), np.array([8]),
                             np.ones((2, 1, 4), np.float32)])


def test_unchanged_storage_is_not_touched():
    m = Build()
    w = m.ref("w", 3)
    m.F.write(w, m.F.read(w))
    assert kinds(m.program()) == []


# Calls, numbers, sizes


def test_host_calls():
    m = Build()
    x = m.x("x", 3, 3)
    y = m.F.linalg_inv(m.F.mul(x, 2)) if "linalg_inv" in OPS else m.F.view_dtype(x, dt.int32)
    program = m.program(y)
    assert kinds(program)[-1] == "HostCall"
    call = program.steps[-1]
    assert call.outputs == (program.results[0],)


def test_unsupported_externs_become_host_calls():
    m = Build()
    y = m.F.matmul(m.x("x", 3, 4), m.x("y", 4, 2))
    seen = []
    program = m.program(y, supports=lambda e: seen.append(e) or False)
    assert kinds(program) == ["HostCall"] and isinstance(seen[0], Extern)
    a, b = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
    assert (interp.run(program, [a, b])[0] == 4).all()


def test_numbers():
    m = Build()
    lr = m.b.param("lr", ScalarType(dt.FLOAT))
    n = m.b.param("n", ScalarType(dt.INT))
    x = m.x("x", 3, dtype=dt.bfloat16)
    y = m.F.mul(x, lr)
    z = m.F.add(m.x("i", 3, dtype=dt.int64), n)
    program = m.program(y, z, m.F.number(m.F.sum(z)))
    assert [b.role for b in program.params[:2]] == ["scalar", "scalar"]
    assert program.results[2].dtype is dt.int64 and program.results[2].shape == ()
    out = interp.run(program, [0.1, 2, np.ones(3, dt.bfloat16.np), np.arange(3)])
    assert out[1].tolist() == [2, 3, 4] and out[2] == 9
    assert out[0][0] == np.float32(0.1).astype(dt.bfloat16.np)


def test_half_precision_rounds_once_an_op():
    m = Build()
    x = m.x("x", 4, dtype=dt.bfloat16)
    program = m.program(m.F.add(m.F.mul(x, x), x))
    text = print_program(fuse(program))
    assert text.count("cast.bf16") == 2 and "mul.bf16" not in text


def test_sizes_known_at_run_time():
    m = Build()
    n = m.b.symbol(Var("n", 2, 64))
    x = m.x("x", n, 8)
    program = verify(fuse(m.program(m.F.softmax(x, 0), m.F.mul(x, n))))
    assert program.symbols == (n,)
    a = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    y, z = interp.run(program, [a])
    e = np.exp(a - a.max(0))
    np.testing.assert_allclose(y, e / e.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(z, a * 5)


def test_locations_and_errors():
    if "test_strange" not in OPS:
        @op("test_strange(input: Tensor) -> Tensor")
        class strange:
            where = ""

            def rule(x):
                return Spec(tuple(x.shape), x.dtype, x.device)
    m = Build()
    m.b.location = Location("net.py", 3)
    y = m.F.exp(m.x("x", 3))
    m.b.location = Location("net.py", 4)
    z = m.F.neg(y)
    program = m.program(z)
    assert [str(at) for at in program.steps[0].locations] == ["net.py:4", "net.py:3"]
    m.b.location = Location("net.py", 9)
    bad = m.b.call(get("test_strange"), (z,))
    with pytest.raises(Unlowered, match=r"test_strange has no lowering \(net.py:9\)"):
        lower(m.b.finish({"outputs": [bad]}))


def test_expensive_values_are_not_computed_twice():
    m = Build()
    x = m.x("x", 64, 64)
    e = m.F.exp(x)
    assert len(m.program(m.F.sum(e, 0), m.F.sum(e, 1)).steps) == 3
    m = Build()
    x = m.x("x", 64, 64)
    e = m.F.mul(x, 2)  # cheaper than a load
    assert len(m.program(m.F.sum(e, 0), m.F.sum(e, 1)).steps) == 2


def test_long_chains_are_cut():
    m = Build()
    y = m.x("x", 4)
    for _ in range(700):
        y = m.F.sin(y)
    program = m.program(y)
    assert 8 < len(program.steps) < 20
    fused = verify(fuse(program))
    assert kinds(fused) == ["Kernel"]
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(interp.run(program, [x])[0], interp.run(fused, [x])[0])

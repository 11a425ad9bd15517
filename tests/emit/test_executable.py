"""Compiled calls: frames, threads, re-entrance, host steps, faults, overhead."""

import gc
import json
import threading
import time

import numpy as np
import pytest

from lehr.compiler.emit import host
from lehr.compiler.run import executable, library, memory
from tests.emit.harness import Compiled, host_call, text

SIMPLE = text("x: param f32[64], w: param f32[64]", ["y: output f32[64]"], """
  kernel k(i0: 64) {
    y[i0] = add.f32(mul.f32(x[i0], f32(2.0)), w[i0])
  }""", "y")
STAGED = """program staged<s: 1..4096>(x: param f32[s,8], lr: scalar f64[]) {
  c0: const f32[8] = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -inf)
  a: arena f32[s,8]
  b: arena f32[s,8]
  y: output f32[s,8]
  kernel first(i0: s, i1: 8) {
    a[i0,i1] = mul.f32(x[i0,i1], cast.f32(lr[]))
  }
  host h: sub(view(a, {0}, [s,8], [8,1]), number(lr), 1) -> (b)
  # model.py:3
  kernel second(i0: s, i1: 8) {
    y[i0,i1] = maximum.f32(b[i0,i1], c0[i1])
  }
  return y
}"""


def f32(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_host_steps_constants_sizes():
    compiled = Compiled(STAGED)
    assert [sorted(s)[-1] for s in compiled.code.record["steps"]] == ["segment", "outputs",
                                                                      "segment"]
    const = np.array([1, 2, 3, 4, 5, 6, 7, -np.inf], np.float32)
    for n in (1, 5, 300):
        x = f32(n, 8)
        want = np.maximum(x * np.float32(0.5) - np.float32(0.5), const)
        np.testing.assert_array_equal(compiled(x, 0.5)[0], want)
    with pytest.raises(TypeError, match="takes 1 sizes, not 0"):
        compiled.run([0, 0])


def test_record_is_data():
    """A record survives JSON, and another process's library runs it."""
    compiled = Compiled(STAGED)
    again = json.loads(json.dumps(compiled.code.record))
    assert again == compiled.code.record
    assert host.FIRST == executable.FIRST and host.FAULT == executable.FAULT
    loaded = executable.Executable(again, compiled.run.library, host_call)
    x = f32(3, 8)
    lr = np.array(0.5)
    made = loaded([x.ctypes.data, lr.ctypes.data], [3])
    np.testing.assert_array_equal(loaded.arrays(made, [3])[0], compiled(x, 0.5)[0])
    with pytest.raises(TypeError, match="calls the host's sub"):
        executable.Executable(again, compiled.run.library)


def test_host_program_text():
    shown = host.text(Compiled(STAGED).code.record)
    assert "def staged(x, lr, s):" in shown
    assert "staged_0(pointers)" in shown and "# model.py:3" in shown
    assert "y = empty(['s', 8], float32, [8, 1])" in shown


def test_threads_and_memory():
    """Calls overlap without mixing up frames or results; nothing leaks."""
    compiled = Compiled(STAGED)
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((50 + seed, 8)).astype(np.float32)
        want = compiled(x, 0.25)[0]
        for _ in range(100):
            if not np.array_equal(compiled(x, 0.25)[0], want):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    gc.collect()
    before = memory.host.stats()["allocated"]
    for _ in range(200):
        compiled(f32(9, 8), 1.0)
    assert memory.host.stats()["allocated"] == before


def test_reentrance():
    """A host step may call the same executable."""
    compiled = Compiled(STAGED)
    depth = []

    def call(op, args):
        if len(depth) < 3:
            depth.append(op)
            inner = f32(4, 8)
            lr = np.array(0.5)
            made = again([inner.ctypes.data, lr.ctypes.data], [4])
            np.testing.assert_array_equal(again.arrays(made, [4])[0], compiled(inner, 0.5)[0])
        return host_call(op, args)

    again = executable.Executable(compiled.code.record, compiled.run.library, call)
    x = f32(7, 8)
    lr = np.array(0.5)
    made = again([x.ctypes.data, lr.ctypes.data], [7])
    np.testing.assert_array_equal(again.arrays(made, [7])[0], compiled(x, 0.5)[0])
    assert len(depth) == 3


def test_errors_release_memory():
    """A host step that raises, or an index out of bounds, gives all leases back."""
    compiled = Compiled(text("t: param i64[4], x: param f32[3]", ["y: output f32[4]"], """
  kernel k(i0: 4) {
    bind g0 below {3} = t[i0]
    y[i0] = x[g0]
  }""", "y"))
    before = memory.host.stats()["allocated"]
    with pytest.raises(IndexError, match="index -1 is out of bounds for a dimension of size 3"):
        compiled(np.array([0, 1, -1, 2]), f32(3))
    assert memory.host.stats()["allocated"] == before
    staged = Compiled(STAGED)

    def fail(op, args):
        raise ZeroDivisionError(op)

    broken = executable.Executable(staged.code.record, staged.run.library, fail)
    x, lr = f32(3, 8), np.array(0.5)
    before = memory.host.stats()["allocated"]
    with pytest.raises(ZeroDivisionError):
        broken([x.ctypes.data, lr.ctypes.data], [3])
    assert memory.host.stats()["allocated"] == before


def test_nothing_to_compile():
    program = text("x: param f32[3]", ["y: output f32[3]"],
                   "  host h: neg(view(x, {0}, [3], [1])) -> (y)", "y")
    compiled = Compiled(program)
    np.testing.assert_array_equal(compiled(f32(3))[0], -f32(3))
    assert isinstance(compiled.run.library, library.Library)


def test_overhead():
    """A call with three pointers costs a few microseconds."""
    compiled = Compiled(SIMPLE)
    x, w = f32(64), f32(64)
    run, release = compiled.run, memory.host.release
    pointers = (x.ctypes.data, w.ctypes.data)

    def once():
        start = time.process_time()
        for _ in range(2000):
            for b in run(pointers):
                release(b)
        return (time.process_time() - start) / 2000

    best = min(once() for _ in range(7))
    assert best < 12e-6, f"{best * 1e6:.2f} us"  # 2 to 3 us on an idle machine


def test_no_fast_math():
    """NaN, infinity and signed zeros mean what they mean, and additions stay in order."""
    compiled = Compiled(text("x: param f32[64]", ["y: output f32[64]", "z: output b1[64]"], """
  kernel k(i0: 64) {
    y[i0] = sub.f32(add.f32(x[i0], f32(1e8)), f32(1e8))
    z[i0] = ne.b1(x[i0], x[i0])
  }""", "y, z"))
    x = f32(64)
    x[:3] = np.nan, np.inf, -0.0
    y, z = compiled(x)
    np.testing.assert_array_equal(y, (x + np.float32(1e8)) - np.float32(1e8))
    np.testing.assert_array_equal(z, np.isnan(x))

"""Emitted Triton compiled to machine code for NVIDIA GPUs, on a machine without one.

`pytest tests/emit/test_cubins.py -k workloads` compiles every kernel of `gpt_step`, `mlp` and
`vit_block` as `lehr bench` runs them; `-k steps` those of whole training steps of a smaller GPT, a
perceptron, and a transformer block in bfloat16.
"""

import functools
import importlib.util
import os
import subprocess
import sys

import pytest

import lehr
from lehr.base import dtype as dt
from lehr.cli.bench import workload
from lehr.cli.bench.cases import pytorch
from lehr.compiler import backend
from lehr.compiler.emit import triton
from lehr.compiler.loop import expr
from lehr.compiler.loop.fuse import fuse
from lehr.compiler.loop.ir import Buffer, Expr, Kernel, Program, Store, axis
from lehr.compiler.loop.lower import lower
from lehr.compiler.loop.verify import verify
from lehr.compiler.passes import pipeline
from lehr.compiler.run import cubin
from lehr.compiler.run.cache import Cache
from tests.emit import test_spelling as spelling
from tests.emit.harness import read
from tests.loop import model

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason=(
    'the package triton is not installed: pip install "lehr[triton]"'))


@pytest.fixture
def store(tmp_path):
    return Cache(str(tmp_path), 1 << 30)


def compiled(code, store, arch=90):
    """The cubins of all functions of a program."""
    made = cubin.compile_all(code.source, code.record["functions"], arch, store)
    for name, c in made.items():
        assert c.image[:4] == b"\x7fELF" and c.name == name
        assert list(c.types) == code.record["functions"][name]["types"]
    return made


def mlp(dtype=dt.float32):
    """Three layers, squared error, plain gradient descent."""
    net = model.Net("mlp")
    F = net.F
    x, y = net.input("x", 128, 784, dtype=dtype), net.input("y", 128, 10, dtype=dtype)
    h = x
    for n, width in enumerate((512, 512, 10)):
        w = net.weight(f"w{n}", width, h.shape[-1], dtype=dtype)
        h = F.linear(h, w, net.weight(f"b{n}", width, dtype=dtype))
        h = F.relu(h) if width > 10 else h
    gap = F.sub(h, y)
    loss = F.mean(F.mul(gap, gap))
    for ref, w, g in zip(net.refs, net.weights, model.gradients(net.b, loss, net.weights),
                         strict=True):
        F.write(ref, F.sub(w, F.mul(g, 0.01)))
    return net.finish([loss])


def vit_block(dtype=dt.bfloat16):
    """A transformer block, forward and backward."""
    net = model.Net("vit")
    F = net.F
    b, t, c, heads = 4, 197, 192, 3
    x, g = (net.input(n, b, t, c, dtype=dtype) for n in "xg")

    def linear(x, name, n):
        return F.linear(x, net.weight(f"{name}.w", n, x.shape[-1], dtype=dtype),
                        net.weight(f"{name}.b", n, dtype=dtype))

    def norm(x, name):
        return F.layer_norm(x, (c,), net.weight(f"{name}.w", c, dtype=dtype),
                            net.weight(f"{name}.b", c, dtype=dtype))

    qkv = linear(norm(x, "n1"), "qkv", 3 * c)
    q, k, v = (F.permute(F.view(F.slice(qkv, -1, i * c, (i + 1) * c, 1),
                                (b, t, heads, c // heads)), (0, 2, 1, 3)) for i in range(3))
    y = F.scaled_dot_product_attention(q, k, v)
    y = x + linear(F.reshape(F.permute(y, (0, 2, 1, 3)), (b, t, c)), "proj", c)
    y = y + linear(F.gelu(linear(norm(y, "n2"), "up", 4 * c)), "down", c)
    return net.finish([y], model.gradients(net.b, F.sum(y * g), [x, *net.weights]))


STEPS = {"gpt_step": functools.partial(model.gpt, 1, 8, 128, 256, 4, 1000), "mlp": mlp,
         "vit_block": vit_block}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name, store):
    """Every kernel of a step, with no call left to the host."""
    program = verify(fuse(lower(pipeline.run(STEPS[name]()), supports=triton.supports)))
    code = triton.emit(program)
    assert not any("host" in s for s in code.record["steps"])
    compiled(code, store)


class Done(BaseException):
    """The captured graph is compiled; nothing runs here."""


@pytest.mark.parametrize("name", ["gpt_step", "mlp", "vit_block"])
def test_workloads(name, store, monkeypatch):
    """Every kernel of a workload of `lehr bench`, captured from Python."""
    def make(graph, strides, options):
        program = lower(pipeline.run(graph), result_strides=strides, supports=triton.supports)
        code = triton.emit(verify(fuse(program)))
        assert not any("host" in s for s in code.record["steps"])
        raise Done(len(compiled(code, store)))

    def cubins(request, options):
        return backend.native(request, options, make)

    monkeypatch.setitem(backend.BACKENDS, "cubins", cubins)
    run, _ = pytorch.build(name, "eager", workload.arrays(name), "default")
    with pytest.raises(Done) as found:
        lehr.compile(run, backend="cubins", fullgraph=True)()
    assert found.value.args[0] >= 3


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("dtype", spelling.DTYPES, ids=lambda d: d.name)
def test_ops(dtype, arch, store):
    """Every primitive op, in one kernel."""
    n = 64
    params = [Buffer(name, dtype, (n,), (1,), "param") for name in "ab"]
    i = axis("i0", n)
    loads = [Expr("Load", dtype, b, (i.var,), None, None) for b in params]
    outputs, stores = [], []
    for op in spelling.SPELLED:
        made = spelling.computed(op, dtype)
        if made is None or (isinstance(op.triton, dict) and made.category not in op.triton):
            continue
        value = expr.alu(op.name, *spelling.elements(op, dtype, loads))
        outputs.append(Buffer(f"y_{op.name}", value.dtype, (n,), (1,), "output"))
        stores.append(Store(outputs[-1], (i.var,), value))
    program = Program("p", tuple(params), tuple(outputs), (Kernel("ops", (i,), tuple(stores)),),
                      tuple(outputs))
    compiled(triton.emit(program), store, arch)


KINDS = """program p(x: param f32[64,3000], t: param i64[64],
                     h: param bf16[64,48], f: param b1[64,48]) {
  z: output f32[7]
  w: output f64[9]
  m: output f32[11]
  a: output i64[64]
  c: output f32[64,3000]
  d: output b1[64]
  e: output i64[64]
  g: output bf16[48]
  kernel base(i0: 7) {
    z[i0] = f32(0.0)
  }
  kernel base2(i0: 9) {
    w[i0] = f64(1.0)
  }
  kernel base3(i0: 11) {
    m[i0] = f32(0.0)
  }
  kernel add(i0: 64) {
    bind g0 below {7} wrap = t[i0]
    z[g0] add = x[i0,0]
  }
  kernel mul(i0: 64) {
    bind g0 below {9} wrap = t[i0]
    w[g0] mul = cast.f64(x[i0,0])
  }
  kernel max(i0: 64) {
    bind g0 below {11} wrap = t[i0]
    m[g0] max = x[i0,0]
  }
  kernel argmax(i0: 64; k0: 3000) {
    a[i0] = argmax.i64.1[k0](x[i0,k0], index({k0}))
  }
  kernel scan(i0: 64; i1: 3000) {
    c[i0,i1] for (i1 scan) = scan.sum.f32[i1](x[i0,i1])
  }
  kernel any(i0: 64; k0: 48) {
    d[i0] = any.b1[k0](f[i0,k0])
  }
  kernel bits(i0: 64) {
    e[i0] = random(i64(5), i64(6), {i0})
  }
  kernel columns(i0: 48; k0: 64) {
    g[i0] = cast.bf16(max.f32[k0](cast.f32(h[k0,i0])))
  }
  return z, w, m, a, c, d, e, g
}"""


@pytest.mark.parametrize("arch", cubin.ARCHITECTURES)
def test_kinds(arch, store):
    """Gathers, scatters with and without instructions of their own, folds, scans, random bits."""
    made = compiled(triton.emit(verify(read(KINDS))), store, arch)
    assert made["mul"].warps == 1


def test_hit_needs_no_triton(tmp_path):
    """What is in the cache is found without importing triton; another program may have put it."""
    code = triton.emit(read(ADD.format("add")))
    script = f"""
import sys
from lehr.compiler.run import cubin
from lehr.compiler.run.cache import Cache
c = cubin.compile_cubin({code.source + "# other text"!r}, "add",
                        {code.record["functions"]["add"]!r}, 90, Cache({str(tmp_path)!r}, 1 << 30))
print(c.name, len(c.image), "triton" in sys.modules)
"""
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                           env=os.environ, check=True).stdout.split() for _ in range(2)]
    assert runs[0][:2] == runs[1][:2] and [r[2] for r in runs] == ["True", "False"]


ADD = """program p(x: param f32[64]) {{
  y: output f32[64]
  kernel {}(i0: 64) {{
    y[i0] = add.f32(x[i0], f32(1.0))
  }}
  return y
}}"""


def test_failure_names_the_function(store):
    code = triton.emit(read(ADD.format("add")))
    broken = code.source.replace("tl.load(p0", "tl.lode(p0")
    with pytest.raises(ValueError, match="cannot compile add for sm_90"):
        cubin.compile_cubin(broken, "add", code.record["functions"]["add"], 90, store)


def test_processes(store):
    """Several processes make what one makes; a failure in one of them is raised here."""
    text = "\n".join(KERNEL.format(n) for n in range(8))
    results = ", ".join(f"y{n}" for n in range(8))
    outputs = "\n".join(f"  y{n}: output f32[64]" for n in range(8))
    program = f"program p(x: param f32[64]) {{\n{outputs}\n{text}\n  return {results}\n}}"
    code = triton.emit(read(program))
    facts = code.record["functions"]
    made = cubin.compile_all(code.source, facts, 90, store, jobs=2)
    assert store.counts["written"] == 8 and list(made) == list(facts)
    alone = cubin.compile_cubin(code.source, "k3", facts["k3"], 90, Cache(store.folder + "2", 0))
    assert made["k3"] == alone
    broken = code.source.replace("7.5", "tl.none")
    with pytest.raises(ValueError, match="cannot compile k7"):
        cubin.compile_all(broken, facts, 80, store, jobs=2)


KERNEL = """  kernel k{0}(i0: 64) {{
    y{0}[i0] = add.f32(x[i0], f32({0}.5))
  }}"""

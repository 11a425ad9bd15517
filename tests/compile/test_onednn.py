"""oneDNN as the library of products and convolutions: against float64, and the path without it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lehr as torch
from lehr import nn
from lehr.base.options import OptionError, Options
from lehr.compiler.run import onednn

pytestmark = pytest.mark.skipif(not onednn.find(), reason="the extra onednn is not installed")

F = nn.functional
ONEDNN = {"library": "onednn"}
QUICK = settings(max_examples=25, deadline=None, derandomize=True, database=None,
                 suppress_health_check=list(HealthCheck), phases=[Phase.generate])
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
SIZE = st.sampled_from([0, 1, 2, 5, 16, 33, 70, 197, 300])


def close(got, want, dtype):
    """Within the rounding of a dtype of results in float64."""
    got, want = got.detach().double().numpy(), want.detach().numpy()
    scale = abs(want).max(initial=1e-3)
    np.testing.assert_allclose(got, want, rtol=DTYPES[dtype], atol=DTYPES[dtype] * scale)


def laid(tensor, way):
    """The same numbers in other memory: as they are, transposed, every other one, part of more."""
    if way == "turned":
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if way == "strided":
        return torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2]
    if way == "part":
        return F.pad(tensor, (1, 2, 3, 0))[..., 3:, 1:tensor.shape[-1] + 1]
    return tensor


WAY = st.sampled_from(["plain", "turned", "strided", "part"])


@QUICK
@given(m=SIZE, k=SIZE, n=SIZE, batch=st.sampled_from([(), (1,), (3,), (2, 1, 2)]),
       ways=st.tuples(WAY, WAY), dtype=st.sampled_from(list(DTYPES)), shared=st.booleans(),
       follow=st.booleans())
def test_products(m, k, n, batch, ways, dtype, shared, follow):
    torch.manual_seed(m + k + n)
    a = laid(torch.randn(*batch, m, k).to(dtype), ways[0])
    b = laid(torch.randn(*(() if shared else batch), k, n).to(dtype), ways[1])

    def function(a, b):
        made = a @ b
        return torch.relu(made) + 1 if follow else made
    got = torch.compile(function, options=ONEDNN)(a, b)
    assert got.dtype is dtype and got.shape == (*batch, m, n)
    close(got, function(a.double(), b.double()), dtype)


@QUICK
@given(rank=st.integers(1, 3), batch=st.sampled_from([0, 1, 3]), group=st.sampled_from(
           [(1, 3, 16), (1, 16, 5), (2, 3, 2), (4, 1, 1), (1, 1, 1), (2, 16, 16)]),
       size=st.integers(4, 11), kernel=st.integers(1, 3), stride=st.integers(1, 3),
       padding=st.integers(0, 2), dilation=st.integers(1, 2), last=st.booleans(),
       dtype=st.sampled_from(list(DTYPES)), adjoint=st.booleans(), odd=st.booleans())
def test_convolutions(rank, batch, group, size, kernel, stride, padding, dilation, last, dtype,
                      adjoint, odd):
    """Results and both gradients."""
    groups, into, out = group
    if size + 2 * padding < dilation * (kernel - 1) + 1:
        return
    torch.manual_seed(size)
    x = torch.randn(batch, groups * into, *[size] * rank).to(dtype)
    shape = (groups * into, out) if adjoint else (groups * out, into)
    w = torch.randn(*shape, *[kernel] * rank).to(dtype)
    if last and rank > 1:
        form = torch.channels_last if rank == 2 else torch.channels_last_3d
        x, w = x.to(memory_format=form), w.to(memory_format=form)
    more = int(odd and max(stride, dilation) > 1)
    if adjoint and (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1 < 1:
        return

    def function(x, w):
        x, w = (t.detach().requires_grad_() for t in (x, w))
        if adjoint:
            y = getattr(F, f"conv_transpose{rank}d")(x, w, None, stride, padding, more, groups,
                                                     dilation)
        else:
            y = getattr(F, f"conv{rank}d")(x, w, None, stride, padding, dilation, groups)
        seed = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype).to(y.dtype)
        return y, *torch.autograd.grad(y, (x, w), seed)
    got = torch.compile(function, options=ONEDNN)(x, w)
    for g, e in zip(got, function(x.double(), w.double()), strict=True):
        assert g.dtype is dtype and g.shape == e.shape
        close(g, e, dtype)


def templates(function):
    """What the programs of a compiled function load."""
    found = set()
    for entry in function.entries:
        for program in entry.compiled.report:
            found.update(program.run.record["templates"])
    return found


def test_it_is_called():
    """Programs with it call it, and others do not."""
    x = torch.randn(40, 50)
    images, kernel = torch.randn(2, 16, 9, 9), torch.randn(16, 16, 3, 3)
    for function, args in ((lambda x: x @ x.t(), (x,)), (lambda x: x @ x.t(), (x.bfloat16(),)),
                           (lambda x, w: F.conv2d(x, w), (images, kernel))):
        made = [torch.compile(function, options=options) for options in (ONEDNN, {})]
        for each in made:
            each(*args)
        assert templates(made[0]) == {"onednn"} and "onednn" not in templates(made[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_infinities_and_nans(dtype):
    x = torch.randn(40, 64).to(dtype)
    x[3, 5], x[7, 9] = float("inf"), float("nan")
    w = torch.randn(64, 30).to(dtype)
    got = torch.compile(lambda x, w: x @ w, options=ONEDNN)(x, w)
    want = x.double() @ w.double()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.double()[3], want[3])


def test_symbolic_sizes():
    product = torch.compile(lambda x, y: torch.relu(x @ y) + 1, dynamic=True, options=ONEDNN)
    images = torch.compile(lambda x, w: F.conv2d(x, w, padding=1), dynamic=True, options=ONEDNN)
    kernel = torch.randn(8, 3, 3, 3)
    for m in (3, 50, 700):
        for dtype in (torch.float32, torch.bfloat16):
            x, y = torch.randn(m, 40).to(dtype), torch.randn(40, m + 1).to(dtype)
            close(product(x, y), torch.relu(x.double() @ y.double()) + 1, dtype)
        x = torch.randn(m % 7 + 2, 3, m % 11 + 5, 8)
        close(images(x, kernel), F.conv2d(x.double(), kernel.double(), padding=1), torch.float32)


def test_autocast_and_weights_that_change():
    """Weights are rounded as they are reordered, at every call."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 100), nn.GELU(), nn.Linear(100, 20)).eval()
    x = torch.randn(600, 48)

    def run(x):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            return model(x)
    compiled = torch.compile(run, options=ONEDNN)
    for factor in (1.0, -2.0):
        with torch.no_grad():
            model[0].weight.mul_(factor)
        got, want = compiled(x).float(), run(x).float()
        assert (got - want).abs().max() <= 2e-2 * want.abs().max()


def test_a_training_step_is_that_of_openblas():
    def losses(options):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
                              nn.Conv2d(16, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        x, y = torch.randn(8, 3, 14, 14), torch.arange(8)

        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()
        step = torch.compile(step, options=options)
        return [step().item() for _ in range(5)]
    found = losses(ONEDNN)
    np.testing.assert_allclose(found, losses({}), rtol=1e-4)
    assert found[-1] < found[0]


def test_threads():
    """Blocks on several threads are those of one; OpenMP's threads are lehr's number."""
    before = torch.get_num_threads()
    x, w = torch.randn(700, 64).bfloat16(), torch.randn(64, 90).bfloat16()
    images, kernel = torch.randn(4, 16, 20, 20), torch.randn(32, 16, 3, 3)
    function = torch.compile(lambda x, w, i, k: (x @ w + 1, x.float() @ w.float(), F.conv2d(i, k)),
                             options=ONEDNN)
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(function(x, w, images, kernel))
    finally:
        torch.set_num_threads(before)
    for got in found[1:]:
        for g, e in zip(got, found[0], strict=True):
            torch.testing.assert_close(g, e, rtol=1e-5, atol=1e-5)


def test_a_child_process_goes_on():
    """OpenMP has no threads left after a fork, and does not know."""
    code = """
import os, lehr as torch
torch.set_num_threads(2)
x, w = torch.randn(4, 16, 20, 20), torch.randn(32, 16, 3, 3)
f = torch.compile(lambda x, w: torch.nn.functional.conv2d(x, w), options={"library": "onednn"})
want = f(x, w)
child = os.fork()
if not child:
    os._exit(0 if torch.allclose(f(x, w), want, atol=1e-5) else 3)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_no_product_waits_for_plain_loops():
    """Parts of a wide product, a thread's each, go by fast code as the whole does."""
    code = """
import lehr as torch
torch.set_num_threads(2)
f = torch.compile(torch.nn.functional.linear, options={"library": "onednn"})
for m, k, n in ((128, 256, 2048), (128, 512, 512), (64, 96, 4096), (300, 256, 1024)):
    x, w = torch.randn(m, k), torch.randn(n, k)
    want = x @ w.T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (f(x, w).float() - want).abs().max() < 1e-2 * want.abs().max()
    x, w = x.bfloat16(), w.bfloat16()
    assert (f(x, w).float() - want).abs().max() < 2e-2 * want.abs().max()
"""
    made = subprocess.run([sys.executable, "-c", code], check=True, timeout=300, text=True,
                          env={**os.environ, "ONEDNN_VERBOSE": "1"}, stdout=subprocess.PIPE)
    products = [line for line in made.stdout.splitlines() if ",exec,cpu,matmul," in line]
    assert products
    assert not [line for line in products if ",matmul,ref" in line]


@pytest.mark.parametrize("winner", ["openblas", "onednn"])
def test_max_autotune_takes_the_faster_one(winner, monkeypatch, tmp_path):
    """Each product and convolution is raced once, on programs that both give the right numbers."""
    raced = []

    def choose(candidates, standard, parts, options, **how):
        assert set(candidates) == {"openblas", "onednn"} and standard == "openblas"
        for call in candidates.values():
            call()
        raced.append(parts["op"])
        return winner
    monkeypatch.setattr("lehr.compiler.run.tune.choose", choose)
    x, w = torch.randn(130, 70), torch.randn(70, 40)
    images, kernel = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3)
    made = torch.compile(lambda x, w, i, k: (x @ w + 1, F.conv2d(i, k)), mode="max-autotune",
                         options={"cache_dir": str(tmp_path)})
    product, images = made(x, w, images, kernel)
    close(product, x.double() @ w.double() + 1, torch.float32)
    assert sorted(raced) == ["convolution", "matmul"]
    assert ("onednn" in templates(made)) == (winner == "onednn")


def test_max_autotune_measures():
    x, w = torch.randn(130, 70), torch.randn(70, 40)
    made = torch.compile(lambda x, w: x @ w, mode="max-autotune")
    close(made(x, w), x.double() @ w.double(), torch.float32)
    assert onednn.parts(Options(mode="max-autotune"))["onednn"] == onednn.version()
    assert onednn.parts(Options()) == {}


def test_info_and_backends():
    assert torch.backends.mkldnn.is_available()
    from lehr.cli import info
    assert any(onednn.load().version in f.text for f in info.other())


def test_option_is_checked():
    with pytest.raises(OptionError, match="library"):
        torch.compile(lambda x: x, options={"library": "mkl"})


def test_environment_chooses(monkeypatch):
    monkeypatch.setattr("lehr.base.options._default", Options.from_env({"LEHR_LIBRARY": "onednn"}))
    x = torch.ones(40, 40)
    made = torch.compile(lambda x: x @ x)
    assert (made(x) == 40).all() and templates(made) == {"onednn"}

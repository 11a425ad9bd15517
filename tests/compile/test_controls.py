"""The user's controls of the compiler: arguments, stances, settings, PyTorch's names."""

import copy
import importlib
import io
import pickle
import warnings

import pytest

import lehr as torch
from lehr.base import log, options
from lehr.compiler.counters import stats

X = torch.arange(6, dtype=torch.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _fresh():
    before = options.default()
    log.reset()
    yield
    torch.compiler.set_stance("default")
    options.set_default(before)
    log.reset()


def double(x):
    return x * 2


@torch.compile
def tripled(x):
    return x * 3


def compiles(function, *args):
    """How many calls are captured while the function runs."""
    before = stats()["captures"]
    function(*args)
    return stats()["captures"] - before


# -- torch.compile

@pytest.mark.parametrize("mode", [
    None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_every_mode_computes_the_same(mode, dynamic):
    compiled = torch.compile(double, mode=mode, dynamic=dynamic, backend="eager")
    assert compiled(X).equal(X * 2) and compiles(compiled, X) == 0


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager", "reference"])
def test_every_back_end_computes_the_same(backend):
    x = X.clone().requires_grad_()
    torch.compile(double, backend=backend, fullgraph=True)(x).sum().backward()
    assert x.grad.equal(torch.full((2, 3), 2.0))


def test_decorators_with_and_without_arguments():
    assert tripled(X).equal(X * 3)
    assert torch.compile(fullgraph=True)(double)(X).equal(X * 2)
    assert torch.compile(disable=True)(double) is double
    assert torch.compile(double, disable=True) is double

    class Scaled:
        factor = 5

        @torch.compile
        def run(self, x):
            return x * self.factor

    assert Scaled().run(X).equal(X * 5)
    assert tripled.__name__ == "tripled" and tripled.__wrapped__(X).equal(X * 3)


@pytest.mark.parametrize(("given", "error", "text"), [
    ({"mode": "fast"}, ValueError, "'max-autotune'"),
    ({"backend": "induktor"}, ValueError, "aot_eager, eager, inductor"),
    ({"options": {"recompile_limits": 3}}, ValueError, "is it recompile_limit"),
    ({"options": {"recompile_limit": "many"}}, ValueError, "a whole number"),
    ({"dynamic": "maybe"}, ValueError, "true or false"),
])
def test_wrong_arguments_are_named_at_once(given, error, text):
    with pytest.raises(error, match=text):
        torch.compile(double, **given)


def test_only_what_can_be_called():
    with pytest.raises(TypeError, match="takes a function or a Module, not int"):
        torch.compile(3)


def test_fullgraph_names_the_line():
    def broken(x):
        print("here")
        return x
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r'print("here")'.replace("(", r"\(")
                       .replace(")", r"\)")):
        torch.compile(broken, fullgraph=True)(X)


def test_options_take_lehrs_names_and_pytorchs():
    compiled = torch.compile(double, options={
        "recompile_limit": 3, "triton.cudagraphs": True, "max_autotune": True,
        "epilogue_fusion": True, "force_disable_caches": True})
    assert compiled.options.recompile_limit == 3 and compiled.options.cudagraphs is True
    assert compiled.options.mode == "max-autotune" and compiled.options.cache is False


def test_compiled_things_are_compiled_anew():
    again = torch.compile(torch.compile(double), backend="eager")
    assert again(X).equal(X * 2) and again.recipe[1] == "eager"
    net = torch.compile(torch.nn.Linear(3, 2))
    other = torch.compile(net, backend="eager")
    assert other._orig_mod is net._orig_mod and other(X).equal(net(X))


def test_compiled_functions_can_be_copied_and_pickled():
    assert pickle.loads(pickle.dumps(tripled)) is tripled
    compiled = torch.compile(double, options={"recompile_limit": 3})
    held = copy.deepcopy({"step": compiled})["step"]
    assert held(X).equal(X * 2) and held.options.recompile_limit == 3
    bound = torch.compile(Holder(4).scale)
    assert copy.deepcopy(bound)(X).equal(X * 4)


class Holder:
    def __init__(self, factor):
        self.factor = factor

    def scale(self, x):
        return x * self.factor


# -- limits

def test_the_recompile_limit_names_the_guard_and_both_values():
    compiled = torch.compile(double, options={"recompile_limit": 2, "strict": False},
                             backend="eager", dynamic=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in range(1, 6):
            assert compiled(torch.ones(n)).equal(torch.full((n,), 2.0))
    (said,) = [str(w.message) for w in seen]
    assert "double was compiled 2 times, the limit (recompile_limit)" in said
    assert "x: shape was (2,), is (3,)" in said
    with pytest.raises(torch._dynamo.exc.RecompileLimitExceeded, match=r"was \(1,\), is \(2,\)"):
        strict = torch.compile(double, options={"recompile_limit": 1, "strict": True},
                               dynamic=False)
        strict(torch.ones(1)), strict(torch.ones(2))


def test_the_limit_is_read_where_pytorch_has_it():
    compiled = torch.compile(double, backend="eager", options={"strict": False})
    torch._dynamo.config.cache_size_limit = 1
    assert torch._dynamo.config.recompile_limit == 1
    compiled(torch.ones(1))
    with pytest.warns(log.LehrWarning, match="compiled 1 times"):
        compiled(torch.ones(2))


# -- reset, stances, marks

def test_reset_forgets_captured_calls():
    compiled = torch.compile(double, backend="eager")
    assert compiles(compiled, X) == 1 and compiles(compiled, X) == 0
    torch.compiler.reset()
    assert compiles(compiled, X) == 1
    torch._dynamo.reset()
    assert compiles(compiled, X) == 1


def test_stances():
    compiled = torch.compile(double, backend="eager")
    with torch.compiler.set_stance("force_eager"):
        assert compiles(compiled, X) == 0
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="yet"):
        compiled(X)
    compiled(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled(X).equal(X * 2)
        with pytest.raises(RuntimeError, match=r"x: shape was \(2, 3\), is \(3,\)"):
            compiled(X[0])
    with torch.compiler.set_stance("eager_on_recompile"):
        assert compiles(compiled, X[0]) == 0 and compiled(X[0]).equal(X[0] * 2)
    later = torch.compile(double, backend="eager")

    @torch.compiler.set_stance("eager_then_compile")
    def twice():
        return compiles(later, X), compiles(later, X)

    assert twice() == (0, 1)
    assert compiles(compiled, X[0]) == 1
    with pytest.raises(ValueError, match="force_eager"):
        torch.compiler.set_stance("eager")


def test_a_stance_taken_inside_ends_the_graph():
    def sets(x):
        y = x + 1
        torch.compiler.set_stance("default")
        return y * 2
    assert torch.compile(sets, backend="eager")(X).equal((X + 1) * 2)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="set_stance"):
        torch.compile(sets, fullgraph=True)(X)


def test_is_compiling():
    def f(x):
        return x + (1 if torch.compiler.is_compiling() else 2)
    assert torch.compile(f, backend="eager")(X).equal(X + 1) and f(X).equal(X + 2)
    assert not torch.compiler.is_dynamo_compiling() and not torch._dynamo.is_compiling()
    assert not torch.compiler.is_exporting()


def test_marks_are_checked():
    x = X.clone()
    for mark in (torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic,
                 torch._dynamo.mark_static, torch._dynamo.mark_unbacked):
        mark(x, 0), mark(x, [0, -1])
        with pytest.raises(IndexError, match="2 dimensions has no dimension 2"):
            mark(x, 2)
    with pytest.raises(ValueError, match=r"outside \[4, 8\]"):
        torch._dynamo.mark_dynamic(x, 0, min=4, max=8)
    torch._dynamo.mark_static_address(x)
    torch.compiler.cudagraph_mark_step_begin()


# -- parts of a program

def test_allow_in_graph_is_not_looked_into():
    seen = []

    @torch._dynamo.allow_in_graph
    def noted(x):
        seen.append(1)
        return x.sin()

    def f(x):
        return noted(x) + 1
    compiled = torch.compile(f, fullgraph=True, backend="eager")
    assert compiled(X).equal(X.sin() + 1) and compiled(X).equal(X.sin() + 1)
    assert len(seen) == 1
    with pytest.raises(TypeError, match="takes a Python function"):
        torch.compiler.allow_in_graph(len)


def test_assume_constant_result():
    calls = []

    @torch.compiler.assume_constant_result
    def width(key):
        calls.append(key)
        return {"a": 3}[key]

    compiled = torch.compile(lambda x: x * width("a"), fullgraph=True, backend="eager")
    assert compiled(X).equal(X * 3) and compiled(X).equal(X * 3) and calls == ["a"]

    @torch.compiler.assume_constant_result
    def of(x):
        return 1
    with pytest.raises(torch._dynamo.exc.Unsupported, match="gets a computed value"):
        torch.compile(lambda x: of(x + 1), fullgraph=True)(X)


def test_wrap_numpy():
    import numpy as np
    f = torch.compiler.wrap_numpy(lambda a, scale: {"sum": np.cumsum(a) * scale})
    assert f(X, 2)["sum"].equal(torch.cumsum(X.reshape(-1), 0) * 2)
    assert torch.compile(lambda x: f(x + 1, 1)["sum"] * 2)(X).equal(
        torch.cumsum((X + 1).reshape(-1), 0) * 2)


def test_disable_and_graph_break():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return inner(y)

    @torch._dynamo.disable(reason="bookkeeping")
    def inner(y):
        return y + 1
    assert torch.compile(f, backend="eager")(X).equal(X.sin() + 1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        torch.compile(f, fullgraph=True)(X)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="bookkeeping"):
        torch.compile(lambda x: inner(x), fullgraph=True)(X)
    with torch._dynamo.error_on_graph_break(True), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, backend="eager")(X)


# -- back ends of the user's own

def test_a_callable_back_end_gets_the_graph():
    seen = []

    def spying(gm, inputs):
        names = [n.op.name for n in gm.graph.nodes if n.op.name != "read"]
        seen.append((names, [tuple(t.shape) for t in inputs]))
        return gm.forward

    compiled = torch.compile(lambda x: (x.sin() + 1).sum(), backend=spying, fullgraph=True)
    x = X.clone().requires_grad_()
    compiled(x).backward()
    compiled(x).backward()
    assert seen == [(["sin", "add", "sum"], [(2, 3)])]
    assert torch.allclose(x.grad, 2 * X.cos())


def test_a_callable_back_end_may_replace_the_graph():
    compiled = torch.compile(double, backend=lambda gm, inputs: lambda *given: (given[0] * 7,))
    assert compiled(X).equal(X * 7)
    with pytest.raises(TypeError, match="gave 0 results"):
        torch.compile(double, backend=lambda gm, inputs: lambda *given: (),
                      options={"strict": True})(X)


def test_a_callable_back_end_keeps_effects_and_views():
    def f(x, log):
        x.add_(1)
        log.append(x[0])
        return x, x.t(), x * 1
    want, have, notes, noted = X.clone(), X.clone(), [], []
    a = f(want, notes)
    b = torch.compile(f, backend=lambda gm, inputs: gm, fullgraph=True)(have, noted)
    assert want.equal(have) and b[0] is have and b[1].data_ptr() == have.data_ptr()
    assert noted[0].data_ptr() == have.data_ptr() and all(map(torch.equal, a, b))


def test_a_back_end_of_one_s_own_takes_ops_with_named_results():
    def f(x):
        largest = x.max(0)
        return largest.values * 2, largest.indices, torch.linalg.slogdet(x).logabsdet
    grads = []
    for g in (f, torch.compile(f, backend=lambda gm, inputs: gm.forward)):
        x = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
        values, _, size = g(x)
        (values.sum() + size).backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]



def test_a_callable_back_end_with_symbolic_sizes():
    seen = []

    def spying(gm, inputs):
        seen.append(gm)
        return gm
    compiled = torch.compile(lambda x, w: ((x * w).t() + x.shape[0]).sum(1), backend=spying,
                             dynamic=True, fullgraph=True)
    for n in (2, 5, 3):
        x, w = torch.ones(n, 4) * n, torch.ones(4, requires_grad=True)
        y = compiled(x, w)
        y.sum().backward()
        assert y.equal(torch.full((4,), float(2 * n * n))) and w.grad.equal(
            torch.full((4,), float(n * n)))
    assert len(seen) == 1


def test_registered_back_ends():
    @torch._dynamo.backends.registry.register_backend(name="mine", tags=("debug",))
    def mine(gm, inputs):
        return gm
    from lehr.compiler import backend
    try:
        assert torch.compile(double, backend="mine")(X).equal(X * 2)
        assert "mine" in torch._dynamo.list_backends(()) and (
            torch.compiler.list_backends() == [n for n in backend.BACKENDS
                                               if not backend.TAGS.get(n)])
    finally:
        del backend.BACKENDS["mine"], backend.TAGS["mine"]


# -- PyTorch's modules

@pytest.mark.parametrize("name", [
    "_dynamo.config", "_inductor.config", "_dynamo.utils", "_dynamo.eval_frame", "_dynamo.exc",
    "_dynamo.decorators", "_inductor.utils", "_logging", "compiler"])
def test_modules_are_found(name):
    found = importlib.import_module(f"lehr.{name}")
    place = torch
    for part in name.split("."):
        place = getattr(place, part)
    assert place is found


def test_settings():
    dynamo, inductor = torch._dynamo.config, torch._inductor.config
    dynamo.suppress_errors = False
    assert options.default().suppress_errors is False and dynamo.suppress_errors is False
    dynamo.verbose = True
    inductor.coordinate_descent_tuning = True
    inductor.triton.unique_kernel_names = True
    inductor.triton.cudagraphs = True
    assert options.default().cudagraphs is True and inductor.triton.unique_kernel_names is True
    inductor.force_disable_caches = True
    assert options.default().cache is False and inductor.fx_graph_cache is False
    with dynamo.patch(recompile_limit=3), inductor.patch({"cpp.threads": 2}):
        assert options.default().recompile_limit == 3 and options.default().threads == 2
    assert options.default().recompile_limit == 8 and options.default().threads == 0
    with dynamo.patch("error_on_recompile", True), pytest.raises(RuntimeError, match="compiled"):
        torch.compile(double)(X)
    with pytest.raises(AttributeError, match="is it recompile_limit"):
        dynamo.recompile_limi  # noqa: B018
    with pytest.warns(log.LehrWarning, match="'no_such_setting', which changes nothing"):
        dynamo.no_such_setting = 3
    assert dynamo.no_such_setting == 3 and "patch" in dir(dynamo)


def test_settings_act_on_functions_compiled_before():
    compiled = torch.compile(double)
    torch._inductor.config.max_autotune = True
    assert compiled.options.mode == "max-autotune"
    assert torch.compile(double, mode="default").options.mode == "default"


def test_set_logs(capsys):
    torch._logging.set_logs(graph_breaks=True, recompiles=True)

    def f(x):
        print("x")
        return x + 1
    compiled = torch.compile(f, backend="eager")
    compiled(X), compiled(X[0])
    said = capsys.readouterr().err
    assert 'print("x")' in said and "x: shape was (2, 3), is (3,)" in said
    torch._logging.set_logs()
    torch.compile(f, backend="eager")(X)
    assert "print" not in capsys.readouterr().err
    with pytest.raises(ValueError, match="is it graph_breaks"):
        torch._logging.set_logs(graph_break=True)


def test_older_spellings():
    assert torch._dynamo.optimize("eager", nopython=True)(double)(X).equal(X * 2)
    assert torch._disable_dynamo is torch.compiler.disable
    compiled = torch.compile(double, backend="eager")
    assert compiles(torch._dynamo.run(compiled), X) == 0
    torch._dynamo.utils.counters.clear()
    compiled(X)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert torch._dynamo.utils.counters["graph_break"].total() == 0
    with torch._inductor.utils.fresh_inductor_cache():
        folder = options.default().cache_dir
        assert folder and torch.compile(double)(X).equal(X * 2)
    assert options.default().cache_dir != folder


# -- compiled modules

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.drop(self.inner(x)).relu()


def test_a_compiled_module_is_the_module():
    net = Net().eval()
    compiled = torch.compile(net, backend="eager")
    assert isinstance(compiled, Net) and compiled._orig_mod is net
    assert isinstance(compiled, torch._dynamo.OptimizedModule)
    assert not isinstance(net, torch._dynamo.eval_frame.OptimizedModule)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == ["inner.weight", "inner.bias"]
    assert compiled(X).equal(net(X)) and net.calls == compiled.calls == 2
    compiled.extra = 3
    assert net.extra == 3 and repr(compiled) == repr(net)
    compiled.train()
    assert net.training and net.drop.training
    compiled.load_state_dict({k: torch.zeros_like(v) for k, v in net.state_dict().items()})
    assert net.inner.weight.abs().sum() == 0
    assert list(torch.nn.Sequential(compiled).state_dict()) == ["0.inner.weight", "0.inner.bias"]
    del compiled.extra
    assert not hasattr(net, "extra") and type(compiled)().calls == 0


def test_hooks_of_a_compiled_module_act_at_the_next_call():
    net = Net().eval()
    compiled = torch.compile(net, backend="eager")
    want = compiled(X)
    handle = compiled.register_forward_hook(lambda m, args, out: out + 1)
    assert compiled(X).equal(want + 1)
    before = net.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    assert compiled(X).equal(net.inner.bias.relu().expand(2, 3) + 1)
    handle.remove(), before.remove()
    assert compiled(X).equal(want)


@pytest.mark.parametrize("copied", [
    copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m)),
    lambda m: saved(m)], ids=["deepcopy", "copy", "pickle", "save"])
def test_compiled_modules_are_copied_as_modules(copied):
    net = Net().eval()
    compiled = torch.compile(net, backend="eager", options={"recompile_limit": 5})
    want = compiled(X)
    other = copied(compiled)
    assert isinstance(other, Net) and isinstance(other, torch._dynamo.OptimizedModule)
    assert other(X).equal(want) and other.compiled_call.options.recompile_limit == 5
    other.calls = 100
    assert net.calls < 100


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_module_compile_in_place():
    net = Net().eval()
    want = net(X)
    net.compile(backend="eager", fullgraph=True)
    assert compiles(net, X) == 1 and net(X).equal(want)
    assert copy.deepcopy(net)(X).equal(want)


def test_every_compiled_call_is_counted():
    def broken(x):
        y = x * 2
        float(y.sum())
        return y + 1
    for f, each in ((lambda x: x * 2, 1), (broken, 2)):
        compiled = torch.compile(f, backend="reference")
        before = stats()["calls"]
        for _ in range(4):
            compiled(torch.ones(3))
        assert stats()["calls"] - before == 4 * each

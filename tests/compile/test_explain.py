"""`lehr.compiler.explain` and the logs: every break, recompile and graph, by the user's lines."""

import inspect
import json
import sys

import pytest

import lehr as torch
from lehr.base import log, options
from lehr.compiler.capture.breaks import REGISTRY

X = torch.arange(6, dtype=torch.float32).reshape(2, 3)
HERE = __file__


def line_of(function, text):
    """The number of the only line of a function that contains a text."""
    source, first = inspect.getsourcelines(function)
    (at,) = [i for i, line in enumerate(source) if text in line]
    return first + at


def chatty(x):
    y = x.sin()
    print("mean", round(float(y.mean()), 3))
    return y.cos()


def test_a_break_has_line_text_code_reason_and_remedy(capsys):
    e = torch.compiler.explain(chatty)(X)
    assert capsys.readouterr().out == f"mean {round(float(X.sin().mean()), 3)}\n"
    assert e.graph_count == 2 and e.op_count == 3
    first = e.breaks[0]
    assert first.file == HERE and first.line == line_of(chatty, "print(")
    assert first.text == 'print("mean", round(float(y.mean()), 3))'
    assert first.code == "data-dependent" and first.why == REGISTRY[first.code].explain
    assert first.remedy == REGISTRY[first.code].hint and first.name == "chatty"
    assert first.user_stack[0].lineno == first.line and "data of a tensor" in first.reason
    assert e.break_reasons == e.breaks and e.graph_break_count == len(e.breaks) == 2
    assert e.breaks[1].code == "print"


def test_graphs_say_what_they_cost():
    def f(x, w):
        y = (x @ w).relu()
        return y.softmax(-1) * 2
    w = torch.ones(3, 3, requires_grad=True)
    explain = torch.compiler.explain(f)
    (g,) = explain(X, w).graphs
    assert g.ops == 4 and g.kinds == {"matmul": 1, "relu": 1, "softmax": 1, "mul": 1}
    assert [(a, b) for a, b, _ in g.lines] == [
        (HERE, line_of(f, "x @ w")), (HERE, line_of(f, "softmax"))]
    assert g.lines[1][2] == "return y.softmax(-1) * 2" and g.inputs == 2 and g.outputs == 1
    assert g.forward.library_calls == 1 and g.forward.kernels == 1 and g.forward.host_calls == 0
    # The product's input and output, the softmax' input and output, and the sums saved.
    assert g.forward.moved >= 4 * (6 + 9 + 6 + 6)
    assert g.backward.library_calls == 1 and g.gradients == 1
    assert "w: Tensor torch.float32 [3, 3], strides [3, 1], cpu, requires grad" in g.guards
    explain(X, w)
    assert explain.explanation().graphs[0].calls == 2
    assert explain.result.equal(f(X, w))


def test_host_calls_are_counted():
    def f(x):
        return torch.linalg.svdvals(x + 1) * 2
    (g,) = torch.compiler.explain(f)(X).graphs
    assert g.forward.host_calls >= 1


def test_recompiles_say_which_argument_changed():
    def f(x, flag, scale):
        return x * scale if flag else x
    explain = torch.compiler.explain(f)
    assert not explain(X, True, 2).recompiles
    (r,) = explain(X[0], True, 2).recompiles
    assert r.changes == (("x", "shape was (2, 3), is (3,); strides was (3, 1), is (1,)"),)
    assert r.place.file == HERE and r.place.line == line_of(f, "def f")
    last = explain(X[0], False, 3).recompiles[-1]
    assert dict(last.changes)["flag"].endswith("was True, is False")


def test_the_report_shows_everything():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1
    e = torch.compiler.explain(f)
    e(X)
    text = str(e(X[0]))
    assert "graph break" in text and f'File "{HERE}", line {line_of(f, "x.sum")}, in' in text
    for part in ("if x.sum() > 0:", "[data-dependent]", "Why: ", "What to do: ", "Graph 1: ",
                 "kernel", "moved", "Recompile 1: ", "x: shape was (2, 3), is (3,)"):
        assert part in text, part


def test_the_same_as_data():
    e = torch.compiler.explain(chatty)(X)
    data = json.loads(e.to_json())
    assert data["breaks"][0]["file"] == HERE and data["breaks"][0]["line"] == e.breaks[0].line
    assert data["graphs"][0]["forward"]["kernels"] == e.graphs[0].forward.kernels
    assert data["graph_break_count"] == 2 and data["op_count"] == 3
    assert e.ops_per_graph == [["sin", "mean"], ["cos"]] and "chatty" in e.compile_times
    assert data["graphs"][0]["guards"] == list(e.graphs[0].guards)


def test_a_compiled_function_is_looked_at_as_it_is():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(X), compiled(X[0])
    e = torch.compiler.explain(compiled)(X)
    assert len(e.graphs) == 2 and len(e.recompiles) == 1 and e.graphs[0].forward is None
    assert e.graphs[0].calls == 2 and "no code is generated" in str(e)
    torch.compiler.reset()
    assert torch.compiler.explain(compiled)(X).graph_count == 1


def test_modules_and_their_parts():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)
            self.seen = []

        def forward(self, x):
            return self.inner(self.route(x.relu()))

        @torch.compiler.disable(reason="keeps a list of real values")
        def route(self, x):
            self.seen.append(float(x.mean()))
            return x * 2
    net = Net()
    e = torch._dynamo.explain(net)(X)
    assert e.graph_count == 2 and e.name.endswith("Net") and net.seen == [float(X.mean())]
    (b,) = e.breaks
    assert b.code == "disabled" and "keeps a list" in b.detail and b.text.startswith("return self")
    assert torch._dynamo.explain(net, X).graph_count == 2


def test_the_functions_that_a_break_calls_are_there():
    def inner(x):
        y = x + 1
        print(end="")
        return y * 2

    def outer(x):
        return inner(x.sin()).cos()
    e = torch.compiler.explain(outer)(X)
    assert [g.ops for g in e.graphs] == [1, 1, 1, 1]
    (b,) = e.breaks
    assert [p.function.split(".")[-1] for p in b.places] == ["outer", "inner"]
    assert b.line == line_of(inner, "print(")


def test_what_runs_eagerly_says_why():
    before = options.default()
    options.set_default(before.replace(strict=False))
    try:
        compiled = torch.compile(lambda x: x + 1, options={"recompile_limit": 1}, backend="eager")
        with pytest.warns(log.LehrWarning):
            e = torch.compiler.explain(compiled)
            e(X), e(X[0])
    finally:
        options.set_default(before)
    (f,) = e.explanation().fallbacks
    assert "recompile_limit" in f.why and "x: shape was (2, 3), is (3,)" in f.why
    assert "Runs eagerly" in str(e.explanation())


# Code of a break -> a function with one such break, marked by `# here`.
def reads_data(x):
    return x * int(x.sum())  # here


def asks_for_one(x):
    torch.compiler.graph_break()  # here
    return x


def executes(x):
    return eval("x + 1", {"x": x})  # here


def prints(x):
    print(end="")  # here
    return x


def inspects(x):
    sys._getframe()  # here
    return x


def sizes(x):
    return torch.nonzero(x)  # here


def unknown(x):
    json.dumps({"a": 1}, cls=None)
    sys.getrefcount(x)  # here
    return x


KNOWN = {"data-dependent": reads_data, "requested": asks_for_one, "execute": executes,
         "print": prints, "frame-access": inspects, "data-dependent-size": sizes,
         "native-call": unknown}


@pytest.mark.parametrize("code", KNOWN)
def test_known_breaks_are_found_in_their_lines(code):
    e = torch.compiler.explain(KNOWN[code])(X)
    found = [b for b in e.breaks if b.file == HERE]
    assert found and {b.line for b in found} == {line_of(KNOWN[code], "# here")}
    assert code in {b.code for b in found}


# -- logs

@pytest.fixture
def logs(capsys):
    """(channels, function) -> what they print while the function runs."""
    before = options.default()

    def run(channels, function):
        options.set_default(before.replace(log=channels))
        log.refresh()
        capsys.readouterr()
        function()
        return capsys.readouterr().err
    yield run
    options.set_default(before)
    log.refresh()


@pytest.mark.parametrize(("channel", "parts"), [
    ("breaks", ["[data-dependent]", "print(", "What to do:"]),
    ("recompiles", ["chatty is compiled again", "def chatty", "x: shape was (2, 3), is (3,)"]),
    ("capture", ["chatty is captured:", "guards", "def chatty"]),
    ("guards", ["chatty is compiled for", "x: Tensor torch.float32 [2, 3]"]),
    ("graph", ["= sin(", "# test_explain.py:"]),
    ("fusion", ["takes", "test_explain.py:"]),
])
def test_logs_show_the_users_lines(logs, channel, parts):
    def softened(x):
        return x.softmax(-1) * 2 + 1

    def run():
        compiled = torch.compile(chatty, options={"cache": False})
        compiled(X), compiled(X[0])
        torch.compile(softened, options={"cache": False})(X)
    said = logs(channel, run)
    assert all(line.startswith(f"lehr {channel} ") for line in said.splitlines())
    for part in parts:
        assert part in said, part
    assert logs("", run) == ""

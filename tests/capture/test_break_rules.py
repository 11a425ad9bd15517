"""What graph breaks promise: errors that name the line, counters, limits, tracebacks, threads."""

import contextlib
import gc
import io
import sys
import threading
import traceback
import weakref

import pytest

import lehr as torch
from lehr.compiler import site
from lehr.compiler.capture.breaks import REGISTRY
from lehr.compiler.compile import compile as lehr_compile
from lehr.compiler.counters import COUNTERS, stats


def compiled(function, **options):
    COUNTERS.reset()
    options = {"strict": True, "suppress_errors": False, **options}
    return lehr_compile(function, backend="reference", options=options)


def quiet(function, *args):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        found = function(*args)
    return found, out.getvalue()


def counted(*names):
    counts = stats()
    return tuple(counts[n] for n in names)


X = torch.tensor([1.0, 2.0])


def printing(x):
    y = x * 2
    print("here")  # the line to be named
    return y + 1


# -- errors


def test_fullgraph_names_line_text_reason_and_remedy():
    c = lehr_compile(printing, fullgraph=True, backend="reference")
    with pytest.raises(site.Unsupported) as caught:
        c(X)
    text, row = str(caught.value), REGISTRY["print"]
    assert f'"{__file__}", line {printing.__code__.co_firstlineno + 2}, in printing' in text
    assert 'print("here")  # the line to be named' in text
    assert row.explain in text and row.hint in text


def test_fullgraph_names_a_line_where_a_result_cannot_be_built():
    def made(x):
        class Local:
            pass

        return Local, x * 2

    with pytest.raises(site.Unsupported) as caught:
        lehr_compile(made, fullgraph=True, backend="reference")(X)
    assert f"line {made.__code__.co_firstlineno + 1}" in str(caught.value)
    assert "fresh-class" in str(caught.value)


def test_fullgraph_is_fine_without_breaks():
    c = lehr_compile(lambda x: x * 2 + 1, fullgraph=True, backend="reference")
    assert c(X).tolist() == [3.0, 5.0]


def test_error_on_graph_break():
    c = compiled(printing)
    with torch.compiler.error_on_graph_break(True), pytest.raises(site.Unsupported, match="here"):
        c(X)
    assert quiet(c, X)[0].tolist() == [3.0, 5.0]
    with torch.compiler.error_on_graph_break(True), pytest.raises(site.Unsupported):
        c(X)


def test_error_on_graph_break_inside():
    def f(x):
        print("allowed")
        with torch.compiler.error_on_graph_break(True):
            y = x * 2
            with torch.compiler.error_on_graph_break(False):
                print("allowed again")
            print("forbidden")
        return y

    with pytest.raises(site.Unsupported, match='print\\("forbidden"\\)'):
        quiet(compiled(f), X)
    decorated = torch.compiler.error_on_graph_break(True)(printing)
    with pytest.raises(site.Unsupported, match="the line to be named"):
        quiet(compiled(lambda x: decorated(x)), X)


# -- directives


class Routed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inn, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.calls = []

    @torch.compiler.disable(reason="bookkeeping")
    def route(self, x):
        self.calls.append(float(x.mean()))
        return x * (2 if x.sum() > 0 else -1)

    def forward(self, x):
        return self.out(self.route(torch.relu(self.inn(x))))


def test_disabled_parts_run_eagerly_each_time():
    torch.manual_seed(0)
    m, x = Routed(), torch.randn(4, 8)
    want = m(x)
    m.calls.clear()
    c = compiled(m)
    for _ in range(3):
        assert torch.allclose(c(x), want, atol=1e-5)
    assert len(m.calls) == 3
    assert counted("graphs", "fallbacks") == (2, 0) and stats()["breaks"] >= 1


def test_fullgraph_names_what_was_disabled():
    with pytest.raises(site.Unsupported) as caught:
        lehr_compile(Routed(), fullgraph=True, backend="reference")(torch.ones(4, 8))
    text = str(caught.value)
    assert "Routed.route is marked with lehr.compiler.disable (bookkeeping)" in text
    assert "self.out(self.route(" in text


def test_disable_keeps_compiled_functions_inside_eager():
    inner = lehr_compile(lambda x: x * 2 + 1, backend="reference")
    outer = torch.compiler.disable(lambda x: inner(x))
    shallow = torch.compiler.disable(lambda x: inner(x), recursive=False)
    COUNTERS.reset()
    assert outer(X).tolist() == [3.0, 5.0] and stats()["graphs"] == 0
    assert shallow(X).tolist() == [3.0, 5.0] and stats()["graphs"] == 1
    assert outer(X).tolist() == [3.0, 5.0]


def test_disable_takes_modules_and_methods_and_refuses_classes():
    layer = torch.nn.Linear(2, 2)
    assert torch.compiler.disable(layer) is layer
    c = compiled(lambda x: layer(x) * 2)
    assert torch.equal(c(X), layer(X) * 2) and stats()["breaks"] >= 1
    with pytest.raises(TypeError, match="not type"):
        torch.compiler.disable(Routed)


def test_a_compiled_function_inside_another_is_captured_with_it():
    inner = lehr_compile(lambda x: x * 2, backend="reference")
    c = compiled(lambda x: inner(x) + 1)
    assert c(X).tolist() == [3.0, 5.0]
    assert counted("graphs", "breaks", "ops_captured") == (1, 0, 2)

    def recursive(x, n):
        return x if n == 0 else c(x * 2, n - 1)

    c = compiled(recursive)
    assert c(X, 3).tolist() == [8.0, 16.0] and counted("graphs", "breaks") == (1, 0)


def test_is_compiling_says_what_it_says_in_the_graph():
    def f(x):
        a = torch.compiler.is_compiling()
        torch.compiler.graph_break()
        return a, torch.compiler.is_compiling(), x * 2

    assert compiled(f)(X)[:2] == (True, True) and f(X)[:2] == (False, False)


# -- counters


def test_counters_tell_what_ran_where():
    c = compiled(printing)
    for _ in range(3):
        quiet(c, X)
    assert counted("captures", "graphs", "breaks", "fallbacks") == (2, 2, 1, 0)
    assert counted("ops_captured", "recompiles") == (2, 0)


def test_a_call_that_no_part_of_can_be_captured_counts_as_a_fallback():
    async def coroutine():
        return 1

    def f():
        return coroutine()

    c = compiled(coroutine)
    for _ in range(2):
        c().close()
    assert counted("graphs", "fallbacks", "captures") == (0, 2, 1)
    c = compiled(f)
    c().close()
    assert counted("graphs", "breaks", "fallbacks") == (0, 1, 0)


def test_parts_without_tensors_have_no_graphs():
    def f(n):
        a = n + 1
        print(a)
        return a * 2

    c = compiled(f)
    assert quiet(c, 3) == (8, "4\n")
    assert counted("graphs", "breaks", "ops_captured") == (0, 1, 0)


def test_strict_does_not_forbid_breaks(monkeypatch):
    assert quiet(compiled(printing, strict=True), X)[1] == "here\n"


# -- values that change


def test_numbers_from_data_are_inputs_at_once():
    c = compiled(lambda x: x * x.sum().item() + 1)
    for i in range(20):
        x = torch.tensor([1.0, float(i)])
        assert c(x).tolist() == (x * x.sum().item() + 1).tolist()
    assert counted("graphs", "recompiles") == (2, 0)


def test_comparisons_of_numbers_are_guarded_by_their_outcome():
    def f(x):
        n = x.sum().item()
        return x * 2 if n * 2 + 1 > 10 else x * 3

    c = compiled(f)
    for i in range(20):
        x = torch.tensor([0.0, float(i)])
        assert c(x).tolist() == f(x).tolist()
    assert counted("graphs", "captures") == (3, 3)


def test_a_changing_argument_becomes_an_input():
    def f(x, step, lr):
        return x * lr + step if step % 10 else x * 2

    c = compiled(f)
    for step in range(1, 40):
        assert torch.allclose(c(X, step, 0.1 / step), f(X, step, 0.1 / step))
    assert stats()["captures"] <= 4


def test_division_by_a_changing_number_is_python_s():
    def f(x, n):
        return x * (6 / n)

    c = compiled(f)
    for n in (1, 2, 3):
        assert c(X, n).tolist() == f(X, n).tolist()
    with pytest.raises(ZeroDivisionError):
        c(X, 0)


def test_large_integers_stay_exact():
    def f(x, n):
        big = n * n * n * n
        return x * 2, big, n * 3

    c = compiled(f)
    for n in (7, 11, 1 << 20, (1 << 31) + 1, 1 << 70, -(1 << 40)):
        got, want = c(X, n), f(X, n)
        assert got[1:] == want[1:]


def test_operators_that_graphs_do_not_know():
    def f(x, n):
        return x * 2, n << 2, n & 6, n ^ 1, -n, +n, ~n, divmod(n, 4), abs(n), round(n, -1), pow(n,
                                                                                                2)

    c = compiled(f)
    for n in range(1, 6):
        assert repr(c(X, n)) == repr(f(X, n))


def test_text_that_changes_at_every_call():
    def f(x, name):
        y = x * 2
        label = f"<{name}>"
        return y + 1, label

    c = compiled(f, recompile_limit=8)
    for i in range(30):
        got = c(X, f"run {i}")
        assert got[0].tolist() == [3.0, 5.0] and got[1] == f"<run {i}>"
    assert stats()["captures"] < 16 and not c.eager


def test_printed_losses_do_not_recompile_for_ever():
    def step(x, i):
        loss = (x * i).sum()
        print(f"step {i}: loss {loss.item():.4f}")
        return loss * 2

    c = compiled(step)
    for i in range(30):
        found, text = quiet(c, X, i)
        assert text == f"step {i}: loss {3.0 * i:.4f}\n" and found.item() == 6.0 * i
    assert stats()["captures"] < 25 and stats()["fallbacks"] == 0


def test_list_lengths_do_not_matter_to_append():
    losses = []

    def f(x):
        loss = x.sum()
        losses.append(loss.item())
        return loss * 2

    c = compiled(f)
    for _ in range(20):
        c(X)
    assert losses == [3.0] * 20 and stats()["recompiles"] == 0


def test_appended_and_then_read():
    def f(xs, x):
        xs.append(x * 2)
        xs.append("end")
        return len(xs), xs[-2] + xs[0]

    c = compiled(f)
    for n in (1, 2, 1):
        xs = [X] * n
        size, last = c(xs, X)
        assert size == n + 2 and len(xs) == n + 2 and xs[-1] == "end"
        assert last.tolist() == [3.0, 6.0]


# -- loops and depth


def test_a_long_loop_needs_no_more_stack():
    def f(x):
        for i in range(3000):
            x = x + 1
            if i % 1000 == 999:
                print(len(traceback.format_stack()))
        return x

    depth = int(quiet(compiled(f), X)[1].split()[0])
    found, text = quiet(compiled(f), X)
    depths = [int(d) for d in text.split()]
    assert found.tolist() == [3001.0, 3002.0]
    assert len(depths) == 3 and max(depths) == min(depths) == depth

    def g(x):
        for _ in range(sys.getrecursionlimit() + 50):
            print(".", end="")
            x = x + 1
        return x

    n = sys.getrecursionlimit() + 50
    found, text = quiet(compiled(g), X)
    assert text == "." * n and found.tolist() == [1.0 + n, 2.0 + n]
    assert stats()["graphs"] <= 3


def test_recursion_that_breaks():
    def f(x, n):
        if n == 0:
            print("bottom")
            return x
        return f(x + 1, n - 1)

    c = compiled(f)
    assert quiet(c, X, 30)[0].tolist() == [31.0, 32.0]
    assert quiet(c, X, 60)[0].tolist() == [61.0, 62.0]


def test_very_deep_recursion_runs_natively():
    def f(x, n):
        return x if n == 0 else f(x, n - 1)

    c = compiled(lambda x: f(x * 2, 600) + 1)
    assert c(X).tolist() == [3.0, 5.0]
    assert stats()["breaks"] == 1


# -- errors of the program


def user_lines(error):
    found = traceback.extract_tb(error.__traceback__)
    return [(f.name, f.lineno) for f in found if f.filename == __file__]


def host_lines(error):
    return [f for f in traceback.extract_tb(error.__traceback__) if "/lehr/compiler/" in f.filename]


def failing(x):
    x * 2
    print("before")
    raise KeyError("user")


def outer_failing(x):
    return failing(x + 1)


def opened(x):
    return open("/no/such/file") or x * 2


@pytest.mark.parametrize("function", [failing, outer_failing, opened])
def test_tracebacks_show_the_users_lines_only(function):
    with pytest.raises(Exception) as want:
        quiet(function, X)
    c = compiled(function)
    for _ in range(2):
        with pytest.raises(type(want.value)) as got:
            quiet(c, X)
        assert user_lines(got.value)[2:] == user_lines(want.value)[2:]
        assert user_lines(got.value)[-1] == user_lines(want.value)[-1]
        assert not host_lines(got.value)
    assert str(got.value) == str(want.value)


def test_it_works_after_it_raised():
    def f(x, fail):
        y = x * 2
        print("mid")
        if fail:
            raise ValueError("asked for")
        return y + 1

    c = compiled(f)
    for fail in (True, False, True, False):
        if fail:
            with pytest.raises(ValueError, match="asked for"):
                quiet(c, X, fail)
        else:
            assert quiet(c, X, fail)[0].tolist() == [3.0, 5.0]
    assert torch.is_grad_enabled()


def test_modes_are_restored_when_a_break_raises():
    def f(x):
        with torch.no_grad():
            y = x * 2
            open("/no/such/file")
        return y

    c = compiled(f)
    for _ in range(3):
        with pytest.raises(OSError):
            c(X)
        assert torch.is_grad_enabled()


def test_compiler_errors_keep_their_own_frames():
    def broken(request, options):
        site.make_resume(None)

    from lehr.compiler import backend

    backend.BACKENDS["broken"] = broken
    try:
        c = lehr_compile(printing, backend="broken", options={"strict": True})
        with pytest.raises(AttributeError) as caught:
            quiet(c, X)
        assert host_lines(caught.value)
        c = lehr_compile(printing, backend="broken", options={"strict": False})
        COUNTERS.reset()
        with pytest.warns(UserWarning, match="the compiler failed on printing"):
            assert quiet(c, X)[0].tolist() == [3.0, 5.0]
        assert quiet(c, X)[1] == "here\n" and stats()["fallbacks"] == 2
    finally:
        del backend.BACKENDS["broken"]


def test_nothing_of_the_program_runs_while_it_is_captured():
    log = []

    def gen(x):
        try:
            yield x * 2
            yield x * 3
        finally:
            log.append("closed")

    def f(x):
        g = gen(x)
        a = next(g)
        log.append("first")
        print("break")
        log.append("second")
        b = next(g)
        g.close()
        return a + b

    c = compiled(f)
    for _ in range(2):
        log.clear()
        found, text = quiet(c, X)
        gc.collect()
        assert found.tolist() == [5.0, 10.0] and text == "break\n"
        assert log == ["first", "second", "closed"]


# -- memory and threads


def test_values_that_are_not_needed_are_not_kept():
    seen = []

    def look():
        gc.collect()
        seen.append(seen[0]() is None if seen else None)

    def f(x):
        big = x * 2
        y = big.sum()
        look_at(big)
        return y + 1

    def look_at(t):
        print("seen")
        seen[:] = [weakref.ref(t)]

    def g(x):
        y = f(x)
        look()
        return y

    quiet(compiled(g), X)
    assert seen[1] is True


def test_exceptions_in_bridges_leave_no_cycles():
    class Token:
        pass

    refs = []

    def fail():
        token = Token()
        refs.append(weakref.ref(token))
        print("failing")
        raise ValueError(token)

    def f(x):
        y = x * 2
        try:
            fail()
        except ValueError:
            y = y + 1
        return y

    c = compiled(f)
    for _ in range(3):
        quiet(c, X)
    gc.collect()
    assert len(refs) == 3 and all(r() is None for r in refs)


def test_many_threads_share_the_sites():
    lock, order = threading.Lock(), []

    def note(i):
        with lock:
            order.append(i)

    def f(x, i):
        y = x * 2
        note(i)
        z = y + i
        if z.sum() > 20:
            return z * 2
        return z

    c, errors = compiled(f), []

    def work(start):
        try:
            for i in range(start, start + 25):
                assert c(X, i).tolist() == f(X, i).tolist()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(0, 100, 25)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]
    assert len(order) == 200


def test_reset_forgets_everything():
    c = compiled(printing)
    quiet(c, X)
    torch.compiler.reset()
    COUNTERS.reset()
    assert quiet(c, X)[0].tolist() == [3.0, 5.0] and counted("captures", "graphs") == (2, 2)


def test_closures_share_the_code_behind_a_break():
    def make(k):
        def f(x):
            y = x * 2
            print(k)
            return y + k

        return f

    def call(fs, x):
        return [f(x) for f in fs]

    c = compiled(call)
    found, text = quiet(c, [make(k) for k in (1.0, 2.0, 3.0)], X)
    assert [t.tolist() for t in found] == [[3.0, 5.0], [4.0, 6.0], [5.0, 7.0]]
    assert text == "1.0\n2.0\n3.0\n"

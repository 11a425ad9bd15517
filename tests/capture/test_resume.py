"""Resume functions and bridges, against CPython: at the executed instructions of the samples."""

import ast
import contextlib
import difflib
import dis
import textwrap

import pytest
from proof import samples
from proof.probe import LOG, Original, Probe, probe_sample, refused

from lehr.compiler.capture import bytecode, resume
from lehr.compiler.capture.bridge import make_bridge
from lehr.compiler.capture.resume import (
    HANDLED,
    NULL,
    VALUE,
    CannotResume,
    Point,
    make_resume,
    write_exception_table,
)

IDS = [s[0] for s in samples.SAMPLES]
LONG = {"extended_args": 47}  # a long function: takes one place in this many
REASONS = ("KW_NAMES already ran", "does not fit into a bridge", "a generator's frame", "a part of")


def wrong_results(call, code, every, ways):
    native, results = probe_sample(call, code, every, ways)
    assert len(results) > 1
    for offset, op, way, text in results:
        assert not refused(text) or any(r in text for r in REASONS), (offset, op, way, text)
    return [r for r in results if r[3] != native and not refused(r[3])], results, native


@pytest.mark.parametrize("name, call, code", samples.SAMPLES, ids=IDS)
def test_going_on_from_inside(name, call, code):
    wrong, _, native = wrong_results(call, code, LONG.get(name, 2), ("resume",))
    assert not wrong, (wrong[:2], native)


@pytest.mark.parametrize("name, call, code", samples.SAMPLES, ids=IDS)
def test_bridges(name, call, code):
    wrong, _, native = wrong_results(call, code, LONG.get(name, 3), ("bridge",))
    assert not wrong, (wrong[:2], native)


@pytest.mark.slow
@pytest.mark.parametrize("name, call, code", samples.SAMPLES, ids=IDS)
def test_every_instruction(name, call, code):
    ways = ("resume", "bridge")
    wrong, results, native = wrong_results(call, code, LONG.get(name, 5) // 5, ways)
    assert not wrong, (wrong[:2], native)
    names = [r for r in results if refused(r[3]) and r[2] == "resume"]
    assert len(names) <= 8 and all("KW_NAMES" in r[3] for r in names)


def library(every):
    """Places in library code: (places that went right, descriptions of the others)."""
    files = {m.__file__ for m in (ast, textwrap, difflib)}
    with open(contextlib.__file__) as file:
        source = file.read()[:6000]

    def work():
        textwrap.wrap("the quick brown fox jumps over the lazy dog " * 2, 20)
        list(difflib.unified_diff(list("abcdefgh"), list("abxdefh")))
        ast.unparse(ast.parse(source[: source.rindex("\nclass ")]))

    def wants(code):
        return code.co_filename in files and not code.co_flags & bytecode.GENERATOR

    probe = Probe(wants, every, ("resume", "bridge"))
    LOG.clear()
    probe.run(work)
    good, bad = 0, []
    for code, value, watch in probe.ended:
        want = repr((("returned", value), []))
        for offset, name, way, text in watch.results:
            if way == "raise" or " at 0x" in want or refused(text):
                continue
            if text == want:
                good += 1
            else:
                bad.append((code.co_qualname, offset, name, way, text[:200], want[:200]))
    return good, bad


def test_library_code():
    good, bad = library(499)
    assert not bad, bad[:3]
    assert good > 80


@pytest.mark.slow
def test_more_library_code():
    good, bad = library(61)
    assert not bad, bad[:3]
    assert good > 800


# What a builder could get wrong -> a sample that must notice.
PLANTS = {
    "handled": ("pending_exception", "PUSH_EXC_INFO"),
    "null": ("null_on_stack", "PUSH_NULL"),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_the_proof_notices(plant, monkeypatch):
    name, op = PLANTS[plant]
    whole = resume.stack_fixes

    def without(spec, consts):
        return [("NOP", 0) if step[0] == op else step for step in whole(spec, consts)]

    monkeypatch.setattr(resume, "stack_fixes", without)
    _, call, code = samples.SAMPLES[IDS.index(name)]
    native, results = probe_sample(call, code, 4, ("resume",))
    assert any(r[3] != native for r in results)


def test_the_proof_notices_an_exception_table_that_is_not_shifted(monkeypatch):
    monkeypatch.setattr(resume, "write_exception_table", lambda rows: b"")
    _, call, code = samples.SAMPLES[IDS.index("try_finally")]
    native, results = probe_sample(call, code, 4, ("resume",))
    assert any(r[3] != native for r in results)


def test_a_half_consumed_generator():
    """Goes on at its YIELD_VALUE and takes one value: then `send` and `close` act as ever."""

    def gen(a):
        try:
            while True:
                a += yield a
        finally:
            LOG.append(("closed", a))

    LOG.clear()
    code = gen.__code__
    at = next(i.offset for i in dis.get_instructions(gen) if i.opname == "YIELD_VALUE")
    made = make_resume(Point(code, at, (VALUE, VALUE), (0,)))
    made = made.call(Original(globals(), None), [5, 5, "dummy"])
    assert next(made) == "dummy" and LOG == []
    assert (made.send(10), made.send(1)) == (15, 16)
    made.close()
    assert LOG == [("closed", 16)]


def test_what_is_refused():
    async def coroutine():
        return 1

    def keyword(a):
        return dict(a=a, b=2)  # noqa: C408

    def generator():
        yield len("x")

    code = keyword.__code__
    starts = list(bytecode.program(code).starts)
    with pytest.raises(CannotResume, match="coroutines"):
        make_resume(Point(coroutine.__code__, 4, (), ()))
    with pytest.raises(CannotResume, match="before the function's RESUME"):
        make_resume(Point(code, 0, (), ()))
    with pytest.raises(CannotResume, match="not the start"):
        make_resume(Point(code, starts[-1] + 1, (), ()))
    program = bytecode.program(code)
    returns = next(i for i in program.instructions if i.op == "RETURN")
    with pytest.raises(CannotResume, match="does not fit"):
        make_bridge(program, returns.at, Point(code, returns.offset, (VALUE,), (0,)))
    program = bytecode.program(generator.__code__)
    call = next(i for i in program.instructions if i.op == "CALL")
    with pytest.raises(CannotResume, match="generator"):
        make_bridge(program, call.at, Point(program.code, call.offset, (), ()))


def test_exception_tables_round_trip():
    codes = [s[2] for s in samples.SAMPLES if s[2].co_exceptiontable]
    assert len(codes) > 8
    for code in codes:
        assert write_exception_table(bytecode.exception_table(code)) == code.co_exceptiontable


def test_a_bridge_stands_at_its_own_line_and_columns():
    def f(a, b):
        return [a,
                b.missing(a)]  # fmt: skip

    program = bytecode.program(f.__code__)
    load = next(i for i in program.instructions if i.op == "LOAD_METHOD")
    point = Point(f.__code__, load.offset, (VALUE, VALUE), (0, 1))
    cross = make_bridge(program, load.at, point).function(f)
    with pytest.raises(AttributeError) as caught:
        cross([1, 2, 1, 2])
    trace = caught.value.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    assert trace.tb_frame.f_code.co_name == "f"
    assert trace.tb_lineno == f.__code__.co_firstlineno + 2
    positions = list(trace.tb_frame.f_code.co_positions())
    assert positions[trace.tb_lasti // 2] == list(f.__code__.co_positions())[load.offset // 2]


def test_a_bridge_shows_the_locals_of_its_function():
    def f(a, b):
        c = a + 1
        late = lambda: c
        return locals(), late

    program = bytecode.program(f.__code__)
    call = next(i for i in program.instructions if i.op == "CALL")
    names = program.slots
    values = {"a": 1, "b": 2, "c": make_cell(3), "late": 4}
    spec = (NULL, VALUE) if bytecode.NULL_FIRST else (VALUE, NULL)
    point = Point(f.__code__, call.offset, spec, tuple(range(program.own)))
    cross = make_bridge(program, call.at, point).function(f)
    found, number = cross([*[values[n] for n in names], locals])
    assert number == 0 and found == {"a": 1, "b": 2, "c": 3, "late": 4}


def make_cell(content):
    return (lambda: content).__closure__[0]


def test_a_bridge_ends_the_handling_it_began():
    """Whether the instruction returns or raises: nothing is being handled behind it."""
    import sys

    def f(log):
        try:
            raise KeyError("k")
        except KeyError:
            log(sys.exc_info()[1])

    program = bytecode.program(f.__code__)
    call = [i for i in program.instructions if i.op == "CALL" and i.arg[0] == 1][-1]
    log = []

    def broken(error):
        log.append(error)
        raise ValueError("from the call")

    error = KeyError("k")
    callee = (NULL, VALUE) if bytecode.NULL_FIRST else (VALUE, NULL)
    point = Point(f.__code__, call.offset, (HANDLED, *callee, VALUE), (0,))
    for function in (log.append, broken):
        cross = make_bridge(program, call.at, point).function(f)
        with contextlib.suppress(ValueError):
            cross([log.append, error, function, sys])
        assert sys.exc_info()[1] is None
    assert log == [sys, sys]


@pytest.mark.parametrize("start, end", [(0, 1), (1, 63), (63, 64), (64, 4096), (4096, 200000)])
def test_numbers_of_both_tables(start, end):
    row = (2 * start, 2 * end, 2 * (start + end), start % 7, True)
    data = write_exception_table([row])

    class Code:
        co_exceptiontable = data

    assert bytecode.exception_table(Code) == [row]

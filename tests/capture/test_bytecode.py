"""The dialect of the running Python: complete, and true to `dis`."""

import dis
import marshal
import pathlib
import re
import sysconfig
import types

import pytest

from lehr.compiler.capture import bytecode, dialect

CAPTURE = pathlib.Path(bytecode.__file__).parent
ENDS = frozenset(
    (
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    )
)
SPECIAL = re.compile("INSTRUMENTED_.*|<.*>")


def test_every_opcode_is_mapped_or_impossible():
    for name in dis.opmap:
        if SPECIAL.fullmatch(name):
            continue
        assert (name in bytecode.TABLE) != (name in bytecode.IMPOSSIBLE), name
    assert not set(bytecode.TABLE) - set(dis.opmap) - {"LOAD_CLASSDEREF"} - set(dialect.SHARED)


def test_only_one_file_reads_the_version():
    root = CAPTURE.parents[1]
    users = {path.name for path in CAPTURE.rglob("*.py") if "version_info" in path.read_text()}
    assert users == {"bytecode.py"}
    assert root.name == "lehr"


def test_canonical_operations_are_few():
    assert len(dialect.EFFECTS) <= 105


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def library():
    """Code objects of the standard library, every module once."""
    root = pathlib.Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py")):
        if "site-packages" in path.parts or "test" in path.parts or "lib2to3" in path.parts:
            continue
        try:
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        yield from codes(code)


def native_depths(code):
    """Depth before each original instruction, from `dis.stack_effect` alone."""
    units = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    table = bytecode.exception_table(code)
    index = {i.offset: n for n, i in enumerate(units)}
    prefixed, pending = {}, None
    for ins in dis.get_instructions(code):
        pending = ins.offset if pending is None else pending
        if ins.opname != "EXTENDED_ARG":
            prefixed[pending], pending = ins.offset, None
    back = {own: first for first, own in prefixed.items()}
    known, work = {}, [(0, 0)]
    while work:
        at, depth = work.pop()
        ins = units[at]
        first = back[ins.offset]
        if first in known:
            continue
        known[first] = depth
        for begin, end, target, below, lasti in table:
            if begin <= ins.offset < end:
                work.append((index[prefixed[target]], below + lasti + 1))
                break
        arg = ins.arg if ins.opcode >= dis.HAVE_ARGUMENT else None
        fall = dis.stack_effect(ins.opcode, arg, jump=False)
        if ins.opname == "RETURN_GENERATOR":
            fall = 1  # 3.11 reports 0 and starts generators one deeper
        if ins.opname == "PRECALL":
            fall = 0  # 3.11 books the whole call here; at run time CALL does it
        if ins.opname == "CALL" and "PRECALL" in dis.opmap:
            fall = -ins.arg - 1
        if ins.opcode in dis.hasjrel:
            target = ins.argval
            change = dis.stack_effect(ins.opcode, arg, jump=True)
            work.append((index[prefixed[target]], depth + change))
        if ins.opname not in ENDS:
            work.append((at + 1, depth + fall))
    return known


def test_the_standard_library_translates_with_the_native_stack_depths():
    seen = skipped = 0
    for code in library():
        seen += 1
        found = bytecode.translate(code)
        mine, native = bytecode.depths(found), native_depths(code)
        for offset, depth in native.items():
            at = found.starts[offset]
            if at not in mine:  # END_FOR and what follows it: the canonical loop jumps past them
                skipped += 1
                assert found.instructions[at].op in ("END_FOR", "POP"), (code, offset)
                continue
            assert mine[at] == depth, (code, offset, found.instructions[at])
    assert seen > 5000


@pytest.mark.parametrize(
    "source",
    [
        "def f(a, *b, c=1, **d):\n  x = [i for i in a if i]\n  return f(x, *b, k=c, **d)",
        "def f(a):\n  with a as b:\n    try:\n      return b\n    finally:\n      del b",
    ],
)
def test_lines_and_offsets_match_dis(source):
    for code in codes(compile(source, "<s>", "exec")):
        found = bytecode.program(code)
        native = {i.offset for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"}
        assert {i.offset for i in found.instructions} == native
        lines = {begin: line for begin, _, line in code.co_lines()}
        for ins in found.instructions:
            if ins.offset in lines:
                assert ins.line == lines[ins.offset]


def test_exception_table_matches_dis():
    def sample(a):
        try:
            with a as b:
                return b
        except* ValueError:
            raise
        finally:
            del a

    mine = bytecode.exception_table(sample.__code__)
    parsed = dis._parse_exception_table(sample.__code__)
    theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in parsed]
    assert mine == theirs


def test_equal_code_objects_keep_their_own_lines():
    make = "def f():\n return 1\n"
    one = compile(make, "<s>", "exec").co_consts[0]
    two = marshal.loads(marshal.dumps(one))
    assert bytecode.program(one).code is one
    assert bytecode.program(two).code is two


def test_extended_arguments_and_jumps():
    body = "\n".join(f"    x{i} = {i}.5 if a else {i}" for i in range(300))
    code = next(iter(compile(f"def f(a):\n{body}\n    return x299", "<s>", "exec").co_consts))
    found = bytecode.program(code)
    stores = [i.arg for i in found.instructions if i.op == "STORE"]
    assert max(stores) == 300
    assert [i.arg for i in found.instructions if i.op == "JUMP_FALSE"] == sorted(
        i.arg for i in found.instructions if i.op == "JUMP_FALSE"
    )

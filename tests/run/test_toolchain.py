"""Finding and launching the C compiler: order, identity without launches, every way to fail."""

import ctypes
import os
import pathlib
import shutil
import signal
import stat
import threading
import time

import numpy as np
import pytest

from lehr.base.options import Options
from lehr.compiler.run import cache, library, target, toolchain
from lehr.compiler.run.toolchain import CompileError, NoCompiler

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler on this machine")
EXPORT = '__attribute__((visibility("default"))) '
ANSWER = EXPORT + "long answer(void) { return 42; }"


@pytest.fixture
def script(tmp_path):
    """Makes an executable shell script that stands for a compiler, in a folder of its own."""

    def make(body, name="cc"):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text("#!/bin/sh\n" + body)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    return make


def answer(code):
    return library.load(code).function("answer", ctypes.c_long)()


# Finding.


def test_order_of_search(use, script, monkeypatch):
    for name in ("cc", "gcc", "clang", "mine"):
        script("exit 0", name)
    folder = os.path.dirname(script("exit 0", "last"))
    monkeypatch.setenv("PATH", folder)
    monkeypatch.setenv("CC", "mine -m64")
    found = toolchain.find(Options(cc="last"))
    assert found.argv == (f"{folder}/last",)
    assert toolchain.find(Options()).argv == (f"{folder}/mine", "-m64")
    monkeypatch.setenv("CC", "not-there")
    assert toolchain.find(Options()).argv == (f"{folder}/cc",)
    monkeypatch.delenv("CC")
    for name, following in (("cc", "gcc"), ("gcc", "clang")):
        os.unlink(f"{folder}/{name}")
        toolchain._find.cache_clear()
        assert toolchain.find(Options()).argv == (f"{folder}/{following}",)
    with pytest.raises(NoCompiler, match="LEHR_CC=not-there"):
        toolchain.find(Options(cc="not-there"))


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("x86_64-linux-gnu-gcc-12", "gcc"),
        ("clang-19", "clang"),
        ("zig", "zig"),
        ("armcc", "cc"),
    ],
)
def test_family_comes_from_the_name_behind_links(use, script, monkeypatch, file, family):
    real = script("exit 0", file)
    link = os.path.join(os.path.dirname(real), "compiler")
    os.symlink(real, link)
    assert toolchain.find(Options(cc=link)).family == family


def test_identity_launches_nothing_and_follows_the_file(use, script, tmp_path):
    log = tmp_path / "launched"
    file = script(f"echo x >> {log}", "gcc")
    first = toolchain.parts(Options(cc=file))
    assert not log.exists()
    assert toolchain.parts(Options(cc=file)) == first
    pathlib.Path(file).write_text("#!/bin/sh\n# another version\n")
    toolchain._find.cache_clear()
    assert toolchain.parts(Options(cc=file))["compiler"] != first["compiler"]
    assert str(tmp_path) not in " ".join(first.values())  # a cache travels


def test_options_that_change_code_change_the_parts(use):
    base = toolchain.parts(Options())
    assert toolchain.parts(Options(threads=3, jobs=7)) == base
    for changes in ({"simd": "portable"}, {"optimize": 3}):
        assert toolchain.parts(Options(**changes)) != base


def test_flags_keep_floating_point_as_written():
    words = [w for family in toolchain._LEVEL for w in toolchain.flags(family, Options())[0]]
    assert "-ffp-contract=off" in words
    assert not {"-ffast-math", "-Ofast", "-fassociative-math", "-ffinite-math-only"} & set(words)


# Compiling.


@needs_cc
def test_one_source_and_several(use):
    one = toolchain.compile([ANSWER], "one")
    assert one[:4] == b"\x7fELF" and answer(one) == 42
    parts = [
        "long part(void); " + EXPORT + "long answer(void) { return part(); }",
        "long part(void) { return 42; }",
        "long unused(void) { return 0; }",
    ]
    before = toolchain.launches
    assert answer(toolchain.compile(parts, "three")) == 42
    assert toolchain.launches - before == len(parts) + 1


@needs_cc
def test_the_same_source_gives_the_same_bytes(use):
    assert toolchain.compile([ANSWER], "same") == toolchain.compile([ANSWER], "same")


@needs_cc
def test_nothing_is_left_behind(use, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    toolchain.compile([ANSWER] * 1, "x")
    assert not list((tmp_path / "tmp").iterdir())


@needs_cc
@pytest.mark.parametrize("simd", ["native", "portable", "avx2", "avx512"])
def test_every_instruction_set_compiles(use, simd):
    if simd.startswith("avx") and target.host().arch != "x86_64":
        with pytest.raises(CompileError, match="LEHR_SIMD"):
            toolchain.flags("gcc", Options(simd=simd))
        return
    _, need = toolchain.flags("gcc", Options(simd=simd))
    code = toolchain.compile([ANSWER], "x", Options(simd=simd))
    if target.host().runs(need):
        assert answer(code) == 42


FLOATS = (
    EXPORT
    + """void f(void **p) {
  const float *restrict a = p[0], *restrict b = p[1], *restrict c = p[2];
  float *restrict fused = p[3], *restrict order = p[4]; int *restrict nan = p[5];
  for (int i = 0; i < 4096; i++) {
    fused[i] = a[i] * b[i] + c[i];
    order[i] = (a[i] + b[i]) - a[i];
    nan[i] = a[i] != a[i];
  }
}"""
)


@needs_cc
@pytest.mark.parametrize("optimize", [0, 2, 3])
def test_vectorised_code_rounds_as_written_and_knows_nan(use, optimize):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 4096)).astype(np.float32)
    a[::7] = np.nan
    b[::5] = np.float32(1e30)
    fused, order = np.empty_like(a), np.empty_like(a)
    nan = np.empty(4096, np.int32)
    arrays = [a, b, c, fused, order, nan]
    table = (ctypes.c_void_p * 6)(*(x.ctypes.data for x in arrays))
    library.build([FLOATS], "floats", Options(optimize=optimize)).entry("f")(table)
    np.testing.assert_array_equal(fused, a * b + c)
    np.testing.assert_array_equal(order, (a + b) - a)
    np.testing.assert_array_equal(nan, np.isnan(a))


# Failing.


@needs_cc
def test_a_wrong_source_names_line_command_and_place(use, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(CompileError) as error:
        toolchain.compile([ANSWER, "int f(void) {\n  return nonsense;\n}"], "bad")
    text = str(error.value)
    assert "bad_1.c:2:" in text and "nonsense" in text and error.value.command[0] in text
    kept = sorted(p.name for p in pathlib.Path(error.value.source).iterdir())
    assert kept == ["bad_0.c", "bad_1.c"] and error.value.source in text


@needs_cc
def test_a_function_that_is_not_declared_is_an_error(use):
    with pytest.raises(CompileError, match="implicit"):
        toolchain.compile(["int f(void) { return g(); }"], "x")


def test_a_killed_compiler_says_so(use, script):
    file = script("kill -9 $$", "gcc")
    with pytest.raises(CompileError, match=r"killed by signal 9.*LEHR_JOBS=1"):
        toolchain.compile([ANSWER], "x", Options(cc=file))


def test_a_compiler_that_cannot_be_started(use, script, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    file = script("exit 0", "gcc")
    toolchain.find(Options(cc=file))
    os.unlink(file)
    with pytest.raises(CompileError, match="cannot be started: No such file"):
        toolchain.compile([ANSWER], "x", Options(cc=file))
    assert not list((tmp_path / "tmp").iterdir())


@needs_cc
def test_a_full_folder_for_temporary_files_is_not_the_last(use, script, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "full"))
    body = 'case "$TMPDIR" in */full/*) echo "cc: No space left on device" >&2; exit 1;; esac\n'
    file = script(body + f'exec {CC} "$@"', "gcc")
    assert answer(toolchain.compile([ANSWER], "x", Options(cc=file))) == 42
    assert not list((tmp_path / "full").iterdir())


def test_no_folder_at_all(use, script, monkeypatch):
    def refuse(*args, **names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(CompileError, match="no folder to compile in"):
        toolchain.compile([ANSWER], "x", Options(cc=script("exit 0")))


def test_an_interrupt_ends_compilers_and_cleans_up(use, script, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    pids = tmp_path / "pids"
    file = script(f"echo $$ >> {pids}; exec sleep 60", "gcc")

    def interrupt():
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.01)
        time.sleep(0.5)     # the caller has to be past starting them
        os.kill(os.getpid(), signal.SIGINT)

    # Where a shell started the tests in the background, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            toolchain.compile([ANSWER] * 3, "x", Options(cc=file))
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert not list((tmp_path / "tmp").iterdir())
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


# With the cache.


BUILD = f"""
import ctypes, sys
from lehr.compiler.run import library, toolchain
from lehr.compiler.run.toolchain import NoCompiler
try:
    built = library.build([{ANSWER!r}], "x")
    sys.stdout.write(f"{{built.function('answer', ctypes.c_long)()}} {{toolchain.launches}}")
except NoCompiler as error:
    sys.stdout.write(str(error))
"""


def run(child, **env):
    out, err = child(BUILD, **env).communicate(timeout=120)
    assert err == ""
    return out


@needs_cc
def test_a_warm_start_launches_nothing(use, child, script, tmp_path):
    log = tmp_path / "launched"
    folder = os.path.dirname(script(f'echo x >> {log}; exec {CC} "$@"', "gcc"))
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "CC": "gcc"}
    env["LEHR_CACHE_DIR"] = str(tmp_path / "c")
    assert run(child, **env) == "42 1"
    assert run(child, **env) == "42 0"
    assert log.read_text().count("x") == 1


@needs_cc
def test_without_a_compiler_cached_code_runs_and_new_code_says_what_to_do(child, tmp_path):
    env = {"LEHR_CACHE_DIR": str(tmp_path / "c"), "CC": ""}
    bare = {**env, "PATH": "/nowhere"}
    if toolchain._zig() is None:
        assert run(child, **bare).startswith("no C compiler found (looked for LEHR_CC, CC, cc")
    assert run(child, **env) == "42 1"
    assert run(child, **bare) == "42 0"


@needs_cc
def test_code_for_another_machine_is_not_taken_without_a_compiler(use, tmp_path, monkeypatch):
    strange = {"target": "x86_64 avx9000", "flags": "-O2", "compiler": "gcc"}
    key = cache.key("so", lehr="any", source=ANSWER, **strange)
    code = toolchain.compile([ANSWER], "x")
    cache.store().put(key, code, target=strange["target"])
    monkeypatch.setattr(toolchain, "find", lambda options=None: None)
    with pytest.raises(NoCompiler):
        library.build([ANSWER], "x")
    mine = {**strange, "target": target.host().arch + " portable"}
    cache.store().put(
        cache.key("so", lehr="any", source=ANSWER, **mine), code, target=mine["target"]
    )
    assert library.build([ANSWER], "x").function("answer", ctypes.c_long)() == 42


@needs_cc
def test_the_ziglang_package_is_the_last_resort(child, tmp_path):
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "site" / "ziglang-0.99.1.dist-info").mkdir()
    (package / "__main__.py").write_text(
        "import os, sys\n"
        f"assert sys.argv[1] == 'cc'\nopen({str(tmp_path / 'args')!r}, 'w').write(str(sys.argv))\n"
        "drop = ('-mcpu', '-mprefer', '-fno-sanitize')\n"
        "rest = [a for a in sys.argv[2:] if not a.startswith(drop)]\n"
        f"os.environ['PATH'] = {os.environ['PATH']!r}\nos.execv({CC!r}, [{CC!r}, *rest])\n"
    )
    root = pathlib.Path(__file__).resolve().parents[2]
    env = {"PATH": "/nowhere", "CC": "", "LEHR_CACHE_DIR": str(tmp_path / "c")}
    env["PYTHONPATH"] = os.pathsep.join((str(tmp_path / "site"), str(root)))
    assert run(child, **env) == "42 1"
    assert "-mcpu=native" in (tmp_path / "args").read_text()
    row = next(cache.Cache(str(tmp_path / "c"), 1 << 20).rows())
    assert row.meta()["parts"]["compiler"] == "ziglang 0.99.1"


# The machine.


def test_features_of_a_processor():
    text = "processor: 0\nmodel name\t: A CPU\nflags\t\t: fpu pni avx2 fma rdrand\n\nprocessor: 1\n"
    found = target.parse(text, "x86_64")
    assert found.features == {"pni", "avx2", "fma"} and found.model == "A CPU"
    assert found.vector_bits == 256 and found.text() == "x86_64 avx2 fma pni"
    assert found.runs("x86_64 avx2") and found.runs("x86_64 portable")
    assert not found.runs("x86_64 avx2 avx512f") and not found.runs("aarch64 portable")
    arm = target.parse("Features : fp asimd sve\nCPU part : 0xd40\n", "aarch64")
    assert arm.features == {"fp", "asimd", "sve"} and arm.model == "0xd40"
    unknown = target.parse("", "riscv64")
    assert unknown.text() == "riscv64 portable" and unknown.vector_bits == 0


def test_this_machine():
    host = target.host()
    assert host.runs(host.text()) and host.arch == os.uname().machine


@pytest.mark.parametrize(("quota", "count"), [(None, 8), (1.5, 2), (0.2, 1), (100.0, 8)])
def test_processors_obey_affinity_and_container_limits(monkeypatch, quota, count):
    monkeypatch.setattr(target.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(target, "_quota", lambda: quota)
    assert target.processors() == count


def test_importing_the_toolchain_launches_and_loads_nothing(child):
    program = """
import sys
from lehr.compiler.run import toolchain
toolchain.parts()
sys.stdout.write(" ".join(m for m in ("ctypes", "subprocess", "numpy") if m in sys.modules))
"""
    assert child(program).communicate(timeout=120) == ("", "")

"""The C compiler: found without being launched, launched only to compile.

Looked for, in this order: LEHR_CC, CC, cc, gcc, clang, the ziglang package. What a cache key needs
to know of it (`parts`) comes from the file's name, size and date and from the processor's features:
a warm start launches nothing, and a like machine computes the same key.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from lehr.base import log
from lehr.base.options import Options, default
from lehr.compiler.run import target
from lehr.compiler.run.cache import store

_tell = log.channel("toolchain")
launches = 0  # compilers started by this process


class CompileError(RuntimeError):
    """The compiler failed. `command`, `output`, and `source`: the folder that keeps the sources."""

    def __init__(
        self, text: str, command: Sequence[str] = (), output: str = "", source: str = ""
    ) -> None:
        super().__init__(text)
        self.command, self.output, self.source = tuple(command), output, source


class NoCompiler(CompileError):
    """This machine has no C compiler that lehr can find."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """`argv` starts it, `family` picks its flags, `stamp` tells versions apart in a cache key."""

    argv: tuple[str, ...]
    family: str
    stamp: str


# Values do not depend on what was fused or vectorised: no contraction, no reassociation; NaN,
# infinities and signed zeros keep their meaning. Only errno and trap flags are given up.
_ALWAYS = (
    *"-std=gnu11 -fPIC -fvisibility=hidden -fopenmp-simd".split(),
    "-Werror=implicit-function-declaration", "-Werror=incompatible-pointer-types",
    *"-ffp-contract=off -fno-math-errno -fno-trapping-math".split(),
)
# gcc's own -O2 hardly vectorises; with this cost model it is as fast as -O3 on fused kernels and
# compiles forty of them in two thirds of the time (0.25 s against 0.39 s).
# Loops are split by conditions that stay the same (the edge of a window): it vectorises none else.
# Its choice of induction variables takes a tenth of the time and makes no kernel faster.
# It compares pointers as they come: the step of an LSTM has more than the ten pairs that it allows.
_PAIRS = "--param=vect-max-version-for-alias-checks=64"
_LEVEL = {
    "gcc": ("-O0", "-O1", "-O2 -ftree-vectorize -fvect-cost-model=dynamic -funswitch-loops"
            f" -fno-ivopts {_PAIRS}", f"-O3 {_PAIRS}"),
    "clang": ("-O0", "-O1", "-O2", "-O3"),
    "zig": tuple(f"{o} -fno-sanitize=all" for o in ("-O0", "-O1", "-O2", "-O3")),
    "cc": ("-O0", "-O1", "-O3", "-O3"),
}
_V3 = "abm avx avx2 bmi1 bmi2 f16c fma movbe".split()
_V4 = [*_V3, *"avx512bw avx512cd avx512dq avx512f avx512vl".split()]
# simd: (flags of gcc and clang, flags of zig, features that the machine must have)
_X86: dict[str, tuple[str, str, Sequence[str]]] = {
    "native": ("-march=native", "-mcpu=native", ()),
    "portable": ("", "-mcpu=baseline", ()),
    "avx2": ("-march=x86-64-v3", "-mcpu=x86_64_v3", _V3),
    "avx512": ("-march=x86-64-v4", "-mcpu=x86_64_v4", _V4),
}
_OTHER: dict[str, tuple[str, str, Sequence[str]]] = {
    "native": ("-mcpu=native", "-mcpu=native", ()),
    "portable": ("", "-mcpu=baseline", ()),
}


def flags(family: str, options: Options) -> tuple[tuple[str, ...], str]:
    """(the compiler's flags, the text of the target that such code needs: `Target.runs`)."""
    host = target.host()
    simd = options.simd if options.simd != "native" or host.features else "portable"
    table = _X86 if host.arch == "x86_64" else _OTHER
    if simd not in table:
        raise CompileError(f"LEHR_SIMD={simd} does not exist on {host.arch}; use native")
    plain, zig, needs = table[simd]
    words = f"{_LEVEL[family][options.optimize]} {zig if family == 'zig' else plain}".split()
    wide = host.vector_bits == 512 and simd == "native" or simd == "avx512"
    if wide and family != "cc" and table is _X86:
        words.append("-mprefer-vector-width=512")  # a fifth faster on exp-heavy kernels
    need = target.Target(host.arch, frozenset(needs), "") if simd != "native" else host
    return (*words, *_ALWAYS), need.text()


def find(options: Options | None = None) -> Compiler | None:
    """The compiler, or None. NoCompiler if LEHR_CC names one that is not there."""
    options = default() if options is None else options
    return _find(options.cc, os.environ.get("CC", ""), os.environ.get("PATH", os.defpath))


@functools.lru_cache(16)
def _find(wanted: str, cc: str, path: str) -> Compiler | None:
    if wanted:
        found = _program(wanted, path)
        if found is None:
            raise NoCompiler(f"LEHR_CC={wanted}: there is no such program")
        return found
    for words in filter(None, (cc, "cc", "gcc", "clang")):
        found = _program(words, path)
        if found is not None:
            return found
    return _zig()


def _program(words: str, path: str) -> Compiler | None:
    """The compiler that a command such as "ccache gcc -m64" names."""
    argv = shlex.split(words)
    first = shutil.which(argv[0], path=path) if argv else None
    if first is None:
        return None
    first = os.path.abspath(first)
    files = [
        os.path.realpath(f) for f in (first, *(shutil.which(w, path=path) for w in argv[1:])) if f
    ]
    names = " ".join(map(os.path.basename, files))
    stats = [os.stat(file) for file in files]
    stamp = " ".join((names, *(f"{s.st_size} {int(s.st_mtime)}" for s in stats), *argv[1:]))
    return Compiler((first, *argv[1:]), _family(names), stamp)


def _family(names: str) -> str:
    known = re.findall(r"zig|clang|gcc", names)
    return known[-1] if known else "clang" if sys.platform == "darwin" else "cc"


def _zig() -> Compiler | None:
    import importlib.util

    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = os.path.abspath(next(iter(spec.submodule_search_locations)))
    label = re.compile(r"ziglang-(.+)\.dist-info")
    versions = [
        m[1] for m in map(label.fullmatch, sorted(os.listdir(os.path.dirname(folder)))) if m
    ]
    if not versions:  # not installed by pip: its files' date has to do
        versions = [str(int(os.stat(folder).st_mtime))]
    argv = (sys.executable, "-m", "ziglang", "cc")
    return Compiler(argv, "zig", f"ziglang {versions[-1]}")


def parts(options: Options | None = None) -> dict[str, str]:
    """Compiler, flags and target as parts of a cache key. Launches nothing."""
    options = default() if options is None else options
    compiler = find(options)
    words, need = flags(compiler.family if compiler else "cc", options)
    stamp = compiler.stamp if compiler else "none"
    return {"compiler": stamp, "flags": " ".join(words), "target": need}


def compile(
    sources: Sequence[str],
    name: str,
    options: Options | None = None,
    extra: Sequence[str] = (),
) -> bytes:
    """The bytes of a shared object made of C sources; `extra` are more flags.

    Several sources are compiled `options.jobs` at a time and linked once. Raises NoCompiler, or
    CompileError with the first diagnostics; the sources are kept then.
    """
    options = default() if options is None else options
    compiler = find(options)
    if compiler is None:
        raise NoCompiler(
            "no C compiler found (looked for LEHR_CC, CC, cc, gcc, clang, the ziglang package). "
            "Install gcc, or run: pip install 'lehr[zig]'. Without one, code runs eager"
        )
    command = [*compiler.argv, *flags(compiler.family, options)[0], *extra]
    refused = ""
    for folder in _folders(options):
        try:
            return _compile(command, sources, name, folder, max(1, options.jobs))
        except _NoRoom as error:
            refused = str(error)
            _clean(folder)
        except CompileError as error:
            if not error.source:
                _clean(folder)
            raise
        except BaseException:
            _clean(folder)
            raise
    raise CompileError(f"no folder to compile in: {refused or 'TMPDIR and others refuse files'}")


class _NoRoom(Exception):
    """The folder cannot take the files of a compilation."""


def _folders(options: Options) -> Iterator[str]:
    """Fresh folders to work in, in places that take one."""
    import tempfile

    places: tuple[Callable[[], str], ...] = (
        tempfile.gettempdir,
        lambda: store(options).folder,
        lambda: "/dev/shm",
        lambda: "/var/tmp",
    )
    for place in places:
        with contextlib.suppress(OSError):
            os.makedirs(place(), mode=0o700, exist_ok=True)
            yield tempfile.mkdtemp(prefix="lehr-cc-", dir=place())


def _compile(
    command: list[str], sources: Sequence[str], name: str, folder: str, jobs: int
) -> bytes:
    stem = re.sub(r"\W", "_", name)[:60]
    files = [f"{stem}_{n}.c" for n in range(len(sources))]  # relative: results do not differ
    result = stem + ".so"
    link = [*command, "-shared", "-o", result]
    try:
        for file, text in zip(files, sources, strict=True):
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                out.write(text)
        if len(files) == 1:
            _run([[*link, files[0], "-lm"]], folder, 1)
        else:
            objects = [file[:-1] + "o" for file in files]
            each = zip(files, objects, strict=True)
            _run([[*command, "-c", "-o", o, file] for file, o in each], folder, jobs)
            _run([[*link, *objects, "-lm"]], folder, 1)
        with open(os.path.join(folder, result), "rb") as done:
            code = done.read()
    except OSError as error:
        raise _NoRoom(f"{folder}: {error.strerror}") from error
    _clean(folder)
    return code


def _run(commands: list[list[str]], folder: str, jobs: int) -> None:
    """Run the commands, `jobs` at a time; the first that fails ends them all."""
    import subprocess

    global launches
    env = {**os.environ, "TMPDIR": folder, "LC_ALL": "C"}
    waiting = list(enumerate(commands))
    running: list[tuple[subprocess.Popen[bytes], list[str], IO[bytes]]] = []
    said: IO[bytes]
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, command = waiting.pop(0)
                _tell("%s", shlex.join(command))
                said = open(os.path.join(folder, f"{number}.txt"), "w+b")
                quiet = subprocess.DEVNULL
                launches += 1
                try:
                    process = subprocess.Popen(
                        command, stdin=quiet, stdout=said, stderr=said, env=env, cwd=folder,
                        process_group=0,  # Ctrl-C stops the program, not a compile half-way
                    )
                except OSError as error:
                    said.close()
                    text = f"the C compiler {command[0]} cannot be started: {error.strerror}"
                    raise CompileError(text, command) from error
                running.append((process, command, said))
            process, command, said = running[0]
            code = process.wait()
            said.seek(0)
            output = said.read().decode(errors="replace")
            said.close()
            running.pop(0)
            if code:
                raise _failure(command, code, output, folder)
    finally:
        for process, _, said in running:
            process.kill()
            process.wait()
            said.close()


def _failure(command: list[str], code: int, output: str, folder: str) -> Exception:
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return _NoRoom(f"{folder}: No space left on device")
    _clean(folder, keep=".c")
    lines = [line for line in output.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if "error" in line.lower()), 0)
    shown = "\n  ".join(lines[first : first + 12]) or "it said nothing"
    ended = f"ended with status {code}"
    if code < 0:
        ended = f"was killed by signal {-code}; if memory was short, LEHR_JOBS=1 takes less"
    text = f"the C compiler {ended}:\n  {shown}\ncommand: {shlex.join(command)}\nkept: {folder}"
    return CompileError(text, command, output, folder)


def _clean(folder: str, keep: str = "") -> None:
    """Remove a folder, or all in it but files with the ending `keep`."""
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for item in os.scandir(folder):
        if not item.name.endswith(keep):
            with contextlib.suppress(OSError):
                os.unlink(item.path)

"""Triton functions to machine code for NVIDIA GPUs, without a GPU, kept in the cache.

`triton` is imported only where something has to be compiled. What a cubin was made from is its key:
the function with all that it calls, argument types, constants, facts about arguments, the device's
architecture and Triton's version. The same function in another program is a hit.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lehr.compiler.run import cache, entry

# Compute capabilities that generated kernels are tested for.
ARCHITECTURES = (80, 86, 89, 90)
_NAME = re.compile(r"\blehr_\w+")
_ALONE = threading.Lock()  # Triton's settings belong to the process


class Cubin(NamedTuple):
    """The machine code of one function.

    name     the entry's name in `image`
    shared   bytes of dynamic shared memory of a program
    warps    a program has 32 times as many threads
    scratch  bytes of global memory that a program needs, a multiple of `align`; 0: none
    types    of the arguments in order ("*fp32", "i32", ...); two pointers more are passed after
             them: the scratch memory and null
    """

    image: bytes
    name: str
    shared: int
    warps: int
    scratch: int
    align: int
    types: tuple[str, ...]


class NoTriton(ImportError):
    """Generated GPU code has to be compiled and the package is not installed."""


def compile_cubin(source: str, name: str, facts: Mapping[str, Any], arch: int,
                  store: cache.Cache | None = None) -> Cubin:
    """The machine code of function `name` of a Triton module for compute capability `arch` (90 for
    9.0), from the cache or made. `facts`: its entry in the record ("types", "constants", "aligned",
    "warps", "stages"). ValueError carries the compiler's message."""
    text = closure(source, name)
    found = (store or cache.store()).get_or_build(
        _key(text, facts, arch), lambda: _payload(_compiled(text, name, facts, arch)))
    return _cubin(found)


def compile_all(source: str, functions: Mapping[str, Mapping[str, Any]], arch: int,
                store: cache.Cache | None = None, jobs: int | None = None) -> dict[str, Cubin]:
    """The machine code of several functions of a module, as `compile_cubin`; those that the cache
    does not have are compiled by up to `jobs` processes (None: one a processor)."""
    store = store or cache.store()
    texts = {name: closure(source, name) for name in functions}
    keys = {name: _key(texts[name], facts, arch) for name, facts in functions.items()}
    held = {name: store.get(key) for name, key in keys.items()}
    missing = [name for name, payload in held.items() if payload is None]
    jobs = len(os.sched_getaffinity(0)) if jobs is None else jobs
    jobs = min(jobs, len(missing) // WORTH)
    if jobs > 1 and version():
        made = _together([(texts[n], n, functions[n]) for n in missing], arch, jobs)
        for name, payload in zip(missing, made, strict=True):
            if payload is not None:
                store.put(keys[name], payload)
                held[name] = payload
    return {name: compile_cubin(source, name, functions[name], arch, store) if payload is None
            else _cubin(payload) for name, payload in held.items()}


WORTH = 3  # functions for which a process of its own is worth its start


def _together(wanted: list[tuple[str, str, Mapping[str, Any]]], arch: int, jobs: int
              ) -> list[bytes | None]:
    """The payloads that processes made; None where one failed, which the caller tries itself to
    have the error."""
    with tempfile.TemporaryDirectory(prefix="lehr-triton-") as folder:
        with open(os.path.join(folder, "jobs.json"), "w", encoding="utf-8") as file:
            json.dump([arch, wanted], file)
        package = os.path.abspath(__file__)
        for _ in __name__.split("."):
            package = os.path.dirname(package)
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        running = [subprocess.Popen([sys.executable, "-m", __name__, folder, str(n), str(jobs)],
                                    env=env, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for n in range(jobs)]
        for process in running:
            process.wait()
        made: list[bytes | None] = []
        for n in range(len(wanted)):
            try:
                with open(os.path.join(folder, f"{n}.cubin"), "rb") as stream:
                    made.append(stream.read())
            except FileNotFoundError:
                made.append(None)
        return made


def _work(folder: str, first: int, step: int) -> None:
    """One process of `_together`: every `step`th job from `first` on."""
    with open(os.path.join(folder, "jobs.json"), encoding="utf-8") as file:
        arch, wanted = json.load(file)
    for n in range(first, len(wanted), step):
        with contextlib.suppress(ValueError):  # the caller compiles it again and raises
            text, name, facts = wanted[n]
            payload = _payload(_compiled(text, name, facts, arch))
            with open(os.path.join(folder, f"{n}.new"), "wb") as stream:
                stream.write(payload)
            os.replace(stream.name, os.path.join(folder, f"{n}.cubin"))


def _key(text: str, facts: Mapping[str, Any], arch: int) -> entry.Key:
    return entry.key("cubin", lehr="any", source=text, facts=json.dumps(facts, sort_keys=True),
                     arch=f"sm_{arch}", triton=version())


def _cubin(payload: bytes) -> Cubin:
    parts = entry.unbundle(payload)
    about = json.loads(parts["about"])
    return Cubin(parts["image"], **{**about, "types": tuple(about["types"])})


def _payload(made: Cubin) -> bytes:
    about = {k: v for k, v in made._asdict().items() if k != "image"}
    return entry.bundle({"about": json.dumps(about).encode(), "image": made.image})


@functools.cache
def version() -> str:
    """Triton's version, without importing it; "" where it is not installed."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.lru_cache(maxsize=32)
def _parts(source: str) -> tuple[str, dict[str, str]]:
    """(imports, text by name) of a module of functions."""
    lines, heads, found = source.splitlines(), [], {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1:node.end_lineno])
        else:
            heads.append(ast.unparse(node))
    return "\n".join(heads), found


def closure(source: str, name: str) -> str:
    """The module that holds function `name` and what it calls, nothing else."""
    heads, functions = _parts(source)
    needed, waiting = {name}, [name]
    while waiting:
        for other in _NAME.findall(functions[waiting.pop()]):
            if other in functions and other not in needed:
                needed.add(other)
                waiting.append(other)
    return "\n\n\n".join([heads, *(text for n, text in functions.items() if n in needed)]) + "\n"


def functions(source: str) -> dict[str, Any]:
    """The module's names; the source is there for tracebacks and for Triton, which reads it."""
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    file = f"<triton {digest}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"__name__": file}
    exec(compile(source, file, "exec"), space)
    return space


def _compiled(text: str, name: str, facts: Mapping[str, Any], arch: int) -> Cubin:
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise NoTriton("code for NVIDIA GPUs is compiled by the package triton, which is not "
                       'installed: pip install "lehr[triton]"') from error
    with _ALONE, _private(triton):
        function = functions(text)[name]
        names = [n for n in function.arg_names if n not in facts["constants"]]
        signature = dict.fromkeys(function.arg_names, "constexpr") | dict(
            zip(names, facts["types"], strict=True))
        place = {n: i for i, n in enumerate(function.arg_names)}
        attrs = {(place[names[n]],): [["tt.divisibility", 16]] for n in facts["aligned"]}
        unit = ASTSource(fn=function, signature=signature, constexprs=dict(facts["constants"]),
                         attrs=attrs)
        options = {"num_warps": facts["warps"], "num_stages": facts["stages"],
                   "enable_fp_fusion": False}
        try:
            made = triton.compile(unit, target=GPUTarget("cuda", arch, 32), options=options)
        except Exception as error:
            raise ValueError(f"Triton {version()} cannot compile {name} for sm_{arch}: "
                             f"{error}") from error
    m = made.metadata
    return Cubin(made.asm["cubin"], m.name, m.shared, m.num_warps, m.global_scratch_size,
                 m.global_scratch_align, tuple(facts["types"]))


@contextlib.contextmanager
def _private(triton: Any) -> Iterator[None]:
    """Triton's own cache in a folder that goes: ours keeps the results."""
    with tempfile.TemporaryDirectory(prefix="lehr-triton-") as folder, (
            triton.knobs.cache.scope()):
        triton.knobs.cache.dir = folder
        yield


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

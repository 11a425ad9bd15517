"""Shared objects held in memory: made or fetched from the cache, loaded, called.

Code comes as bytes whose checksum was verified, and is loaded through an anonymous memory file,
so that neither a cache folder mounted noexec nor one that changes meanwhile matters. Where that
is not allowed, files are tried.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lehr.base import log
from lehr.base.options import Options, default
from lehr.compiler.run import cache, target, toolchain

_tell = log.channel("run")
_serial = itertools.count(1)


class LoadError(RuntimeError):
    """A shared object that the system's loader does not take; says what it said."""


class Library:
    """A loaded shared object. It stays loaded until the process ends: its addresses go around."""

    def __init__(self, handle: ctypes.CDLL, name: str) -> None:
        self.handle = handle
        self.name = name

    def function(self, symbol: str, result: Any = None, *arguments: Any) -> Callable[..., Any]:
        """The function `symbol` with ctypes types; calls release the GIL. LookupError if absent."""
        found = self._find(symbol)
        found.restype, found.argtypes = result, arguments
        return found

    def entry(self, symbol: str) -> Callable[[Any], None]:
        """The function `void symbol(void **)`, to be called with a ctypes array, never an int.

        Without declared arguments a call takes half the time.
        """
        found = self._find(symbol)
        found.restype = None
        return found

    def address(self, symbol: str) -> int:
        """The address of a symbol, for generated code. LookupError if absent."""
        return ctypes.cast(self._find(symbol), ctypes.c_void_p).value or 0

    def _find(self, symbol: str) -> Any:
        try:
            return self.handle[symbol]
        except AttributeError as error:
            raise LookupError(f"library {self.name} has no function {symbol!r}") from error


def load(code: bytes, name: str = "kernel") -> Library:
    """Load the bytes of a shared object. Raises LoadError."""
    refused = []
    for path in _places(code, name):
        try:
            handle = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            refused.append(str(error))
            _tell("not loaded from %s: %s", path, error)
        else:
            return Library(handle, name)
    raise LoadError(f"the compiled code of {name} cannot be loaded: " + "; ".join(refused))


def _places(code: bytes, name: str) -> Iterator[str]:
    """Paths at which the code can be opened, valid until the next one is asked for."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            file = os.memfd_create(f"lehr-{name}"[:200], os.MFD_CLOEXEC)
            try:
                _write(file, code)
                # The loader takes a path it saw before for the library it loaded from there, and
                # file numbers come again: spell each path in its own way.
                unique = format(next(_serial), "b").replace("1", "/.").replace("0", "/")
                yield f"/proc/self{unique}/fd/{file}"
            finally:
                os.close(file)
    import tempfile

    for folder in (tempfile.gettempdir, lambda: cache.store().folder, lambda: "/dev/shm"):
        try:
            file, path = tempfile.mkstemp(".so", "lehr-", folder())
        except OSError:
            continue
        try:
            with contextlib.suppress(OSError):
                try:
                    _write(file, code)
                finally:
                    os.close(file)
                yield path
        finally:
            os.unlink(path)


def nothing() -> Library:
    """A library without code, for programs that only call the host."""
    return Library(ctypes.CDLL(None), "empty")


def _write(file: int, code: bytes) -> None:
    rest = memoryview(code)
    while rest:
        rest = rest[os.write(file, rest) :]


def build(
    sources: Sequence[str],
    name: str,
    options: Options | None = None,
    extra: Sequence[str] = (),
) -> Library:
    """The library of C sources: from the cache, else compiled once among all processes.

    Without a compiler, code that another compiler made for this kind of machine will do.
    Raises NoCompiler, CompileError, LoadError.
    """
    return load(code(sources, name, options, extra), name)


def code(
    sources: Sequence[str],
    name: str,
    options: Options | None = None,
    extra: Sequence[str] = (),
) -> bytes:
    """What `build` loads."""
    options = default() if options is None else options
    source = "\0".join((*sources, *extra))
    parts = toolchain.parts(options)
    key = cache.key("so", lehr="any", source=source, **parts)
    box = cache.store(options)

    def make() -> bytes:
        if toolchain.find(options) is None:
            for other, meta in box.similar(key, {"compiler", "flags", "target"}):
                found = box.get(other) if target.host().runs(meta["target"]) else None
                if found is not None:
                    return found
        return toolchain.compile(sources, name, options, extra)

    return box.get_or_build(key, make, target=parts["target"])

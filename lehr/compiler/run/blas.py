"""Where the matrix product of this machine is: scipy-openblas32, else the library in numpy."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lehr.base import log

_tell = log.channel("run")
# How libraries spell cblas_sgemm: (before, after, bits of their integers).
_SPELLINGS = (("scipy_", "", 32), ("scipy_", "64_", 64), ("", "64_", 64), ("", "", 32))


@dataclass(frozen=True, slots=True)
class Blas:
    """Addresses of row- and column-major cblas functions that take integers of `bits` bits.

    `own`: lehr alone uses this library, so its thread count is lehr's to set. `set_threads` is
    None where the library has none or another way to do it.
    """

    path: str
    bits: int
    own: bool
    sgemm: int
    dgemm: int
    set_threads: Callable[[int], None] | None
    config: str


def _libraries() -> Iterator[tuple[str, bool]]:
    """Paths of libraries to try, and whether they are lehr's own."""
    import importlib.util

    spec = importlib.util.find_spec("scipy_openblas32")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(glob.glob(os.path.join(folder, "lib", "libscipy_openblas*"))):
            yield path, True
    import numpy

    # A lookup in numpy's extension module finds the library that it was linked to.
    core = getattr(numpy, "_core", None) or numpy.core
    yield core._multiarray_umath.__file__, False


def _open(path: str, own: bool) -> Blas | None:
    library = ctypes.CDLL(path)
    for before, after, bits in _SPELLINGS:
        names = [f"{before}cblas_{letter}gemm{after}" for letter in "sd"]
        if not all(hasattr(library, name) for name in names):
            continue
        single, double = (ctypes.cast(library[name], ctypes.c_void_p).value or 0 for name in names)
        setter = getattr(library, f"{before}openblas_set_num_threads{after}", None)
        config = getattr(library, f"{before}openblas_get_config{after}", None)
        if setter is not None:
            setter.argtypes, setter.restype = (ctypes.c_int,), None
        text = ""
        if config is not None:
            config.argtypes, config.restype = (), ctypes.c_char_p
            text = config().decode(errors="replace")
        return Blas(path, bits, own, single, double, setter, text)
    return None


@functools.cache
def blas() -> Blas | None:
    """The library in use, looked up once; None where there is none that lehr knows."""
    for path, own in _libraries():
        try:
            found = _open(path, own)
        except OSError as error:
            _tell("%s: %s", path, error)
            continue
        if found is not None:
            _tell("blas: %s %s", found.path, found.config)
            return found
    return None

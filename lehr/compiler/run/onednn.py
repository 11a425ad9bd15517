"""oneDNN, where the extra is installed: matrix products and convolutions of another library.

`options={"library": "onednn"}` or `LEHR_LIBRARY=onednn` chooses it for compiled programs;
`onednn.c` says how it is used.
"""

from __future__ import annotations

import ctypes
import functools
import os
from importlib import metadata
from typing import NamedTuple

from lehr.base import log
from lehr.base.options import OptionError, Options
from lehr.compiler.run import pool
from lehr.compiler.run.library import Library

PACKAGE, FILE, MAJOR = "onednn-cpu-gomp", "libdnnl.so.3", 3
_tell = log.channel("run")


class Missing(OptionError):
    """oneDNN is asked for and cannot be used; says why and what helps."""

    def __init__(self, why: str) -> None:
        super().__init__(f"library='onednn': {why}; pip install 'lehr[onednn]' brings it, "
                         "library='openblas' does without")


class _Version(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "patch")]


class OneDnn(NamedTuple):
    """The loaded library: `version` as text."""

    path: str
    version: str
    handle: ctypes.CDLL


@functools.cache
def find() -> str:
    """The path of the installed library; "" where there is none. Nothing is loaded."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return ""
    places = [os.path.realpath(str(f.locate())) for f in files if f.name == FILE]
    return next((p for p in places if os.path.isfile(p)), "")


@functools.cache
def version() -> str:
    """The version of the installed package, for cache keys; "" where there is none."""
    return metadata.version(PACKAGE) if find() else ""


def parts(options: Options) -> dict[str, str]:
    """What programs depend on besides their options: a part of their cache keys. Missing where the
    options ask for what is not installed."""
    if options.library == "onednn":
        return {"onednn": version() or load().version}
    if not (options.mode.startswith("max-autotune") and version()):
        return {}
    return {"onednn": version(), "threads": str(pool.get_num_threads())}


@functools.cache
def load() -> OneDnn:
    """The library. Missing where it is not installed, or does not load here."""
    path = find()
    if not path:
        raise Missing("the extra is not installed")
    # OpenMP reads this once, as it is loaded: its threads are to sleep between convolutions, not to
    # spin where lehr's own threads work.
    policy = os.environ.get("OMP_WAIT_POLICY")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        raise Missing(f"{path} does not load ({error})") from error
    finally:
        if policy is None:
            os.environ.pop("OMP_WAIT_POLICY", None)
    handle.dnnl_version.restype = ctypes.POINTER(_Version)
    found = handle.dnnl_version().contents
    text = f"{found.major}.{found.minor}.{found.patch}"
    if found.major != MAJOR:
        raise Missing(f"{path} is version {text}, not {MAJOR}")
    _tell("oneDNN: %s %s", path, text)
    return OneDnn(path, text, handle)


def connect(built: Library) -> None:
    """Gives the functions of the library to the template. Missing where it lacks one."""
    library = load()
    join = built.function("lehr_connect", ctypes.c_char_p, ctypes.c_void_p)
    lacks = join(library.handle._handle).decode()
    if lacks:
        raise Missing(f"{library.path} lacks {lacks}")

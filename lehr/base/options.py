"""Every switch of lehr, declared once: name, kind, default, meaning, place in the cache key.

An `Options` record is frozen and hashable. `default()` is the record of this process: the defaults
below, changed by `LEHR_*` environment variables. `compile(..., options={...})` derives another
record from it with `replace`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class OptionError(ValueError):
    """An unknown option, or a value that the option does not take."""


class Kind(NamedTuple):
    """How a value given by a user is read (ValueError or TypeError where it is wrong)."""

    accepts: str
    parse: Callable[[Any], Any]


_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False, "": False}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _flag(value: Any) -> bool:
    word = value.strip().lower() if isinstance(value, str) else str(value).lower()
    if word not in _WORDS:
        raise ValueError(value)
    return _WORDS[word]


def _count(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool | float) or number < 0:
        raise ValueError(value)
    return number


def _share(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise ValueError(value)
    return number


def parse_bytes(value: Any) -> int:
    """A number of bytes: an int, or text such as "512M", "4GB", "1.5 GiB" (powers of 1024)."""
    if not isinstance(value, str):
        return _count(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", value.upper())
    if match is None:
        raise ValueError(value)
    return int(float(match[1]) * _UNITS[match[2]])


def _maybe(kind: Kind) -> Kind:
    def parse(value: Any) -> Any:
        word = value.strip().lower() if isinstance(value, str) else value
        return None if word in (None, "", "none", "auto") else kind.parse(value)

    return Kind(kind.accepts + ", or none", parse)


def _choice(*allowed: str) -> Kind:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(value)
        return value

    return Kind("one of " + ", ".join(map(repr, allowed)), parse)


FLAG = Kind("true or false", _flag)
COUNT = Kind("a whole number, at least 0", _count)
LEVEL = Kind("0, 1, 2 or 3", lambda value: (0, 1, 2, 3).index(_count(value)))
TEXT = Kind("text", os.fspath)
BYTES = Kind("a number of bytes such as 1048576 or '512M'", parse_bytes)
SHARE = Kind("a number from 0 to 1", _share)


def _option(default: Any, kind: Kind, doc: str, *, key: bool = False) -> Any:
    return field(default=default, metadata={"kind": kind, "doc": doc, "key": key})


@dataclass(frozen=True, slots=True)
class Options:
    """The switches. A field marked `key` changes generated code and is part of every cache key."""

    mode: str = _option("default", _choice(*MODES), "what to spend compile time on", key=True)
    fullgraph: bool = _option(False, FLAG, "a graph break is an error")
    dynamic: bool | None = _option(
        None, _maybe(FLAG), "sizes: true symbolic, false static, none static until seen to change"
    )
    check: str = _option(
        "", _choice("", "stages"), "'stages': name the first stage whose results differ"
    )
    audit: bool = _option(False, FLAG, "run eager beside compiled, stop at the first difference")
    strict: bool = _option(False, FLAG, "every compiler failure raises, nothing falls back")
    suppress_errors: bool = _option(True, FLAG, "if the compiler fails, warn once and run eager")
    recompile_limit: int = _option(
        8, COUNT, "compiled variants of one function before it stays eager, with a warning"
    )
    activation_memory_budget: float = _option(
        1.0, SHARE, "bytes kept for backward, of what is kept at 1; 0 keeps least", key=True
    )
    fusion: bool = _option(True, FLAG, "off: one kernel per op, to find a wrong fusion", key=True)
    cudagraphs: bool | None = _option(None, _maybe(FLAG), "CUDA graphs; none follows the mode")
    threads: int = _option(
        0, COUNT, "CPU threads of compiled code; 0: as many as this process may use"
    )
    simd: str = _option(
        "native",
        _choice("native", "portable", "avx2", "avx512"),
        "instructions that generated C may use",
        key=True,
    )
    split: bool = _option(
        True, FLAG, "float32 products as products of bfloat16 parts, as exact, where that is faster"
    )
    pack_weights: bool = _option(
        True, FLAG, "weights of inference stay packed for products until they are written"
    )
    library: str = _option(
        "openblas",
        _choice("openblas", "onednn"),
        "matrix products and convolutions of compiled programs by lehr and OpenBLAS, or by oneDNN",
        key=True,
    )
    optimize: int = _option(2, LEVEL, "optimisation level of the C compiler", key=True)
    cc: str = _option("", TEXT, "C compiler, with arguments if need be; empty: look for one")
    jobs: int = _option(2, COUNT, "C compilers run at once")
    cache: bool = _option(True, FLAG, "keep compiled code on disk")
    cache_dir: str = _option("", TEXT, "the cache's folder; empty: lehr in the user's cache folder")
    cache_size: int = _option(
        4 << 30, BYTES, "bytes of the cache on disk; the least recently used entries go first"
    )
    profile: bool = _option(False, FLAG, "time every step of compiled programs", key=True)
    dump: str = _option("", TEXT, "folder that gets every stage of every compiled graph as text")
    log: str = _option("", TEXT, "channels to print, by comma: fusion,guards,... or all")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Options:
        """The defaults, changed by the `LEHR_*` variables of `environ` (default: the process's).

        Raises OptionError for a value that does not parse. A variable that looks like a misspelt
        one gives a warning.
        """
        environ = os.environ if environ is None else environ
        known = {env_name(name): name for name in FIELDS}
        for name in environ:
            near = difflib.get_close_matches(name, known, 1, 0.85) if name[:5] == "LEHR_" else []
            if near and name not in known and near[0] not in environ:
                warnings.warn(f"lehr reads no variable {name}; is it {near[0]}?", stacklevel=2)
        found = {option: environ[name] for name, option in known.items() if name in environ}
        return cls()._changed(found, env_name)

    def replace(self, **changes: Any) -> Options:
        """A record with some options changed.

        Raises OptionError for an unknown name (near matches are named) and for a bad value.
        """
        for name in changes:
            if name not in FIELDS:
                near = difflib.get_close_matches(name, FIELDS, 3, 0.6)
                hint = f"is it {' or '.join(near)}?" if near else f"known: {', '.join(FIELDS)}"
                raise OptionError(f"unknown option {name!r}; {hint}")
        return self._changed(changes, "option {!r}".format)

    def key(self) -> dict[str, str]:
        """The options that change generated code, as text, by name: parts of a cache key."""
        return {n: repr(getattr(self, n)) for n, f in FIELDS.items() if f.metadata["key"]}

    def _changed(self, changes: Mapping[str, Any], spell: Callable[[str], str]) -> Options:
        parsed = {}
        for name, value in changes.items():
            kind = FIELDS[name].metadata["kind"]
            try:
                parsed[name] = kind.parse(value)
            except (ValueError, TypeError):
                raise OptionError(f"{spell(name)} takes {kind.accepts}, not {value!r}") from None
        return dataclasses.replace(self, **parsed) if parsed else self


FIELDS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Options)}


def env_name(option: str) -> str:
    """The environment variable of an option."""
    return "LEHR_" + option.upper()


def describe() -> list[dict[str, Any]]:
    """One row per option (name, env, default, accepts, doc, key): documentation, command line."""
    return [
        {"name": f.name, "env": env_name(f.name), "default": f.default}
        | {"accepts": f.metadata["kind"].accepts, "doc": f.metadata["doc"]}
        | {"key": f.metadata["key"]}
        for f in FIELDS.values()
    ]


_default: Options | None = None


def default() -> Options:
    """The options of this process: read from the environment once, at first use."""
    global _default
    if _default is None:
        _default = Options.from_env()
    return _default


def set_default(options: Options | None) -> None:
    """Replace the options of this process; None: read the environment again at the next use."""
    global _default
    _default = options

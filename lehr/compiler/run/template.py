"""Templates: C written by hand for what loops and BLAS do badly, compiled once per toolchain.

A template's sources lie beside this file. Its library is loaded when a program first needs it, and
its `lehr_install` puts its functions into the runtime's table, through which programs call them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from lehr.base.options import default
from lehr.compiler.run import library, onednn, pool, target


class Source(NamedTuple):
    """The files of a template; where programs can do without it, the processor's features that it
    needs and the option that it hangs on, and the template that stands in for it elsewhere; what
    connects it to a library of others."""

    files: tuple[str, ...]
    features: frozenset[str] = frozenset()
    option: str = ""
    level: int = 2  # of optimisation, at most: 1 where vectors are spelt out and nothing is fused
    connect: Callable[[library.Library], None] | None = None
    instead: str = ""
    worth: str = ""     # of m, n, k: which products it is for, in C; others are left to BLAS


TILES = frozenset("amx_tile amx_bf16 avx512f avx512bw avx512vl".split())
SOURCES = {
    "convolution": Source(
        ("scratch.h", "vector.h", "span.h", "square.h", "turn.h", "convolution.c")),
    "depthwise": Source(("scratch.h", "vector.h", "span.h", "square.h", "turn.h", "depthwise.c")),
    "convolution_half": Source(("scratch.h", "amx.h", "half.h", "convolution_half.c")),
    "layer": Source(("scratch.h", "vector.h", "layer.c")),
    "attention": Source(
        ("scratch.h", "vector.h", "attention.h", "strip.h", "settle.h", "attention.c")),
    "attention_back": Source(
        ("scratch.h", "vector.h", "attention.h", "strip.h", "attention_back.c")),
    "attention_half": Source(
        ("scratch.h", "amx.h", "half.h", "vector.h", "attention.h", "attention_half.c")),
    "half": Source(("scratch.h", "amx.h", "half.h", "half.c")),
    # Products of float32 matrices by bfloat16 tiles. Three bfloat16 parts hold a float32 number,
    # and a tile unit multiplies bfloat16 so fast that six products of parts take less time than one
    # float32 product: 1.4 to 2 times less, five times for numbers that are bfloat16. Results are as
    # exact as those of float32 arithmetic (`tests/run/test_split.py` measures it), but not the same
    # bits: `LEHR_SPLIT=0` leaves all products to what other processors have.
    "split": Source(("amx.h", "tile.h", "split.c"), TILES, "split", level=1, instead="panels",
                    worth="k >= 32 && m * n >= 64 * (m + n)"),
    # Measured beside OpenBLAS and, for few rows, `thin`, where B is packed at every call. Not where
    # much of the last panel is missing; the largest products are no slower by BLAS.
    "panels": Source(
        ("scratch.h", "vector.h", "square.h", "panels.c"), frozenset({"avx512f"}), level=1,
        worth="m >= 16 && n >= 128 && k >= 32 && n >= (32 - n % 32) % 32 * 15"
              " && m * n * k >= 1 << 21 && (m > 24 || m * n * k >= 1 << 23)"
              " && (m <= 512 || m * n * k <= 1 << 29)"),
    "thin": Source(("scratch.h", "vector.h", "settle.h", "thin.c")),
    "onednn": Source(("scratch.h", "onednn.c"), connect=onednn.connect),
}
# Sums of products may be fused here, as in any library that multiplies matrices.
FLAGS = ("-ffp-contract=fast", "-pthread", "-D_GNU_SOURCE")


def chosen(name: str) -> str:
    """The template that is used for one on this machine; empty where none is."""
    if name not in SOURCES:
        raise LookupError(f"there is no template {name!r}: {', '.join(SOURCES)}")
    source = SOURCES[name]
    wanted = not source.option or getattr(default(), source.option)
    if wanted and target.host().features >= source.features:
        return name
    return chosen(source.instead) if source.instead else ""


def of(record: Mapping[str, Any]) -> list[str]:
    """What a program calls, but for templates for products that it has none of."""
    def wanted(rule: str) -> bool:
        return not rule or any(0 in sizes or holds(rule, *sizes) for sizes in record["products"])
    return [name for name in filter(None, map(chosen, record.get("templates", ())))
            if wanted(SOURCES[name].worth)]


def load(record: Mapping[str, Any]) -> None:
    """What a program calls."""
    for name in of(record):
        need(name)


@contextlib.contextmanager
def ahead(record: Mapping[str, Any]) -> Iterator[None]:
    """Compiles what a program calls while its own code is compiled, where there are processors for
    it. What fails is said when the program needs it."""
    def run(name: str) -> None:
        with contextlib.suppress(Exception):
            need(name)
    threads = [threading.Thread(target=run, args=(name,)) for name in of(record)
               if target.processors() > 1]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def holds(rule: str, m: int, n: int, k: int) -> bool:
    """A `worth`, as C has it."""
    return bool(eval(rule.replace("&&", "and").replace("||", "or"), {"m": m, "n": n, "k": k}))


def text_of(name: str) -> str:
    """A template's C."""
    source = SOURCES[name]
    rule = f"#define WORTH(m, n, k) ({source.worth})\n" if source.worth else ""
    return "".join([pool.header(), rule, *map(pool.text, source.files)])


@functools.cache
def need(name: str) -> library.Library | None:
    """A template, loaded into the runtime's table; None where it is of no use here. Raises what
    `library.build` raises."""
    if chosen(name) != name:
        return need(chosen(name)) if chosen(name) else None
    source, text = SOURCES[name], text_of(name)
    options = pool.level(source.level)
    built = library.build([text], name, options, FLAGS)
    if source.connect:
        source.connect(built)
    built.function("lehr_install", None, ctypes.c_void_p)(pool.pool().table)
    return built

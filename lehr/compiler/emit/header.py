"""The C functions that generated code may name: `prelude/*.h`, from which a source takes what it
uses.

A header is a sequence of blocks with blank lines between them; a block defines the `lehr_*` and
`LEHR_*` names at its beginnings of definitions. Functions on integers are macros that make one for
a type: `lehr_gcd_i32` is made by LEHR_GCD.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prelude")
# In the order in which they may build on each other.
FILES = ("bits.h", "integer.h", "float64.h", "float32.h", "random.h", "spread.h", "clock.h")
_NAME = re.compile(r"\b(?:lehr|LEHR)_\w*[A-Za-z0-9]\b")
_DEFINED = re.compile(r"^(?:#define |typedef [^;{]*?|} |(?:LEHR_FN|static) "
                      r"(?:__attribute__\(\([^)]*\)\) )?[^=;{(]*?)"
                      r"\b((?:lehr|LEHR)_\w+)(?=[ ,(\[;)]|$)", re.MULTILINE)
# Type suffix -> (type, its unsigned form, bits), for the functions on integers.
INTEGERS = {
    "b1": ("uint8_t", "uint8_t", 8), "u8": ("uint8_t", "uint8_t", 8),
    "i8": ("int8_t", "uint8_t", 8), "i16": ("int16_t", "uint16_t", 16),
    "i32": ("int32_t", "uint32_t", 32), "i64": ("int64_t", "uint64_t", 64),
}


class Block(NamedTuple):
    place: int
    text: str
    needs: frozenset[str]


@functools.cache
def blocks() -> dict[str, Block]:
    """Every name that a header defines, with the block that defines it."""
    found: dict[str, Block] = {}
    for file in FILES:
        with open(os.path.join(_FOLDER, file), encoding="utf-8") as stream:
            texts = re.split(r"\n\n+", stream.read().strip())
        for text in texts:
            block = Block(len(found), text, frozenset(_NAME.findall(text)))
            for name in _DEFINED.findall(text):
                found.setdefault(name, block)
    return found


def _instance(name: str) -> Block | None:
    """The block that makes a function on integers from its macro."""
    stem, _, suffix = name.rpartition("_")
    macro = blocks().get(stem.upper())
    if macro is None or suffix not in INTEGERS:
        return None
    ctype, unsigned, bits = INTEGERS[suffix]
    text = f"{stem.upper()}({suffix}, {ctype}, {unsigned}, {bits})"
    return Block(macro.place, text, frozenset((stem.upper(),)))


def find(name: str) -> Block | None:
    """The block that defines a name, None where no header does."""
    return blocks().get(name) or _instance(name)


def prelude(texts: Iterable[str], known: Iterable[str] = ()) -> str:
    """The definitions of all `lehr_*` names in C texts, with what they need.

    `known`: names that the texts or other headers define. LookupError names one that nobody does.
    """
    done = set(known)
    waiting = [name for text in texts for name in _NAME.findall(text)]
    taken: dict[str, int] = {}
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        block = find(name)
        if block is None:
            raise LookupError(f"no C function {name} in the prelude")
        taken[block.text] = block.place
        waiting += block.needs
    # A macro stands before its instances: both have the macro's place.
    return "\n\n".join(sorted(taken, key=lambda text: (taken[text], text[0] == "L")))

"""Functions that are alike but for numbers become one function that is given the numbers.

A layer at several sizes (the stages of a convolutional network) makes such kernels, and compiling C
is most of a cold start. What a C compiler makes use of stays a constant: short loops, divisors,
lengths of arrays and of strips. The numbers keep their C types, so that values stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

SHORT = 64  # loops of fewer points are worth being compiled for their length

_NUMBER = re.compile(r"(?<![\w.@])(?:\d+\.\d*(?:e[-+]?\d+)?f?|\d+(?:LL)?)(?![\w.@])")
_FIXED = re.compile(r"\s*#|\s*\w+ \w+\[[^=]*\];|.*\b(?:width =|block\b|__builtin_)")
_TYPES = {"LL": "int64_t", "f": "float", ".": "double", "": "int"}


class Text(NamedTuple):
    """A function's C, in which `@n@` stands for the pointer n and `@@` for its name."""

    name: str
    text: str
    pointers: tuple[str, ...]
    comments: tuple[str, ...]


class Unit(NamedTuple):
    """C text that defines functions."""

    names: tuple[str, ...]
    text: str


def units(functions: Iterable[Text]) -> list[Unit]:
    """The functions' C; `pointers` are the names that C gets."""
    groups: dict[tuple[str, ...], list[tuple[Text, list[str]]]] = {}
    for f in functions:
        frame, numbers = _split(f.text)
        groups.setdefault(frame, []).append((f, numbers))
    return [_named([f for f, _ in group], _joined(frame, group))
            for frame, group in groups.items()]


def _named(group: Sequence[Text], text: str) -> Unit:
    first = group[0]
    text = re.sub(r"@(\d+)@", lambda m: first.pointers[int(m[1])], text.replace("@@", first.name))
    comments = dict.fromkeys(f"/* {c} */" for f in group for c in f.comments)
    return Unit(tuple(f.name for f in group), "\n".join([*comments, text]))


def _split(text: str) -> tuple[tuple[str, ...], list[str]]:
    """(the text between the numbers that may be given, with their types; the numbers)."""
    frame, numbers, end = [], [], 0
    for m in _numbers(text):
        frame += [text[end:m.start()], _type(m[0])]
        numbers.append(m[0])
        end = m.end()
    return (*frame, text[end:]), numbers


def _numbers(text: str) -> Iterator[re.Match[str]]:
    start = 0
    for line in text.splitlines(keepends=True):
        if not _FIXED.match(line):
            for m in _NUMBER.finditer(text, start, start + len(line)):
                if _type(m[0]) in ("float", "double") or _free(text, m):
                    yield m
        start += len(line)


def _free(text: str, m: re.Match[str]) -> bool:
    """Whether a whole number may be a variable."""
    before, after = text[max(0, m.start() - 2):m.start()], text[m.end():m.end() + 1]
    return (int(m[0].removesuffix("LL")) >= SHORT and before not in ("/ ", "% ")
            and not (before.endswith("[") and after == "]"))


def _type(number: str) -> str:
    return _TYPES[next(t for t in _TYPES if t in number)]


def _joined(frame: tuple[str, ...], group: Sequence[tuple[Text, list[str]]]) -> str:
    """A group's text: its only function, or a shared one and callers of it by all the names."""
    if len(group) == 1:
        return group[0][0].text
    columns = list(zip(*(numbers for _, numbers in group), strict=True))
    given: dict[tuple[str, ...], str] = {}
    pieces = [frame[0]]
    for n, column in enumerate(columns):
        if len(set(column)) > 1:
            given.setdefault(column, f"number{len(given)}")
        pieces += [given.get(column, column[0]), frame[2 * n + 2]]
    kinds = {name: _type(column[0]) for column, name in given.items()}
    text = _handed("".join(pieces), kinds)
    head = re.search(r"static void @@(\(.*\)) {", text)
    assert head is not None
    shared = text.replace(head[0], "static __attribute__((noinline)) void "
                          f"@@_any{head[1][:-1]}, const @@_numbers *numbers) {{", 1)
    fields = " ".join(f"{kind} {name};" for name, kind in kinds.items())
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", head[1][1:-1]))
    callers = [f"static void {f.name}{head[1]} {{\n"
               f"  static const @@_numbers numbers = {{{', '.join(c[n] for c in given)}}};\n"
               f"  @@_any({names}, &numbers);\n}}" for n, (f, _) in enumerate(group)]
    return "\n\n".join([f"typedef struct {{ {fields} }} @@_numbers;", shared, *callers])


def _handed(text: str, kinds: dict[str, str]) -> str:
    """The text of functions, each of which takes the numbers that it needs from `numbers`; tasks
    get that in their arguments."""
    text = text.replace("  int64_t share;\n", "  int64_t share;\n  const @@_numbers *numbers;\n")
    text = text.replace("args = {p, share", "args = {p, share, numbers")
    taken = "  void *const *p = args->p;\n"
    text = text.replace(taken, f"{taken}  const @@_numbers *numbers = args->numbers;\n")
    made = []
    for part in re.split(r"(?m)^(?=static )", text):
        used = [name for name in kinds if re.search(rf"\b{name}\b", part)]
        lines = "".join(f"  const {kinds[name]} {name} = numbers->{name};\n" for name in used)
        begin = part.find(taken)
        at = part.find("\n") + 1 if begin < 0 else part.find("args->numbers;\n") + 15
        made.append(part[:at] + lines + part[at:] if used else part)
    return "".join(made)

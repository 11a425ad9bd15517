"""What a backward rule must keep alive: read off the rule's own body.

`vjp(F, g, out, x, y)` that loads `x` needs its value; one that only reads `x.shape`, `x.dtype`,
`x.device` or `x.ndim` needs its description; a name that is never loaded needs nothing.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterator
from typing import Any

META = frozenset(("shape", "dtype", "device", "ndim"))
RANK = ("nothing", "meta", "value")
RESULT = "<result>"     # no parameter is called so


def reads_of(op: Any) -> dict[str, str]:
    """Parameter name (and `RESULT`) -> "nothing" | "meta" | "value"."""
    code = op.vjp.__code__
    names = code.co_varnames[: code.co_argcount]
    found = dict.fromkeys(names, "nothing")
    _scan(code, found)
    wanted = [RESULT, *(p.name for p in op.params)]
    if len(names) != len(wanted) + 2:
        raise TypeError(f"op {op.name}: vjp takes (F, g, out, {', '.join(wanted[1:])})")
    for want, name in zip(wanted, names[2:], strict=True):
        if want in op.described:
            found[name] = "meta"
    return {want: found[name] for want, name in zip(wanted, names[2:], strict=True)}


def _scan(code: types.CodeType, found: dict[str, str]) -> None:
    steps = list(dis.get_instructions(code))
    cells = code.co_cellvars + code.co_freevars
    for this, after in zip(steps, [*steps[1:], None], strict=True):
        names = this.argval if isinstance(this.argval, tuple) else (this.argval,)
        if not this.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
            continue
        if this.opname == "LOAD_FAST" and names[0] in cells:
            continue  # Python 3.13 hands a cell to a closure so; its value is read by LOAD_DEREF
        if this.opname.startswith("STORE_FAST_LOAD_FAST"):
            names = names[1:]
        for i, name in enumerate(names):
            if name not in found:
                continue
            last = i == len(names) - 1
            meta = (last and after is not None and after.opname == "LOAD_ATTR"
                    and after.argval in META)
            found[name] = max(found[name], "meta" if meta else "value", key=RANK.index)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            _scan(const, found)


def reads_for(op: Any, live: tuple[bool, ...]) -> dict[str, str]:
    """`reads_of` for a call in which only some tensor arguments (in order) need a gradient.

    What a rule reads only in a lazy element of its result (`return lambda: ..., lambda: ...`) is
    not needed where that argument needs no gradient.
    """
    cache = op.__dict__.setdefault("_reads", {})
    found = cache.get(live)
    if found is None:
        always, lazy = _split(op)
        found = dict(always)
        for wanted, part in zip(live, lazy, strict=False):
            if wanted:
                for name, rank in part.items():
                    found[name] = max(found[name], rank, key=RANK.index)
        found = {k: min(rank, op.saves[k], key=RANK.index) for k, rank in found.items()}
        cache[live] = found
    return found  # type: ignore[no-any-return]


def _tree(function: Any) -> ast.stmt:
    """The definition of a function. Its lines are those that its code names: to look for the end of
    its text, as `inspect` does, takes ten times as long, and is needed where a bracket ends behind.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1:_last(code)]
    try:
        return ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (SyntaxError, IndexError):
        return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


def _last(code: types.CodeType) -> int:
    inside = [_last(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return max([*(line or 0 for *_, line in code.co_lines()), *inside])


def unread(op: Any) -> frozenset[int]:
    """Results whose values the rule leaves alone: `_, mean, var = out` reads none of the first."""
    found = op.__dict__.get("_unread")
    if found is None:
        try:
            found = _unread_source(op)
        except (OSError, TypeError, SyntaxError):  # no source: every result counts
            found = frozenset()
        op.__dict__["_unread"] = found
    return found  # type: ignore[no-any-return]


def _unread_source(op: Any) -> frozenset[int]:
    tree = _tree(op.vjp)
    if not isinstance(tree, ast.FunctionDef):
        return frozenset()
    name = tree.args.args[2].arg
    spread = [n.targets[0].elts for n in tree.body if isinstance(n, ast.Assign)
              and isinstance(n.targets[0], ast.Tuple) and isinstance(n.value, ast.Name)
              and n.value.id == name]
    if len(spread) != 1 or _loads(tree, name) != 1:
        return frozenset()
    return frozenset(i for i, each in enumerate(spread[0])
                     if isinstance(each, ast.Name) and not _loads(tree, each.id))


def _split(op: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
    """What the rule reads in any case, and in each lazy element of its result."""
    made = op.__dict__.get("_split_reads")
    if made is None:
        try:
            made = _split_source(op)
        except (OSError, TypeError, SyntaxError):  # no source: everything counts
            made = op.saves, []
        op.__dict__["_split_reads"] = made
    return made  # type: ignore[no-any-return]


def _split_source(op: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
    tree = _tree(op.vjp)
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError("the rule is no plain function")
    names = [a.arg for a in tree.args.args][2:]
    public = [RESULT, *(p.name for p in op.params)]
    inner = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    lazy: dict[int, list[ast.AST]] = {}
    for node in _own(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            for i, element in enumerate(node.value.elts):
                body = _body(element, inner)
                if body is not None:
                    lazy.setdefault(i, []).append(body)
    hidden = {id(n) for bodies in lazy.values() for n in bodies}
    # A function inside that is used in another way as well is no lazy element only.
    hidden -= {id(f) for name, f in inner.items() if _loads(tree, name) > sum(
        body is f for bodies in lazy.values() for body in bodies)}

    def reads(nodes: Any) -> dict[str, str]:
        found = dict.fromkeys(names, "nothing")
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) \
                    and node.attr in META and node.value.id in found:
                found[node.value.id] = max(found[node.value.id], "meta", key=RANK.index)
                node.value.id += "."  # seen
            elif isinstance(node, ast.Name) and node.id in found and isinstance(node.ctx, ast.Load):
                found[node.id] = "value"
        return {p: found[n] for p, n in zip(public, names, strict=True)}
    count = max(lazy, default=-1) + 1
    parts = [reads([n for body in lazy.get(i, ()) if id(body) in hidden for n in ast.walk(body)])
             for i in range(count)]
    return reads(_visible(tree, hidden)), parts


def _own(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    stack = list(ast.iter_child_nodes(tree))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def _visible(tree: ast.AST, hidden: set[int]) -> Iterator[ast.AST]:
    """The nodes of a function without the hidden subtrees, attributes before their names."""
    stack = list(ast.iter_child_nodes(tree))
    while stack:
        node = stack.pop(0)
        if id(node) in hidden:
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def _body(element: ast.AST, inner: dict[str, ast.FunctionDef]) -> ast.AST | None:
    if isinstance(element, ast.Lambda):
        return element
    if isinstance(element, ast.Name):
        return inner.get(element.id)
    return None


def _loads(tree: ast.AST, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
               for n in ast.walk(tree))

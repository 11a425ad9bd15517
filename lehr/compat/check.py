"""What of PyTorch a program uses that lehr lacks, read off its text: nothing of it is run.

Found are names reached from imports (`torch.a.b`, `F.gelu`, `from torch.x import y`), keyword
arguments of functions and classes that lehr has, and calls of methods that only tensors of PyTorch
have. Modules beside the program that it imports are read too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lehr.compat import absent
from lehr.compat.alias import NAMES, own


@dataclass(frozen=True)
class Finding:
    """One use of something that is missing.

    name     in PyTorch's words: `torch.a.b`, `torch.f(word=...)`, `torch.Tensor.m`
    guarded  the program handles the lack (try, hasattr)
    sure     the name is surely PyTorch's; False for a method of a value of unknown type
    """

    path: str
    line: int
    name: str
    guarded: bool = False
    sure: bool = True

    def __str__(self) -> str:
        part = absent.part(self.name.partition("(")[0])
        notes = " (guarded)" if self.guarded else "" if self.sure else " (if it is a tensor's)"
        return f"{self.path}:{self.line}: {self.name}{notes}: {part.what}; {part.instead}"


def check(paths: Iterable[Path | str]) -> list[Finding]:
    """Findings of these programs and of the modules beside them that they import, in order.

    OSError where a file cannot be read, SyntaxError where it is no Python.
    """
    waiting, seen, found = [Path(p) for p in paths], set(), []
    while waiting:
        path = waiting.pop(0)
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        scan = Scan(path)
        found += sorted(scan.findings(), key=lambda f: f.line)
        waiting += scan.beside
    return found


def resolve(name: str) -> tuple[Any, str | None]:
    """(object, None) of a dotted name of PyTorch, or (None, the shortest part that is missing)."""
    parts = name.split(".")
    found: Any = _module(parts[0])
    if found is None:
        return None, parts[0]
    for i, part in enumerate(parts[1:], 2):
        here = ".".join(parts[:i])
        made = getattr(found, part, None)
        if made is None and isinstance(found, types.ModuleType):
            made = _module(here)
        if made is None:
            # What only instances have (`Module.training`) is no attribute of the class, and None is
            # a value (`torch.version.cuda`).
            return (None, None) if _has(found, part) else (None, here)
        found = made
        if not isinstance(found, (types.ModuleType, type)):
            break
    return found, None


def _has(owner: Any, name: str) -> bool:
    from lehr.tensor.tensor import Tensor
    if isinstance(owner, type):
        return not (issubclass(owner, Tensor) or name.isupper())
    return name in vars(owner)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(own(name) or name)
    except ModuleNotFoundError:
        return None


class Scan(ast.NodeVisitor):
    """One file. `beside`: files of modules that it imports from its own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.beside: list[Path] = []
        self.bound: dict[str, str] = {}
        self.found: dict[tuple[int, str], Finding] = {}
        self.handled = 0
        self.tree = ast.parse(path.read_text("utf-8", errors="replace"), str(path))

    def findings(self) -> Iterator[Finding]:
        """The file's findings, one for each line and name."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._bind(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 \
                    and isinstance(node.targets[0], ast.Name):
                name = self._dotted(node.value)
                if name is not None and isinstance(resolve(name)[0], (types.ModuleType, type)):
                    self.bound.setdefault(node.targets[0].id, name)
        self.visit(self.tree)
        yield from self.found.values()

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] in NAMES:
                    first = each.name.partition(".")[0]
                    self.bound[each.asname or first] = each.name if each.asname else first
                else:
                    self._follow(each.name, 0)
        elif not node.level and (node.module or "").partition(".")[0] in NAMES:
            for each in node.names:
                if each.name != "*":
                    self.bound[each.asname or each.name] = f"{node.module}.{each.name}"
        else:
            names = [f"{node.module}.{each.name}" if node.module else each.name
                     for each in node.names]
            for name in (*names, *([node.module] if node.module else [])):
                self._follow(name, node.level)

    def _follow(self, name: str, level: int) -> None:
        folder = self.path.parent
        for _ in range(level - 1):
            folder = folder.parent
        stem = folder.joinpath(*name.split("."))
        self.beside += [p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()]

    def _dotted(self, node: ast.AST) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bound:
            return None
        return ".".join([self.bound[node.id], *reversed(parts)])

    def _note(self, node: Any, name: str, sure: bool = True) -> None:
        key = node.lineno, name
        self.found.setdefault(key, Finding(str(self.path), node.lineno, name, self.handled > 0,
                                           sure))

    def _look(self, node: ast.AST, name: str) -> None:
        lacking = resolve(name)[1]
        if lacking is not None:
            self._note(node, lacking)

    def visit_Try(self, node: ast.Try) -> None:
        guards = any(_catches(h.type) for h in node.handlers)
        self.handled += guards
        self._all(node.body)
        self.handled -= guards
        self._all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If) -> None:
        asked = any(isinstance(n, ast.Call) and getattr(n.func, "id", "") == "hasattr"
                    for n in ast.walk(node.test))
        self.visit(node.test)
        self.handled += asked
        self._all(node.body)
        self.handled -= asked
        self._all(node.orelse)

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if each.name.partition(".")[0] in NAMES:
                self._look(node, each.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] not in NAMES:
            return
        for each in node.names:
            self._look(node, module if each.name == "*" else f"{module}.{each.name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is not None:
            self._look(node, name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        if name is not None:
            self._keywords(node, name)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in absent.METHODS:
            self._note(node, f"torch.Tensor.{node.func.attr}", sure=False)
        self.generic_visit(node)

    def _keywords(self, node: ast.Call, name: str) -> None:
        found, _ = resolve(name)
        words = [k.arg for k in node.keywords if k.arg is not None]
        if found is None or not words or not callable(found):
            return
        try:
            params = inspect.signature(found).parameters
        except (TypeError, ValueError):
            return
        if any(p.kind is p.VAR_KEYWORD for p in params.values()):
            return
        for word in words:
            if word not in params:
                self._note(node, f"{name}({word}=...)")


def _catches(kind: ast.expr | None) -> bool:
    """Whether a handler is one that programs put around a missing name."""
    if kind is None:
        return True
    names = [getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(kind)]
    return any(n in ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception",
                     "BaseException", "NotImplementedError") for n in names)

"""The rules every source file obeys, as tables, and the checks that read them.

A check takes `Source` records and returns breaches (`path:line: what`), so that the tests can plant
one and see it found. To allow something new, change a table here and say why beside it.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FILE_LINES, FUNCTION_LINES, COLUMNS, OPTIONS = 800, 100, 100, 40

EVERYTHING = ("lehr",)
_base, _ops, _graph = "lehr.base", "lehr.ops", "lehr.compiler.graph"
_loop, _run, _tensor = "lehr.compiler.loop", "lehr.compiler.run", "lehr.tensor"
_user = (_base, _ops, _tensor, "lehr.nn")
_folders = (*_user, "lehr.optim", "lehr.amp", "lehr.utils", "lehr.io")

# Folder -> what it may import besides itself. A name stands for everything below it.
LAYERS: dict[str, tuple[str, ...]] = {
    "lehr.base": (),
    "lehr.ops": (_base,),
    "lehr.compiler.graph": (_base, _ops),
    "lehr.compiler.passes": (_base, _ops, _graph),
    "lehr.compiler.loop": (_base, _ops, _graph),
    "lehr.compiler.emit": (_base, _loop),
    "lehr.compiler.run": (_base,),
    "lehr.tensor": (_base, _ops, _run),
    "lehr.compiler.capture": (_base, _ops, _graph, _tensor),
    "lehr.nn": (_base, _ops, _tensor),
    "lehr.optim": _user,
    "lehr.amp": _user,
    "lehr.utils": _user,
    "lehr.io": _user,
    "lehr.accelerator": _user,
    "lehr.backends": (_base, _tensor, _run),
    "lehr.distributions": _user,
    "lehr.vision": _folders,
    "lehr.distributed": (*_folders, "lehr.vision", _graph, "lehr.compiler.passes", _run),
    "lehr.compiler.compile": EVERYTHING,
    "lehr.compiler.backend": EVERYTHING,
    "lehr.compiler.check": EVERYTHING,
    "lehr.compiler.host": EVERYTHING,
    "lehr.compiler.site": EVERYTHING,
    "lehr.compiler.counters": (_base,),
    **{f"lehr.compiler.{name}": EVERYTHING for name in (
        "audit", "choice", "collector", "custom", "dynamo", "explain", "gradient", "journal",
        "locate", "module", "setting", "stages", "stance", "variant", "weight", "world")},
    "lehr._dynamo": EVERYTHING,
    "lehr._inductor": EVERYTHING,
    "lehr._functorch": EVERYTHING,
    "lehr.cli": EVERYTHING,
    "lehr.compat": EVERYTHING,
    "lehr.export": EVERYTHING,
}
# The lazy re-exports at the paths that PyTorch fixed: they name modules and import none when read.
EXEMPT = ("lehr/__init__.py", "lehr/__main__.py", "lehr/compiler/__init__.py")

# Layers held to these packages; the others may import whatever pyproject.toml declares.
PACKAGES = {"lehr.base": {"numpy", "ml_dtypes"}}
MODULE_OF = {"pillow": "PIL", "cuda-bindings": "cuda", "nvmath-python": "nvmath"}

RIVALS = ("torch", "jax", "tinygrad")
# compat answers for the module torch; the benchmark's cases run each framework in its own process.
RIVALS_ALLOWED = ("lehr/compat/", "lehr/cli/bench/cases/")

VAGUE = {"utils", "util", "common", "misc", "helpers", "helper", "stuff"}
# Paths where PyTorch users look for these names.
VAGUE_ALLOWED = ("lehr/utils/", "lehr/nn/utils", "tests/utils/")

VERSION_NAMES = {"version_info", "hexversion"}
VERSION_FOLDER = "lehr/compiler/capture/"


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the project's root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def sources(*folders: str) -> list[Source]:
    """Every Python file below the folders, in order of path."""
    found = (p for folder in folders for p in sorted((ROOT / folder).rglob("*.py")))
    return [Source(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in found]


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything imported, wherever in the file it stands.

    `from a import b` gives `a.b`, since `b` may be a module. `import_module` and `__import__` of a
    literal count.
    """
    package = source.module.split(".")
    if not source.path.endswith("/__init__.py"):
        package = package[:-1]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def layer(module: str) -> str | None:
    """The longest name in LAYERS that is, or contains, this module."""
    fits = [name for name in LAYERS if module == name or module.startswith(name + ".")]
    return max(fits, key=len, default=None)


def layer_breaches(files: list[Source]) -> list[str]:
    """Imports of lehr's own modules that the table does not allow, and files in no layer."""
    out = []
    for source in files:
        if source.path in EXEMPT:
            continue
        own = layer(source.module)
        if own is None:
            out.append(f"{source.path}:1: in no layer: add its folder to LAYERS")
            continue
        allowed = (own, *LAYERS[own])
        for line, name in imports(source):
            if name.split(".")[0] != "lehr" or "lehr" in allowed:
                continue
            target = layer(name)
            if target not in allowed:
                out.append(f"{source.path}:{line}: {own} may not import {target or name}")
    return out


def declared() -> set[str]:
    """Top-level modules of the packages that pyproject.toml lists, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    names = ["".join(c if c.isalnum() or c in "-_" else " " for c in r).split()[0] for r in lines]
    return {MODULE_OF.get(n, n.replace("-", "_")) for n in names}


def package_breaches(files: list[Source], known: set[str]) -> list[str]:
    """Third-party imports that are undeclared, or that the layer may not use."""
    out = []
    for source in files:
        own = layer(source.module)
        allowed = PACKAGES.get(own or "", known)
        for line, name in imports(source):
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or top in ("lehr", "__future__") or top in RIVALS:
                continue
            if top not in allowed:
                out.append(f"{source.path}:{line}: {own} may not import {top}")
    return out


def rival_breaches(files: list[Source]) -> list[str]:
    """Imports of another framework outside the places that exist to meet one."""
    return [
        f"{source.path}:{line}: imports {name}"
        for source in files
        if not source.path.startswith(RIVALS_ALLOWED)
        for line, name in imports(source)
        if name.split(".")[0] in RIVALS
    ]


def budget_breaches(files: list[Source]) -> list[str]:
    """Files, functions and lines that are too long."""
    out = []
    for source in files:
        lines = source.text.splitlines()
        if len(lines) > FILE_LINES:
            out.append(f"{source.path}:1: {len(lines)} lines, {FILE_LINES} at most")
        for number, text in enumerate(lines, 1):
            if len(text) > COLUMNS:
                out.append(f"{source.path}:{number}: {len(text)} columns, {COLUMNS} at most")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > FUNCTION_LINES:
                    out.append(
                        f"{source.path}:{node.lineno}: {node.name} has {size} lines, "
                        f"{FUNCTION_LINES} at most"
                    )
    return out


def option_breaches(source: Source, name: str = "Options") -> list[str]:
    """An options record with too many fields, or none found at all."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            fields = sum(isinstance(item, ast.AnnAssign) for item in node.body)
            if fields > OPTIONS:
                return [f"{source.path}:{node.lineno}: {fields} options, {OPTIONS} at most"]
            return []
    return [f"{source.path}:1: no class {name}"]


def version_breaches(files: list[Source]) -> list[str]:
    """More than one file that asks which Python runs, or one outside the capture folder."""
    seen: dict[str, int] = {}
    for source in files:
        for node in ast.walk(source.tree):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", None)
            if name in VERSION_NAMES and isinstance(node, ast.Attribute | ast.alias):
                seen.setdefault(source.path, node.lineno)
    home = [path for path in seen if path.startswith(VERSION_FOLDER)][:1]
    return [
        f"{path}:{line}: reads sys.version_info; one file of {VERSION_FOLDER} does that"
        for path, line in seen.items()
        if path not in home
    ]


def name_breaches(files: list[Source]) -> list[str]:
    """Files and folders whose name says nothing."""
    out = []
    for source in files:
        if source.path.startswith(VAGUE_ALLOWED):
            continue
        parts = source.path.removesuffix(".py").split("/")
        vague = [p for p in parts if p in VAGUE or p.rpartition("_")[2] in VAGUE]
        if vague:
            out.append(f"{source.path}:1: {vague[0]} names no concept")
    return out

"""The examples of docs/compile.md print what the page shows."""

import contextlib
import io
import linecache
import pathlib
import re
import sys

import pytest

import lehr as torch
from lehr.base import log, options
from lehr.compiler import setting
from lehr.compiler.stance import STANCES

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "compile.md"
TEXT = PAGE.read_text("utf-8")
# What depends on the machine, or on how well the compiler does.
COUNTS = re.compile(r"[\d.]+(?= (?:s\b|guards?|kernels?|library calls?|bytes|KiB))")
PLURAL = re.compile(r"(guard|kernel|call)s\b")


def examples():
    """(number of its first line, code, what it prints) of each example of the page."""
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TEXT, re.DOTALL)
    return [(code, shown) for code, shown in blocks]


def printed():
    """What the examples print, one after the other in one module."""
    space = {"__name__": "compile"}
    for number, (code, shown) in enumerate(examples(), 1):
        name = f"example{number}.py"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, name, "exec"), space)
        yield number, plain(out.getvalue()), plain(shown)


def plain(text):
    return PLURAL.sub(r"\1", COUNTS.sub("0", text))


def test_examples_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "_default", options.Options().replace(cache_dir=str(tmp_path)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    log.reset()
    for number, have, want in printed():
        assert have == want, f"example {number}"


@pytest.mark.parametrize("name", re.findall(r"^\| `(\w+)\(", TEXT, re.MULTILINE))
def test_names_in_the_tables_are_there(name):
    assert callable(getattr(torch.compiler, name))


def test_settings_and_stances_on_the_page_are_in_the_tables():
    for name in ("recompile_limit", "cache_size_limit", "suppress_errors", "error_on_recompile"):
        assert f"`{name}`" in TEXT and (
            setting.DYNAMO[name].option or setting.DYNAMO[name].act), name
    for name, row in setting.INDUCTOR.items():
        assert (f"`{name}`" in TEXT) == (row.option is not None), name
    for name in set(STANCES) - {"aot_eager_then_compile"}:
        assert f'`"{name}"`' in TEXT

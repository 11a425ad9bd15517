"""Templates are compiled beside a program's own code where there are processors for it."""

from __future__ import annotations

import threading

import pytest

from lehr.compiler.run import target, template

RECORD = {"templates": ["attention", "thin"], "products": []}


@pytest.mark.parametrize("processors", [1, 2])
def test_who_compiles(monkeypatch, processors):
    seen, wait = [], threading.Barrier(3, timeout=60)

    def need(name):
        seen.append((name, threading.current_thread() is threading.main_thread()))
        wait.wait()     # both run while the body does
    monkeypatch.setattr(template, "need", need)
    monkeypatch.setattr(target, "processors", lambda: processors)
    with template.ahead(RECORD):
        if processors > 1:
            wait.wait()
    assert sorted(seen) == ([("attention", False), ("thin", False)] if processors > 1 else [])


def test_what_fails_is_said_where_it_is_needed(monkeypatch):
    def need(name):
        raise RuntimeError(name)
    monkeypatch.setattr(template, "need", need)
    monkeypatch.setattr(target, "processors", lambda: 2)
    with template.ahead(RECORD):
        pass
    with pytest.raises(RuntimeError, match="attention"):
        template.load(RECORD)

"""What compiled functions do when they are called: compile, only use what is there, or nothing.

A stance holds for all threads, from `set_stance` on, or inside it as a context manager or
decorator.
"""

from __future__ import annotations

import threading
from typing import Any

from lehr.tensor.mode import Mode

# Stance -> what a call does that no captured call is valid for; "skip" also leaves those alone.
STANCES = {
    "default": "compile",
    "force_eager": "skip",
    "eager_on_recompile": "eager",
    "fail_on_recompile": "fail",
    "eager_then_compile": "later",
    "aot_eager_then_compile": "later",
}


class Current:
    """The stance in force. `action`: a value of STANCES; `skip`: compiled functions run eagerly."""

    name = "default"
    action = "compile"
    skip = False
    lock = threading.Lock()


CURRENT = Current()


def change(name: str) -> str:
    """Takes a stance; the one before."""
    with CURRENT.lock:
        before = CURRENT.name
        CURRENT.name, CURRENT.action = name, STANCES[name]
        CURRENT.skip = CURRENT.action == "skip"
    return before


class set_stance(Mode):
    """Takes a stance at once; as a context manager or decorator, until its end.

    stance: "default" compiles where needed; "force_eager" ignores `lehr.compile`;
    "eager_on_recompile" uses what is compiled and runs eagerly otherwise; "fail_on_recompile"
    raises there; "eager_then_compile" and "aot_eager_then_compile" run the first call of each
    function eagerly. skip_guard_eval_unsafe: guards are always checked.

    ValueError for another stance; NotImplementedError for `force_backend`, which is an argument of
    `lehr.compile`.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
                 force_backend: Any = None) -> None:
        if stance not in STANCES:
            raise ValueError(f"unknown stance {stance!r}; there are {', '.join(STANCES)}")
        if force_backend is not None:
            raise NotImplementedError("set_stance(force_backend=): name the back end at "
                                      "lehr.compile(backend=)")
        self.stance = stance
        self.before = change(stance)

    def __call__(self, function: Any) -> Any:
        change(self.before)     # a decorator acts inside the function alone
        return super().__call__(function)

    def fresh(self) -> set_stance:
        return set_stance(self.stance)

    def __enter__(self) -> None:
        change(self.stance)

    def __exit__(self, *exc: Any) -> None:
        change(self.before)

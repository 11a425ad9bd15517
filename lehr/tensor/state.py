"""Per-thread modes: gradient recording, inference, autocast, the capture in force."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import numpy as np

# What takes a call off the short way through the dispatcher.
SPECIAL = frozenset(("tracer", "autocast", "inference", "profile"))


class State(threading.local):
    """One thread's modes.

    grad       record operations for backward
    inference  results are inference tensors (no version counter, never recorded)
    tracer     the capture in force: operations go to it instead of being run (None: eager)
    autocast   the autocast policy in force: `run(op, args)` (None: off)
    profile    what times operations: `profile(op, args)` (None: nothing)
    modes      `TorchFunctionMode`s in force, innermost last
    functions  which `__torch_function__`s act: 2 all, 1 those of modes, 0 none
    saved      (pack, unpack) pairs of `saved_tensors_hooks`, innermost last
    no_hooks   why `saved_tensors_hooks` is refused (None: it is not)
    walk       the backward that is running in this thread
    device     where new tensors go when no device is named (None: the CPU)
    anomaly    remember where each node was recorded, and (with `check_nan`) stop at NaN gradients
    special    whether any of SPECIAL is in force
    disabled   compiled functions run eagerly
    unbroken   a graph break is an error
    quiet      a context in which numpy does not report NaN and overflow
    """

    grad = True
    inference = False
    profile: Any = None
    tracer: Any = None
    autocast: Any = None
    device: Any = None
    anomaly = False
    check_nan = True
    special = False
    functions = 2
    modes: tuple[Any, ...] = ()
    saved: tuple[Any, ...] = ()
    disabled = False
    unbroken = False
    no_hooks: str | None = None
    walk: Any = None

    def __init__(self) -> None:
        self.quiet = contextvars.copy_context()
        self.quiet.run(np.seterr, all="ignore")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in SPECIAL:
            super().__setattr__("special", bool(self.tracer is not None or self.autocast is not None
                                                or self.inference or self.profile is not None))


STATE = State()

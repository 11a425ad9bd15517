"""Per-thread modes: gradient recording, inference, autocast, the capture in force."""

from __future__ import annotations

import threading
from typing import Any


class State(threading.local):
    """One thread's modes.

    grad       record operations for backward
    inference  results are inference tensors (no version counter, never recorded)
    tracer     the capture in force: operations go to it instead of being run (None: eager)
    autocast   the autocast policy in force: (op, args) -> args (None: off)
    modes      `TorchFunctionMode`-like interceptors, innermost last
    saved      (pack, unpack) pairs of `saved_tensors_hooks`, innermost last
    device     where new tensors go when no device is named (None: the CPU)
    anomaly    remember where each node was recorded, and stop at NaN gradients
    """

    grad = True
    inference = False
    tracer: Any = None
    autocast: Any = None
    device: Any = None
    anomaly = False

    def __init__(self) -> None:
        self.modes: list[Any] = []
        self.saved: list[Any] = []


STATE = State()

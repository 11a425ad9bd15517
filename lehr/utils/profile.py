"""`torch.profiler`: how often operations ran and how long they took, in microseconds.

Recorded are operations that the program calls (not those they are made of), those of backward
passes, and the regions of `record_function`, in the thread that profiles. A compiled function's
kernels are not told apart: its call is not recorded unless a region is put around it.
"""

from __future__ import annotations

import enum
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from lehr.tensor import dispatch
from lehr.tensor.state import STATE
from lehr.tensor.tensor import Tensor


class ProfilerActivity(enum.Enum):
    """What is recorded: the CPU's work; other devices have none."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a step of a schedule does."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Steps: skip_first are left out, then again and again (`repeat` times, 0: always) `wait` are
    left out, `warmup` are recorded and forgotten, `active` are recorded and handed over."""
    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        cycle = wait + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE
    return action


class Event:
    """One call: name, start and duration in microseconds, shapes of its tensors, what it holds."""

    __slots__ = ("begin", "inner", "is_user", "key", "shapes", "time")

    def __init__(self, key: str, is_user: bool, shapes: Any) -> None:
        self.key, self.is_user, self.shapes = key, is_user, shapes
        self.begin = time.perf_counter_ns() / 1e3
        self.time = self.inner = 0.0

    @property
    def name(self) -> str:
        return self.key

    @property
    def cpu_time_total(self) -> float:
        return self.time

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        return self.time - self.inner

    input_shapes = property(lambda self: self.shapes or [])


class Average:
    """The calls of one name (and shapes): their count and times in microseconds."""

    device_time = device_time_total = self_device_time_total = 0.0
    cuda_time = cuda_time_total = self_cuda_time_total = 0.0

    def __init__(self, key: str, shapes: Any = None) -> None:
        self.key, self.input_shapes = key, shapes or []
        self.count, self.cpu_time_total, self.self_cpu_time_total = 0, 0.0, 0.0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / max(1, self.count)

    def __repr__(self) -> str:
        return (f"<{self.key}: {self.count} calls, {self.cpu_time_total:.1f} us, "
                f"{self.self_cpu_time_total:.1f} us of its own>")


def _duration(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f}{unit}"
    return f"{us:.3f}us"


class Averages(list[Average]):
    """What `key_averages` gives."""

    @property
    def self_cpu_time_total(self) -> float:
        return sum(a.self_cpu_time_total for a in self)

    def total_average(self) -> Average:
        """All of them as one."""
        made = Average("Total")
        for a in self:
            made.count += a.count
            made.cpu_time_total += a.cpu_time_total
            made.self_cpu_time_total += a.self_cpu_time_total
        return made

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None,
              top_level_events_only: bool = False, **options: Any) -> str:
        """As text, the greatest first. ValueError where `sort_by` is no column."""
        rows = list(self)
        if sort_by is not None:
            if rows and not hasattr(rows[0], sort_by):
                raise ValueError(f"cannot sort by {sort_by!r}")
            rows.sort(key=lambda a: getattr(a, sort_by), reverse=True)
        total = self.self_cpu_time_total or 1.0
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg",
                 "# of Calls"]
        cells = [[a.key[:max_name_column_width], f"{a.self_cpu_time_total / total:.2%}",
                  _duration(a.self_cpu_time_total), f"{a.cpu_time_total / total:.2%}",
                  _duration(a.cpu_time_total), _duration(a.cpu_time), str(a.count)]
                 for a in rows[:row_limit if row_limit >= 0 else None]]
        if any(a.input_shapes for a in rows):
            heads.append("Input Shapes")
            for line, a in zip(cells, rows, strict=False):
                line.append(str(a.input_shapes)[:max_shapes_column_width])
        widths = [max(len(r[i]) for r in [heads, *cells]) for i in range(len(heads))]
        rule = "  ".join("-" * w for w in widths)
        lines = [] if header is None else [header]
        lines += [rule, *("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True))
                          for r in [heads])]
        lines += [rule, *("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True))
                          for r in cells), rule]
        return "\n".join([*lines, f"Self CPU time total: {_duration(self.self_cpu_time_total)}\n"])

    def __str__(self) -> str:
        return self.table()


class Recorder:
    """The events of one recording; called by the dispatcher for each operation."""

    def __init__(self, shapes: bool) -> None:
        self.shapes = shapes
        self.events: list[Event] = []
        self.stack: list[Event] = []

    def __call__(self, op: Any, args: tuple[Any, ...]) -> Any:
        shapes = [list(a.shape) if isinstance(a, Tensor) else [] for a in args] \
            if self.shapes else None
        event = self.enter(f"aten::{op.api}", False, shapes)
        STATE.profile = None  # the operations it is made of are its own time
        try:
            return dispatch.call(op, args)
        finally:
            STATE.profile = self
            self.leave(event)

    def enter(self, key: str, is_user: bool, shapes: Any = None) -> Event:
        """A call begins."""
        event = Event(key, is_user, shapes)
        self.events.append(event)
        self.stack.append(event)
        return event

    def leave(self, event: Event) -> None:
        """A call ends."""
        event.time = time.perf_counter_ns() / 1e3 - event.begin
        if event in self.stack:
            del self.stack[self.stack.index(event):]
        if self.stack:
            self.stack[-1].inner += event.time


class record_function:
    """A named region of the program; also a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.opened: list[Any] = []

    def __enter__(self) -> record_function:
        recorder = STATE.profile
        self.opened.append(recorder and (recorder, recorder.enter(self.name, True)))
        return self

    def __exit__(self, *exc: Any) -> None:
        found = self.opened.pop()
        if found:
            found[0].leave(found[1])

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)
        return run


class Recording:
    """What profilers of both APIs share: `events`, `key_averages`, `export_chrome_trace`."""

    record_shapes = False
    recorder: Recorder | None = None

    def _open(self) -> None:
        self.recorder = STATE.profile = Recorder(self.record_shapes)

    def _shut(self) -> None:
        STATE.profile = None

    def events(self) -> list[Event]:
        """Every call in order."""
        return [] if self.recorder is None else self.recorder.events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     **options: Any) -> Averages:
        """Calls by name (and shapes)."""
        found: dict[Any, Average] = {}
        for e in self.events():
            shapes = e.shapes if group_by_input_shape else None
            a = found.setdefault((e.key, str(shapes)), Average(e.key, shapes))
            a.count += 1
            a.cpu_time_total += e.time
            a.self_cpu_time_total += e.self_cpu_time_total
        return Averages(found.values())

    def total_average(self) -> Average:
        """All calls as one."""
        return self.key_averages().total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events for chrome://tracing (Trace Event Format, complete events)."""
        rows = [{"ph": "X", "cat": "user_annotation" if e.is_user else "cpu_op", "name": e.key,
                 "pid": os.getpid(), "tid": 0, "ts": e.begin, "dur": e.time,
                 "args": {"Input Dims": e.shapes} if e.shapes else {}} for e in self.events()]
        with open(path, "w") as file:
            json.dump({"schemaVersion": 1, "traceEvents": rows}, file)


class profile(Recording):
    """Records what runs inside, or (with `step()` after each step) what a schedule says.

    activities      what is recorded: only the CPU has work
    schedule        step number -> ProfilerAction (`schedule(...)`); None: everything
    on_trace_ready  called with the profiler when a recording is complete
    record_shapes   keep the shapes of arguments
    profile_memory, with_stack, with_flops, with_modules are accepted: nothing of theirs is recorded
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, experimental_config: Any = None,
                 execution_trace_observer: Any = None, acc_events: bool = False,
                 use_cuda: bool | None = None, custom_trace_id_callback: Any = None) -> None:
        self.activities = set(activities) if activities else {ProfilerActivity.CPU}
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready, self.record_shapes = on_trace_ready, record_shapes
        self.step_num = 0
        self.current_action = self.schedule(0)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins; RuntimeError where this thread profiles already."""
        if STATE.profile is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        if self.current_action is not ProfilerAction.NONE:
            self._open()

    def stop(self) -> None:
        """Ends, and hands the recording over."""
        running = STATE.profile is not None
        self._shut()
        if running and self.on_trace_ready and self.current_action in (
                ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step of the schedule."""
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._shut()
            if self.on_trace_ready:
                self.on_trace_ready(self)
        active = self.current_action is not ProfilerAction.NONE
        if active and (STATE.profile is None or before is ProfilerAction.WARMUP):
            self._open()
        elif not active:
            self._shut()

    def add_metadata(self, key: str, value: str) -> None:
        """Accepted."""

    add_metadata_json = add_metadata


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None,
                              use_gzip: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each recording to a file in a folder."""
    def handle(p: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        p.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json"))
    return handle


class Older(Recording):
    """`torch.autograd.profiler.profile`: records what runs inside."""

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: Any = None,
                 record_shapes: bool = False, with_flops: bool = False,
                 profile_memory: bool = False, with_stack: bool = False,
                 with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
                 **options: Any) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> Older:
        if self.enabled:
            self._open()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self._shut()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """`key_averages().table(...)`."""
        return self.key_averages().table(sort_by, row_limit, **options)

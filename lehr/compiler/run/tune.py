"""Measuring candidates against each other, and remembering which one won.

Times are process CPU time by default: on a shared machine wall time measures the neighbours.
Candidates take turns within each round, so that a drift of the machine meets them all.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lehr.base import log
from lehr.base.options import Options
from lehr.compiler.run import cache, target

_tell = log.channel("tune")
_HOPELESS = 3.0  # a candidate this many times slower than the best is timed once
_MARGIN = 0.03  # by how much a candidate has to beat the default


class Unfit(Exception):
    """Raised by a candidate that cannot run here; it drops out. Other errors are errors."""


class Timing(NamedTuple):
    """Seconds per call: median and quartiles over rounds; `calls` in all."""

    median: float
    low: float
    high: float
    calls: int


def cpu(body: Callable[[], Any], calls: int) -> float:
    """Seconds of CPU time that `calls` calls take, all threads of this process together."""
    start = time.process_time()
    for _ in range(calls):
        body()
    return time.process_time() - start


def wall(body: Callable[[], Any], calls: int) -> float:
    """Seconds that `calls` calls take."""
    start = time.perf_counter()
    for _ in range(calls):
        body()
    return time.perf_counter() - start


def measure(
    candidates: Mapping[str, Callable[[], Any]],
    repeats: int = 7,
    *,
    timer: Callable[[Callable[[], Any], int], float] = cpu,
    sample: float = 1e-3,
    budget: float = 10.0,
) -> dict[str, Timing]:
    """Seconds per call of each candidate, over `repeats` interleaved rounds.

    A sample repeats a candidate until it takes about `sample` seconds. Rounds end when `budget`
    seconds of wall time are spent, but not before the third. A candidate that raises Unfit is
    absent from the result; one that is three times slower than the best is measured once.
    """
    start = time.perf_counter()
    samples: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    for name, body in candidates.items():
        try:
            timer(body, 1)  # the first call may compile and fill caches
            once = timer(body, 1)
        except Unfit as reason:
            _tell("%s is unfit: %s", name, reason)
            continue
        calls[name] = max(1, min(10_000, int(sample / max(once, 1e-8))))
        samples[name] = [timer(body, calls[name]) / calls[name]]
    best = min((times[0] for times in samples.values()), default=0.0)
    racing = [name for name, times in samples.items() if times[0] <= _HOPELESS * best]
    for turn in range(1, repeats):
        if turn >= 3 and time.perf_counter() - start > budget:
            break
        shift = turn % max(1, len(racing))
        for name in racing[shift:] + racing[:shift]:
            samples[name].append(timer(candidates[name], calls[name]) / calls[name])
    return {name: _timing(times, calls[name]) for name, times in samples.items()}


def _timing(times: list[float], calls: int) -> Timing:
    middle = statistics.median(times)
    cuts = statistics.quantiles(times, n=4) if len(times) > 1 else [middle] * 3
    return Timing(middle, cuts[0], cuts[2], calls * len(times))


def choose(
    candidates: Mapping[str, Callable[[], Any]],
    standard: str,
    parts: Mapping[str, str],
    options: Options | None = None,
    **how: Any,
) -> str:
    """The name of the fastest candidate, measured once and remembered.

    `parts` say what the choice depends on (kernel, shapes, dtypes, device); the processor's model
    and the candidates' names are added. `standard` keeps its place unless another one is at least
    3 % faster. `how` goes to `measure`. Unfit if no candidate can run.
    """
    names = ",".join(candidates)
    key = cache.key("tune", **parts, candidates=names, standard=standard, cpu=target.host().model)
    box = cache.store(options)

    def race() -> bytes:
        times = measure(candidates, **how)
        if not times:
            raise Unfit(f"none of {names} can run here")
        best = min(times, key=lambda name: times[name].median)
        held = times.get(standard)
        if held and times[best].median > (1 - _MARGIN) * held.median:
            best = standard
        medians = {name: timing.median for name, timing in times.items()}
        _tell("%s of %s", best, medians)
        return json.dumps({"choice": best, "seconds": medians}).encode()

    return json.loads(box.get_or_build(key, race))["choice"]

"""What `torch._dynamo` and `torch._inductor` have beside `torch.compiler`."""

from __future__ import annotations

import collections
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from lehr.base import log, options
from lehr.compiler import stance
from lehr.compiler.capture.size import MARKS
from lehr.compiler.compile import CompiledFunction, compile
from lehr.compiler.counters import COUNTERS, stats
from lehr.compiler.module import OptimizedModule
from lehr.tensor.tensor import Tensor


def optimize(backend: Any = "inductor", *, nopython: bool = False, disable: bool = False,
             dynamic: bool | None = None, guard_export_fn: Any = None, guard_fail_fn: Any = None,
             **others: Any) -> Callable[[Any], Any]:
    """A decorator: `lehr.compile` with `fullgraph=nopython`. TypeError for the hooks on guards."""
    given = [n for n, v in (("guard_export_fn", guard_export_fn), ("guard_fail_fn", guard_fail_fn),
                            *others.items()) if v is not None]
    if given:
        raise TypeError(f"optimize() takes no {given[0]}: LEHR_LOG=guards,recompiles tells what it "
                        "would be called with")
    return lambda model: compile(model, backend=backend, fullgraph=nopython, disable=disable,
                                 dynamic=dynamic)


def optimize_assert(backend: Any = "inductor", **given: Any) -> Callable[[Any], Any]:
    """`optimize` where a graph break is an error."""
    return optimize(backend, nopython=True, **given)


def run(fn: Any = None) -> Any:
    """A function in which compiled functions use what is compiled already and nothing is compiled.
    """
    if fn is None:
        return run
    if isinstance(fn, OptimizedModule | CompiledFunction):
        return lambda *args, **kwargs: stance.set_stance("eager_on_recompile")(fn)(*args, **kwargs)
    return stance.set_stance("eager_on_recompile")(fn)


# -- marks of sizes

def mark_dynamic(t: Tensor, index: Any, *, hint_override: int | None = None, min: int | None = None,
                 max: int | None = None, specialize_on: Any = None) -> None:
    """Says that a dimension, or each of several, will change from call to call: its size is a
    symbol from the first capture on (0 and 1 are constants all the same).

    IndexError for a dimension that the tensor does not have, ValueError for a size outside [min,
    max].
    """
    for n in index if isinstance(index, list | tuple) else (index,):
        size = t.shape[check(t, n)]
        if min is not None and size < min or max is not None and size > max:
            raise ValueError(f"dimension {n} has size {size}, outside [{min}, {max}]")
    mark(t, index, True)


def mark_static(t: Any, index: Any = None) -> None:
    """Says that a dimension, each of several, or every one keeps its size: it is a constant of
    every graph. IndexError for a dimension that the tensor does not have.
    """
    if isinstance(t, Tensor):
        mark(t, tuple(range(t.ndim)) if index is None else index, False)


def mark(t: Tensor, index: Any, changes: bool) -> None:
    every = index if isinstance(index, list | tuple) else (index,)
    found = {check(t, n) % t.ndim: changes for n in every}
    setattr(t, MARKS, {**getattr(t, MARKS, {}), **found})


def check(t: Tensor, index: int) -> int:
    if not -t.ndim <= index < t.ndim:
        raise IndexError(f"a tensor of {t.ndim} dimensions has no dimension {index}")
    return index


def maybe_mark_dynamic(t: Tensor, index: Any) -> None:
    """`mark_dynamic` that may be ignored."""
    mark_dynamic(t, index)


def mark_unbacked(t: Tensor, index: Any, **given: Any) -> None:
    """`mark_dynamic` for sizes that no code may look at."""
    mark_dynamic(t, index)


def mark_static_address(t: Tensor, guard: bool = True) -> None:
    """Says that a tensor stays where it is in memory; compiled code finds that out by itself.
    TypeError for what is no tensor.
    """
    if not isinstance(t, Tensor):
        raise TypeError(f"mark_static_address() takes a tensor, not {type(t).__name__}")


def cudagraph_mark_step_begin() -> None:
    """Says that a new step begins, and results of the last one may be overwritten.

    Results of compiled calls are never overwritten here, so that nothing has to happen.
    """


# -- counts

class Counts(dict[str, "collections.Counter[str]"]):
    """`torch._dynamo.utils.counters`: group -> name -> count, of this process, as they are now."""

    def __missing__(self, group: str) -> collections.Counter[str]:
        return collections.Counter()

    def __getitem__(self, group: str) -> collections.Counter[str]:
        now = stats()
        return collections.Counter({name: now[key] for name, key in GROUPS.get(group, {}).items()})

    def clear(self) -> None:
        COUNTERS.reset()


GROUPS: dict[str, dict[str, str]] = {
    "stats": {"calls_captured": "ops_captured", "unique_graphs": "graphs"},
    "frames": {"total": "captures", "ok": "graphs"},
    "graph_break": {"all": "breaks"},
    "inductor": {"kernels": "kernels", "extern_calls": "externs"},
    "recompiles": {"all": "recompiles"},
}
counters = Counts({group: collections.Counter() for group in GROUPS})


def clone_inputs(given: Any) -> Any:
    """Copies of the tensors of a list, tuple or dictionary that keep `requires_grad`."""
    if isinstance(given, dict):
        return {k: clone_inputs(v) for k, v in given.items()}
    if isinstance(given, list | tuple):
        return [clone_inputs(v) for v in given]
    if isinstance(given, Tensor):
        return given.detach().clone().requires_grad_(given.requires_grad)
    return given


@contextlib.contextmanager
def fresh_cache(cache_entries: Any = None, dir: str | None = None, delete: bool = True
                ) -> Iterator[None]:
    """An empty cache of compiled code inside, in a temporary folder (under `dir`)."""
    before = options.default()
    if delete:
        with tempfile.TemporaryDirectory(dir=dir, ignore_cleanup_errors=True) as folder:
            yield from inside(before, folder)
    else:
        yield from inside(before, tempfile.mkdtemp(dir=dir))


def inside(before: options.Options, folder: str) -> Iterator[None]:
    options.set_default(before.replace(cache_dir=os.path.join(folder, "lehr")))
    try:
        yield
    finally:
        options.set_default(options.default().replace(cache_dir=before.cache_dir))


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """What the compiler did in this process: a text, or (names, values) for another `repr`."""
    now = stats()
    if repr != "str":
        return list(now), [str(v) for v in now.values()]
    return "\n".join(f"{name}: {n}" for name, n in now.items())


def reset() -> None:
    """`lehr.compiler.reset`, and warnings that were given once may be given again."""
    from lehr.compiler.compile import reset as forget
    forget()
    log.reset()

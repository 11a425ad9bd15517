"""Which library does which matrix product and convolution of a program.

`library="openblas"`: all is done by lehr's own code and OpenBLAS. `library="onednn"`: oneDNN does
what it can. Under `mode="max-autotune"`, where the extra is installed, both do each call of known
sizes in turn, and the faster one is taken and remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lehr.base.options import Options
from lehr.compiler.emit import c, convolution, onednn
from lehr.compiler.loop.ir import Buffer, Extern, Operand, Program
from lehr.compiler.loop.text import row_major
from lehr.compiler.run import executable, memory, pool, target, tune
from lehr.compiler.run import onednn as library

# What bfloat16 needs of a processor in oneDNN.
HALF = frozenset("avx512f avx512bw avx512vl avx512dq".split())


def of(program: Program, options: Options) -> onednn.Choice:
    """Whether oneDNN does a call of the program. `library.Missing` where it is asked for and not
    installed."""
    half = target.host().features >= HALF
    if options.library == "onednn":
        library.load()
        return lambda e: onednn.supported(e, half)
    if not (options.mode.startswith("max-autotune") and library.find()):
        return onednn.never
    found = {e.name: raced(e, options) for e in program.steps
             if isinstance(e, Extern) and onednn.supported(e, half)}
    return lambda e: found.get(e.name, False)


def raced(e: Extern, options: Options) -> bool:
    """Whether oneDNN is the faster one for a call alone; False for sizes that are not known."""
    alone = single(e)
    if alone is None:
        return False
    text = repr([(o.buffer.dtype.name, o.dtype.name, o.shape, o.strides)
                 for o in (*e.inputs, e.output)])
    candidates = {name: runner(alone, other, options) for name, other in
                  (("openblas", onednn.never), ("onednn", lambda _: True))}
    attrs = repr([a if isinstance(a, int | float | bool | tuple) else str(a) for a in e.attrs])
    parts = {"op": e.op.name, "operands": text, "attrs": attrs, "onednn": library.version(),
             "threads": str(pool.get_num_threads())}
    timer = tune.cpu if pool.get_num_threads() == 1 else tune.wall
    return tune.choose(candidates, "openblas", parts, options, timer=timer) == "onednn"


def single(e: Extern) -> Program | None:
    """A program of one call, without what follows it."""
    def alone(o: Operand, name: str, role: str) -> tuple[Buffer, Operand]:
        span = 1 + sum((n - 1) * s for n, s in zip(o.shape, o.strides, strict=True))
        made = Buffer(name, o.buffer.dtype, (span,), (1,), role)
        return made, o._replace(buffer=made, offset=0)
    numbers = [x for o in (*e.inputs, e.output) for x in (*o.shape, *o.strides)]
    if not all(isinstance(x, int) for x in numbers):
        return None
    shape = tuple(e.output.shape)
    images = convolution.supported(e) and e.op.name == "convolution"
    strides = e.output.strides if images else row_major(shape)
    out = Buffer("out", e.output.buffer.dtype, shape, tuple(strides), "output")
    pairs = [alone(o, f"x{n}", "param") for n, o in enumerate(e.inputs)]
    call = e._replace(inputs=tuple(o for _, o in pairs), epilogue=(), axes=(), binds=(),
                      output=Operand(out, 0, shape, tuple(strides)))
    return Program("race", tuple(b for b, _ in pairs), (out,), (call,), (out,))


def runner(program: Program, other: onednn.Choice, options: Options) -> Callable[[], Any]:
    """Calls a program on numbers of its own. It is built at the first call: a race that was run
    before needs none."""
    @functools.cache
    def made() -> tuple[Any, list[Any]]:
        code = c.emit(program, None, pool.header(), other=other)
        built = executable.build(code.sources, code.record, options=options, flags=c.FLAGS)
        random = np.random.default_rng(0)
        held = [random.standard_normal(b.shape[0]).astype(b.dtype.np) for b in program.params]
        return built, held

    def call() -> None:
        built, held = made()
        for buffer in built([a.ctypes.data for a in held]):
            memory.host.release(buffer)
    return call

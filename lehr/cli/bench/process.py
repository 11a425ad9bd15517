"""The parent's side of a worker: start it, ask it, give up on it, and weigh a whole start."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
PATIENCE = 60  # seconds for a worker to end by itself


@dataclass(frozen=True)
class Framework:
    """How to run one framework: its module, the cases it runs, its modes, and its cache's place."""

    name: str
    cases: str
    modes: tuple[str, ...]
    caches: tuple[str, ...]  # environment variables that move its compile cache

    def installed(self) -> bool:
        return find_spec(self.name) is not None


FRAMEWORKS = {
    row.name: row
    for row in (
        Framework("lehr", "pytorch", ("eager", "compiled"), ("LEHR_CACHE_DIR",)),
        Framework(
            "torch",
            "pytorch",
            ("eager", "compiled"),
            ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"),
        ),
        Framework("jax", "jax", ("compiled",), ("JAX_COMPILATION_CACHE_DIR",)),
        Framework("tinygrad", "tinygrad", ("compiled",), ("XDG_CACHE_HOME",)),
    )
}

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "LEHR_THREADS",
    "NUM_CPU_THREADS",
)
# Every framework on the processor, whatever else the machine has.
PLACE = {"JAX_PLATFORMS": "cpu", "DEV": "CPU"}


class Failure(Exception):
    """A worker that could not do what it was asked; the text says why."""


class Client:
    """A worker process. `cache` is a folder for whatever it compiles."""

    def __init__(self, framework: Framework, threads: int, cache: Path, timeout: float) -> None:
        self.framework, self.timeout = framework, timeout
        environment = dict(os.environ, **PLACE)
        # Installed packages have bytecode beside them; a checkout keeps it from its first run.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment |= dict.fromkeys(THREADS, str(threads))
        environment |= {name: str(cache / name.lower()) for name in framework.caches}
        self.errors = tempfile.TemporaryFile()
        self.began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), framework.name, framework.cases, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin and process.stdout
        self.process, self.orders, self.answers = process, process.stdin, process.stdout
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.answers, selectors.EVENT_READ)
        self.buffer = b""

    def ask(self, do: str, **arguments) -> dict:
        """Send one command and give its answer. Raises Failure on an error, a death or a delay."""
        try:
            self.orders.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self.orders.flush()
        except BrokenPipeError:
            raise Failure(self.death()) from None
        answer = json.loads(self.line())
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def line(self) -> bytes:
        end = time.monotonic() + self.timeout
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0.0, end - time.monotonic())):
                self.kill()
                raise Failure(f"no answer within {self.timeout:g} s")
            part = os.read(self.answers.fileno(), 1 << 16)
            if not part:
                raise Failure(self.death())
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def death(self) -> str:
        """Why the worker is gone: its exit code and the last line that it wrote."""
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"worker ended with code {code}: {''.join(last) or 'no message'}"

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """End the worker and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> float:
        """Let the worker end; gives the processor seconds of it and of all that it waited for.

        Raises Failure where it does not end.
        """
        self.orders.close()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_utime + usage.ru_stime
            time.sleep(0.01)
        self.kill()
        raise Failure(f"worker did not end within {PATIENCE} s")

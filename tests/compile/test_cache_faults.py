"""`lehr.compile` over a cache that is damaged, full, contended or left by a killed process.

Whatever happens to the folder, results are right, at most one warning says what happened, and the
next process finds everything in order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lehr
from lehr.base import log, options
from lehr.compiler.run import cache, toolchain

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(toolchain.find(options.default()) is None, reason="no C compiler")


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The process's cache, a fresh folder; errors are not raised but warned of."""
    made = options.default().replace(cache_dir=str(tmp_path / "cache"), strict=False)
    monkeypatch.setattr(options, "_default", made)
    log.reset()
    yield tmp_path / "cache"
    cache._open.cache_clear()
    log.reset()


def step(x: Any, w: Any) -> Any:
    return (x @ w).softmax(-1) * x.sum()


def train() -> list[Any]:
    """What a fresh compiled function gives, forward and backward."""
    lehr.manual_seed(1)
    x, w = lehr.randn(4, 5), lehr.randn(5, 3).requires_grad_()
    made = lehr.compile(step, fullgraph=True)(x, w)
    made[:, 0].sum().backward()
    return [made.tolist(), w.grad.tolist()]


def expected() -> list[Any]:
    lehr.manual_seed(1)
    x, w = lehr.randn(4, 5), lehr.randn(5, 3).requires_grad_()
    made = step(x, w)
    made[:, 0].sum().backward()
    return [made.tolist(), w.grad.tolist()]


def right(found: list[Any]) -> None:
    for have, want in zip(found, expected(), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entries(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.rglob("*.entry"))


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "empty": lambda own, other: b"",
    "cut": lambda own, other: own[:len(own) // 2],
    "a byte changed": lambda own, other: own[:-100] + bytes([own[-100] ^ 1]) + own[-99:],
    "another entry": lambda own, other: other,
    "no entry at all": lambda own, other: b"\x7fELF" + bytes(200),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_damaged_entries_are_made_again(folder: pathlib.Path, fault: str) -> None:
    with silence():
        right(train())
    files = entries(folder)
    sound = [f.read_bytes() for f in files]
    assert len(files) >= 4      # the programs and the machine code of forward and backward
    for n, file in enumerate(files):
        file.write_bytes(DAMAGE[fault](sound[n], sound[n - 1]))
    with pytest.warns(log.LehrWarning, match="is damaged.*made again") as seen:
        right(train())
    named = [str(w.message) for w in seen]
    assert len(named) == len(set(named)) <= len(files)
    with silence():             # they are sound again
        before = cache.store().counts["built"]
        right(train())
        assert cache.store().counts["built"] == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_nothing(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                   code: int) -> None:
    write = cache.Cache._write

    def full(self: Any, *args: Any) -> None:
        if self.folder == str(folder):
            raise OSError(code, os.strerror(code))
        write(self, *args)

    monkeypatch.setattr(cache.Cache, "_write", full)
    with pytest.warns(log.LehrWarning, match="cannot be written") as seen:
        right(train())
        right(train())
    assert len(seen) == 1 and not entries(folder)


def test_a_disk_that_fills_up_makes_room(folder: pathlib.Path,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Old entries go; nothing is said, since nothing is lost."""
    with silence():
        lehr.compile(lambda x: x.exp())(lehr.zeros(3))
        old = entries(folder)
        write, refused = cache.Cache._write, []

        def tight(self: Any, *args: Any) -> None:
            if not refused:
                refused.append(True)
                raise OSError(errno.ENOSPC, "No space left on device")
            write(self, *args)

        monkeypatch.setattr(cache.Cache, "_write", tight)
        right(train())
    assert refused and not all(f.exists() for f in old)


def test_a_small_disk(tmp_path: pathlib.Path, folder: pathlib.Path,
                      monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system of 16 KiB, where one may be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", place], capture_output=True,
        check=False).returncode == 0
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    try:
        made = options.default().replace(cache_dir=str(place))
        monkeypatch.setattr(options, "_default", made)
        with pytest.warns(log.LehrWarning, match="cannot be written") as seen:
            right(train())
            right(train())
        assert len(seen) == 1
    finally:
        subprocess.run(["umount", place], check=True)


# -- other processes

CHILD = """
import json, sys, lehr
from lehr.compiler.run import cache
from tests.compile.test_cache_faults import train
print("ready", flush=True)
sys.stdin.readline()
found = train()
print(json.dumps([found, dict(cache.store().counts)]), flush=True)
"""


@pytest.fixture
def start(folder: pathlib.Path) -> Iterator[Callable[[], Any]]:
    """Starts a process that trains once it gets a line, on the folder of this test."""
    running: list[Any] = []

    def make() -> Any:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "LEHR_CACHE_DIR": str(folder)}
        env.pop("LEHR_STRICT", None)
        child = subprocess.Popen([sys.executable, "-c", CHILD], env=env, text=True, cwd=ROOT,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        running.append(child)
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        return child

    yield make
    for child in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def answer(child: Any) -> tuple[list[Any], dict[str, int]]:
    """What a process that was let go found, and its cache's counts; it has said nothing else."""
    import json
    out, said = child.communicate(timeout=120)
    assert child.returncode == 0 and said == "", said
    found, counts = json.loads(out)
    return found, counts


def go(child: Any) -> None:
    child.stdin.write("go\n")
    child.stdin.flush()


def test_two_processes_compile_the_same_at_once(folder: pathlib.Path,
                                                start: Callable[[], Any]) -> None:
    pair = [start(), start()]
    for child in pair:
        go(child)
    answers = [answer(child) for child in pair]
    for found, _ in answers:
        right(found)
    built = [counts.get("built", 0) for _, counts in answers]
    alone = start()
    go(alone)
    found, counts = answer(alone)
    right(found)
    assert counts.get("built", 0) == 0
    assert sum(built) == len(entries(folder))   # nothing was made twice


def test_a_killed_compilation_leaves_nothing_behind(folder: pathlib.Path,
                                                    start: Callable[[], Any]) -> None:
    killed = start()
    go(killed)
    limit = time.time() + 60
    while not list(folder.rglob("locks/*")) and time.time() < limit:
        time.sleep(0.002)       # until it holds the lock of something that it makes
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    for run in ("after", "warm"):
        child = start()
        go(child)
        found, counts = answer(child)
        right(found)
        assert counts.get("damaged", 0) == 0 and (counts.get("built", 0) == 0) == (run == "warm")

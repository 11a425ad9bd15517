"""Fixtures of the run tests: options of one test, child processes that see this package."""

import os
import pathlib
import subprocess
import sys

import pytest

from lehr.base import log, options
from lehr.base.options import Options

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def use(tmp_path):
    """Sets this process's options for one test; the cache is a fresh folder."""

    def set_options(**changes):
        changes = {"cache_dir": str(tmp_path / "cache"), **changes}
        options.set_default(Options().replace(**changes))
        log.reset()
        return options.default()

    set_options()
    yield set_options
    options.set_default(None)
    log.reset()


@pytest.fixture
def child():
    """Starts Python on a program text, in a process of its own; `env` adds variables."""
    started = []

    def start(program, *args, **env):
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, args)],
            env={**os.environ, "PYTHONPATH": path, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()

"""`lehr info`: what lehr finds on this machine, what it lacks, and what to do about it."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from lehr.base.options import FIELDS, Options, env_name
from lehr.cli import release
from lehr.compiler.run import blas, cache, onednn, target, toolchain

NEEDED = ("numpy", "ml_dtypes", "safetensors", "filelock", "scipy-openblas32", "pillow")
FOR_CUDA = ("triton", "cuda-bindings", "nvmath-python")
PROBE = "int lehr_probe(void) { return 7; }\n"


@dataclass(frozen=True)
class Finding:
    """One line of the report. `remedy` is set where something is lacking."""

    topic: str
    text: str
    remedy: str = ""


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def python() -> Iterator[Finding]:
    yield Finding("python", f"{platform.python_version()}, {sys.executable}")
    yield Finding("lehr", f"{release()}, {Path(__file__).resolve().parents[1]}")


def packages() -> Iterator[Finding]:
    found = {name: installed(name) for name in NEEDED}
    text = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    missing = [name for name, number in found.items() if not number]
    yield Finding("packages", text, f"pip install {' '.join(missing)}" if missing else "")


def processor() -> Iterator[Finding]:
    host = target.host()
    width = f"{host.vector_bits}-bit vectors" if host.vector_bits else "vector width unknown"
    yield Finding(
        "processor", f"{host.model or host.arch}, {width}, {target.processors()} usable at once"
    )


def compiler() -> Iterator[Finding]:
    """The C compiler, tried on a function of one line."""
    remedy = "install a C compiler (cc, gcc or clang), or: pip install 'lehr[zig]'"
    try:
        found = toolchain.find()
        if found is None:
            yield Finding("compiler", "none found: programs run eagerly", remedy)
            return
        begin = time.perf_counter()
        toolchain.compile([PROBE], "probe")
    except toolchain.CompileError as error:
        yield Finding("compiler", str(error), remedy)
        return
    seconds = time.perf_counter() - begin
    yield Finding("compiler", f"{identity(found.argv)}; a one-line function took {seconds:.2f} s")


def identity(argv: tuple[str, ...]) -> str:
    """The compiler's command and the first line of its version text."""
    name = " ".join(argv)
    done = subprocess.run([*argv, "--version"], capture_output=True, text=True, timeout=60)
    first = (done.stdout or done.stderr).strip().partition("\n")[0]
    return f"{name} ({first})" if first else name


def library() -> Iterator[Finding]:
    found = blas.blas()
    if found is None:
        remedy = "pip install scipy-openblas32"
        yield Finding("BLAS", "none: matrix products run in numpy, one call each", remedy)
        return
    yield Finding("BLAS", f"{found.config.strip()}, {found.path}")


def other() -> Iterator[Finding]:
    """oneDNN, loaded where it is installed."""
    if not onednn.find():
        yield Finding("oneDNN", "not installed, and not needed (pip install 'lehr[onednn]')")
        return
    try:
        found = onednn.load()
    except onednn.Missing as error:
        yield Finding("oneDNN", str(error), "pip uninstall onednn-cpu-gomp")
        return
    yield Finding("oneDNN", f"{found.version}, {found.path}; LEHR_LIBRARY=onednn chooses it")


def gpu() -> Iterator[Finding]:
    """The NVIDIA driver, its devices, and the packages that lehr reaches them with."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding("GPU", "not used: this machine has no NVIDIA driver (libcuda.so.1)")
        return
    count, code = ctypes.c_int(), driver.cuInit(0)
    code = code or driver.cuDeviceGetCount(ctypes.byref(count))
    if code or not count.value:
        text = f"error {code}" if code else "no device"
        yield Finding("GPU", f"not used: the NVIDIA driver reports {text}", "see nvidia-smi")
        return
    for number in range(count.value):
        yield Finding("GPU", device(driver, number))
    missing = [name for name in FOR_CUDA if not installed(name)]
    if missing:
        text = f"not used: {', '.join(missing)} not installed"
        yield Finding("GPU", text, "pip install 'lehr[cuda]'")


def device(driver: ctypes.CDLL, number: int) -> str:
    """Name, memory and compute capability of a CUDA device."""
    handle, size, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(handle), number)
    driver.cuDeviceGetName(name, len(name), handle)
    driver.cuDeviceTotalMem_v2(ctypes.byref(size), handle)
    capability = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        capability.append(str(value.value))
    return f"{name.value.decode()}, {size.value / 1e9:.0f} GB, capability {'.'.join(capability)}"


def storage() -> Iterator[Finding]:
    found = cache.info()
    text = f"{found['folder']}: {found['entries']:,} entries, {found['bytes'] / 1e6:,.1f} MB"
    above = Path(found["folder"])
    while not above.exists():
        above = above.parent
    fine = os.access(above, os.W_OK | os.X_OK)
    remedy = "" if fine else "not writable: point LEHR_CACHE_DIR at a folder that is"
    yield Finding("cache", text, remedy)


def options() -> Iterator[Finding]:
    known = Options.from_env()
    changed = [env_name(name) for name in FIELDS if getattr(known, name) != FIELDS[name].default]
    yield Finding("options", ", ".join(f"{n}={os.environ[n]}" for n in changed) or "all default")


PROBES = (python, packages, processor, compiler, library, other, gpu, storage, options)


def findings() -> Iterator[Finding]:
    """Every finding, in the order of PROBES; a probe that fails is a finding itself."""
    for probe in PROBES:
        try:
            yield from probe()
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            yield Finding(probe.__name__, f"{type(error).__name__}: {error}", "see the error")


@click.command("info")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show what lehr finds on this machine, what it lacks, and what to do about it."""
    found = list(findings())
    if as_json:
        click.echo(json.dumps([vars(finding) for finding in found], indent=1))
        return
    for finding in found:
        click.echo(f"{finding.topic:<10} {finding.text}")
        if finding.remedy:
            click.echo(f"{'':<10} {click.style('to do: ' + finding.remedy, 'yellow')}")

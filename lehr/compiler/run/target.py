"""The machine that generated code runs on: instruction sets and the processors one may use.

Read from the kernel's own files, without launching anything. A machine whose instruction sets
cannot be read gets portable code.
"""

from __future__ import annotations

import functools
import math
import os
import pathlib
from dataclasses import dataclass

# What a compiler may use unasked under -march=native, as /proc/cpuinfo spells it.
_FAMILIES = ("avx", "amx", "sse", "ssse", "bmi", "fma")
_SINGLE = frozenset(
    "pni popcnt movbe aes pclmulqdq f16c xop abm adx sha_ni gfni vaes vpclmulqdq cx16".split()
)
# Processors that run 512-bit vectors without slowing their clock: Ice Lake, Zen 4 and later.
_WIDE = "avx512_vbmi2"


@dataclass(frozen=True, slots=True)
class Target:
    """`arch` as uname says it, `features` (empty where unknown), `model` for people."""

    arch: str
    features: frozenset[str]
    model: str

    @property
    def vector_bits(self) -> int:
        """The widest vector that pays, 0 where unknown."""
        table = {_WIDE: 512, "avx2": 256, "pni": 128, "asimd": 128}
        return next((bits for name, bits in table.items() if name in self.features), 0)

    def text(self) -> str:
        """The part of a cache key: code made for it runs wherever this text is the same."""
        return f"{self.arch} {' '.join(sorted(self.features)) or 'portable'}"

    def runs(self, text: str) -> bool:
        """Whether this machine can run code made for the target that `text` names."""
        arch, *features = text.split()
        return arch == self.arch and (features == ["portable"] or self.features >= set(features))


def parse(cpuinfo: str, arch: str) -> Target:
    """The target that the first processor of a /proc/cpuinfo text describes."""
    first = cpuinfo.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    row = {name.strip(): value.strip() for name, _, value in pairs}
    words = row.get("flags", row.get("Features", "")).split()
    keep = "flags" not in row  # other processors list few features: all count
    features = {w for w in words if keep or w in _SINGLE or w.startswith(_FAMILIES)}
    model = row.get("model name") or " ".join(
        row[k] for k in ("CPU implementer", "CPU part", "Processor") if k in row
    )
    return Target(arch, frozenset(features), model or arch)


@functools.cache
def host() -> Target:
    """This machine."""
    arch = os.uname().machine
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines: list[str] = []
            for line in file:  # one processor is enough; the file of a big machine is slow to read
                if not line.strip() and lines:
                    break
                lines.append(line)
    except OSError:
        return Target(arch, frozenset(), arch)
    return parse("".join(lines), arch)


def _quota() -> float | None:
    """The processors' worth of time that a container's limit leaves, None where unlimited."""
    sources = (
        ("/sys/fs/cgroup/cpu.max",),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    )
    for paths in sources:
        try:
            words = " ".join(pathlib.Path(path).read_text() for path in paths).split()
        except OSError:
            continue
        if len(words) == 2 and words[0] not in ("max", "-1"):
            return int(words[0]) / int(words[1])
    return None


def processors() -> int:
    """How many processors this process may use at once: its affinity, cut by a container limit."""
    allowed = getattr(os, "sched_getaffinity", None)
    count = len(allowed(0)) if allowed else os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, math.ceil(quota)))

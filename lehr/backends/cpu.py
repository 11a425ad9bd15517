"""The processor's vector unit."""

from __future__ import annotations

from lehr.compiler.run.target import host

_NAMES = {512: "AVX512", 256: "AVX2"}


def get_cpu_capability() -> str:
    """"AVX512", "AVX2" or "DEFAULT"."""
    return _NAMES.get(host().vector_bits, "DEFAULT")

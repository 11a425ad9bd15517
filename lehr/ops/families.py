"""The modules that declare ops. Importing this one fills the registry."""

from __future__ import annotations

import importlib

FAMILIES = (
    "core",
    "arithmetic",
    "convert",
    "create",
    "select",
    "compare",
    "bitwise",
    "view",
    "slice",
    "arrange",
    "pad",
    "join",
    "index",
    "scatter",
    "assign",
    "masked",
    "sort",
    "dynamic",
    "bag",
    "exponential",
    "trigonometry",
    "rounding",
    "special",
    "activation",
    "contract",
    "einsum",
    "patch",
    "conv",
    "norm",
    "random",
    "attention",
    "pool",
    "resize",
    "loss",
    "distance",
    "classify",
    "linalg",
    "factor",
    "lu",
    "spectral",
    "reduce",
    "statistic",
    "softmax",
    "scan",
    "complex",
    "window",
    "polynomial",
    "optimize",
)

for _name in FAMILIES:
    importlib.import_module(f"lehr.ops.{_name}")

"""Importing every family costs no parsing: signatures are read when they are first used."""

from __future__ import annotations

import subprocess
import sys

COLD = """
import ast
parse = ast.parse
count = [0]
def counted(*args, **kwargs):
    count[0] += 1
    return parse(*args, **kwargs)
import numpy, ml_dtypes
ast.parse = counted
from lehr.ops import families, registry
made = registry.OPS["softplus"]
assert count[0] == 0, f"{count[0]} signatures were parsed at import"
assert [p.name for p in made.params] == ["input", "beta", "threshold"] and count[0] == 1
print(len(registry.OPS))
"""


def test_import_parses_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300

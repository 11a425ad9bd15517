"""Every phrase of the wider grammar fits some program: one that never does is never tried."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

import lehr
from tests.compile import grammar, handling, idioms

TABLES = {name: table for module in (idioms, handling) for name, table in vars(module).items()
          if name.isupper() and isinstance(table, list)}
TRIES = 40


def fits(template: str, seed: int) -> str:
    """Empty where the phrase runs among the arguments of a program; else what it raises."""
    writer = grammar.Writer(seed, True, True, True)
    writer.trains = "box." in template
    lehr.manual_seed(seed)
    lehr.set_grad_enabled(True)
    try:
        text = "\n".join("    " + line for line in writer.inputs())
        exec("def inputs(v):\n" + text, writer.space)
        names = "a, b, c, xs, names, box, flag, n".split(", ")
        writer.env = dict(zip(names, writer.space["inputs"](0), strict=True))
        phrase = writer.fill(template.replace("{t}", "t1").replace("{u}", "u2"))
        exec(phrase, {**writer.space, **writer.env})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("table", TABLES)
def test_every_phrase_fits(table: str) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), np.errstate(
            all="ignore"):
        warnings.simplefilter("ignore")
        for template in TABLES[table]:
            raised = [fits(template, 0)]
            while raised[-1] and len(raised) < TRIES:
                raised.append(fits(template, len(raised)))
            assert raised[-1] == "", (template, raised[-1])

"""Every phrase of the wider grammar fits some program: one that never does is never tried."""

from __future__ import annotations

import pytest

from tests.compile import assigned, grammar, handling, idioms

TABLES = {name: table for module in (idioms, handling, assigned)
          for name, table in vars(module).items() if name.isupper() and isinstance(table, list)}
TRIES = 40


def fits(template: str, seed: int) -> bool:
    """Whether the phrase runs among the arguments of a program."""
    try:
        return bool(grammar.alone(template, seed))
    except grammar.Rejected:
        return False


@pytest.mark.parametrize("table", TABLES)
def test_every_phrase_fits(table: str) -> None:
    for template in TABLES[table]:
        assert any(fits(template, seed) for seed in range(TRIES)), template

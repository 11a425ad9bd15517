"""docs/breaks.md says what the registry says."""

import pathlib

from lehr.compiler.capture import breaks

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "breaks.md"


def test_the_page_is_that_of_the_registry():
    assert PAGE.read_text() == breaks.page(), "write breaks.page() to docs/breaks.md"


def test_every_code_has_its_section():
    text = PAGE.read_text()
    for row in breaks.REGISTRY.values():
        assert f"## {row.code}\n" in text and f"What to do: {row.hint}\n" in text

"""`lehr info` and `lehr cache`."""

import json

import pytest
from click.testing import CliRunner

from lehr.base import options
from lehr.cli import main
from lehr.cli.info import PROBES, findings
from lehr.compiler.run import cache


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache of its own, and options read again from the environment."""
    monkeypatch.setenv("LEHR_CACHE_DIR", str(tmp_path / "cache"))
    options.set_default(None)
    yield tmp_path
    options.set_default(None)


def lehr(*words):
    return CliRunner().invoke(main, words)


def test_info_covers_every_topic():
    shown = lehr("info", "--json")
    assert shown.exit_code == 0
    topics = {row["topic"] for row in json.loads(shown.output)}
    assert {"python", "lehr", "packages", "processor", "compiler", "BLAS", "GPU"} <= topics
    assert {"cache", "options"} <= topics


def test_info_names_the_remedy_for_a_missing_compiler(monkeypatch):
    monkeypatch.setenv("LEHR_CC", "no-such-compiler")
    options.set_default(None)
    (row,) = [f for f in findings() if f.topic == "compiler"]
    assert "no-such-compiler" in row.text and "install" in row.remedy
    assert "LEHR_CC=no-such-compiler" in lehr("info").output


def test_info_survives_a_broken_probe(monkeypatch):
    def broken():
        raise OSError("no such thing")
        yield

    monkeypatch.setattr("lehr.cli.info.PROBES", (broken, *PROBES[:1]))
    found = list(findings())
    assert "no such thing" in found[0].text and found[1].topic == "python"


def test_cache_travels(place):
    store = cache.store()
    for number in range(3):
        store.put(cache.key("object", number=str(number)), b"x" * 100)
    assert "entries  3" in lehr("cache", "info").output
    packed = place / "all.tar"
    assert "3 entries written" in lehr("cache", "pack", str(packed)).output
    assert "3 entries removed" in lehr("cache", "clear").output
    assert "entries  0" in lehr("cache", "info").output
    assert "3 entries added" in lehr("cache", "unpack", str(packed)).output
    assert store.get(cache.key("object", number="1")) == b"x" * 100


def test_unpack_of_something_else_says_so(place):
    (place / "odd").write_text("nothing")
    shown = lehr("cache", "unpack", str(place / "odd"))
    assert shown.exit_code == 1 and "not a packed cache" in shown.output

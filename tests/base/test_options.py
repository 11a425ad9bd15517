"""Options: parsing from the environment and from keywords, errors, the cache key, the budget."""

import dataclasses
import warnings

import pytest

from lehr.base import options
from lehr.base.options import FIELDS, OptionError, Options


def test_defaults_are_hashable_and_frozen():
    assert hash(Options()) == hash(Options())
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().mode = "max-autotune"


def test_at_most_forty_fields_each_with_a_meaning():
    assert len(FIELDS) <= 40
    for row in options.describe():
        assert row["doc"] and row["accepts"] and row["env"].startswith("LEHR_")


def test_every_default_passes_its_own_parser():
    for name, field in FIELDS.items():
        assert getattr(Options().replace(**{name: field.default}), name) == field.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("strict", "1", True),
        ("strict", "Off", False),
        ("strict", "", False),
        ("dynamic", "auto", None),
        ("dynamic", "true", True),
        ("cache_size", "1.5 GiB", 3 << 29),
        ("cache_size", "64M", 64 << 20),
        ("cache_size", "2gb", 2 << 30),
        ("activation_memory_budget", "0.5", 0.5),
        ("activation_memory_budget", "0", 0.0),
        ("threads", "3", 3),
        ("mode", "max-autotune", "max-autotune"),
        ("cc", "ccache gcc", "ccache gcc"),
    ],
)
def test_from_env(name, text, value):
    assert getattr(Options.from_env({options.env_name(name): text}), name) == value


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("strict", "maybe"),
        ("strict", 2),
        ("threads", "-1"),
        ("threads", 1.5),
        ("threads", True),
        ("optimize", 4),
        ("mode", "fast"),
        ("cache_size", "4 apples"),
        ("cache_size", []),
        ("activation_memory_budget", 1.5),
        ("activation_memory_budget", "nan"),
        ("cc", 3),
    ],
)
def test_a_bad_value_names_option_value_and_what_is_accepted(name, bad):
    with pytest.raises(OptionError) as error:
        Options().replace(**{name: bad})
    text = str(error.value)
    assert name in text and repr(bad) in text and FIELDS[name].metadata["kind"].accepts in text
    if isinstance(bad, str):
        with pytest.raises(OptionError, match=options.env_name(name)):
            Options.from_env({options.env_name(name): bad})


def test_unknown_option_names_near_matches():
    with pytest.raises(OptionError, match="unknown option 'recompile_limits'; is it recompile_l"):
        Options().replace(recompile_limits=3)
    with pytest.raises(OptionError, match="known: mode, "):
        Options().replace(zzz=3)


def test_misspelt_variable_warns_and_others_do_not():
    with pytest.warns(UserWarning, match="LEHR_STRICTT.*LEHR_STRICT"):
        assert Options.from_env({"LEHR_STRICTT": "1"}).strict is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options.from_env({"LEHR_RANDOM_THING_OF_OTHERS": "1", "PATH": "/bin"})


def test_key_holds_what_changes_code_and_nothing_else():
    plain = Options().key()
    assert Options().replace(threads=7, dump="/d", strict=True, cache_dir="/c").key() == plain
    for name, value in [("simd", "portable"), ("fusion", False), ("activation_memory_budget", 0.5)]:
        assert Options().replace(**{name: value}).key() != plain


def test_default_reads_the_environment_once(monkeypatch):
    options.set_default(None)
    monkeypatch.setenv("LEHR_RECOMPILE_LIMIT", "3")
    try:
        assert options.default().recompile_limit == 3
        monkeypatch.setenv("LEHR_RECOMPILE_LIMIT", "4")
        assert options.default().recompile_limit == 3
        options.set_default(Options())
        assert options.default().recompile_limit == 8
    finally:
        options.set_default(None)

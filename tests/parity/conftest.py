"""These tests compare with torch; without it they are not collected."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if "/parity/" in str(item.path):
            item.add_marker(pytest.mark.parity)

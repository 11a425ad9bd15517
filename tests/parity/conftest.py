"""These tests compare with torch, where it is installed."""

import pytest

pytest.importorskip("torch")


def pytest_collection_modifyitems(items):
    for item in items:
        if "/parity/" in str(item.path):
            item.add_marker(pytest.mark.parity)

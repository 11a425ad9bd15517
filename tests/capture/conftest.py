"""Makes the folder of programs importable."""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

with contextlib.suppress(ImportError):  # it replaces parts of typing; many packages import it
    import typing_extensions  # noqa: F401

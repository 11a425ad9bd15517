"""Training text that every machine has: the source of Python's own standard library.

Whole files are held out, every tenth one in order of name: nothing seen in training is scored.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HELD_OUT_EVERY = 10
SMALLEST = 100_000


@dataclass(frozen=True)
class Corpus:
    """Bytes to train on and bytes to score, uint8, with a digest of both."""

    train: np.ndarray
    held: np.ndarray
    files: int
    digest: str


def corpus(folder: str | Path | None = None) -> Corpus:
    """The top-level modules of the standard library, in order of name.

    Raises FileNotFoundError where there is too little source (a zipped or stripped Python).
    """
    folder = Path(folder or sysconfig.get_path("stdlib"))
    paths = sorted(folder.glob("*.py"), key=lambda path: path.name)
    texts = [path.read_bytes() for path in paths]
    held = b"".join(texts[::HELD_OUT_EVERY])
    train = b"".join(t for i, t in enumerate(texts) if i % HELD_OUT_EVERY)
    if len(train) < SMALLEST or len(held) < SMALLEST // HELD_OUT_EVERY:
        raise FileNotFoundError(
            f"{folder} holds {len(train) + len(held):,} bytes of Python source, too little to "
            "train on: use a Python whose standard library is installed as .py files"
        )
    digest = hashlib.blake2b(train + b"\0" + held, digest_size=8).hexdigest()
    arrays = [np.frombuffer(part, np.uint8) for part in (train, held)]
    return Corpus(arrays[0], arrays[1], len(paths), digest)


def batch(data: np.ndarray, size: int, length: int, *key: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows and the same windows one byte on, int64 [size, length] each.

    Which windows depends on the key alone (seed and step), so a resumed run sees the same data.
    """
    at = np.random.default_rng(key).integers(0, len(data) - length, size)
    window = data[at[:, None] + np.arange(length + 1)].astype(np.int64)
    return np.ascontiguousarray(window[:, :-1]), np.ascontiguousarray(window[:, 1:])

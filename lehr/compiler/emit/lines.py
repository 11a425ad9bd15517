"""Text with indentation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Lines:
    """Lines of C; `block` indents what is added inside."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def add(self, *lines: str) -> None:
        self.lines += ["  " * self.depth + line if line else "" for line in lines]

    @contextlib.contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {` ... `}`."""
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def text(self) -> str:
        return "\n".join(self.lines)

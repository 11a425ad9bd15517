"""The frame of every report in HTML: one file that needs nothing besides itself."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template


def page(title: str, about: str, body: Iterable[str], versions: dict[str, str]) -> str:
    """The whole text: title, about and versions are plain, the pieces of the body are HTML."""
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    return template.substitute(
        title=escape(title), about=escape(about), body="\n".join(body),
        versions=escape(", ".join(f"{k} {v}" for k, v in versions.items())))


def table(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table of numbers: the first column names what a line is about."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    rows = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in lines)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table class="numbers"><tr>{head}</tr>\n{body}\n</table></div>'


def image(name: str, png: bytes) -> str:
    """A chart, kept inside the page."""
    return (f'<img alt="{escape(name)}" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">')

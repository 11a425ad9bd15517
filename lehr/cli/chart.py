"""Line and bar charts as PNG bytes, drawn with Pillow.

matplotlib would nearly double what a default install weighs, and these charts need little of it.
Drawn at twice the size and scaled down, which smooths lines.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

SCALE = 2
INK, GRID, PAPER = "#222222", "#dddddd", "#ffffff"
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 44, 50


@dataclass(frozen=True)
class Series:
    """Points to join by a line, or to mark where `marks` is set."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    marks: bool = False


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers, some `count` of them, that cover [low, high]."""
    span = (high - low) or abs(high) or 1.0
    rough = span / max(1, count - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [round(i * step, 12) for i in range(first, last + 1)]


class Canvas:
    """A white sheet whose coordinates are final pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.image = Image.new("RGB", (width * SCALE, height * SCALE), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, x: float, y: float, words: str, anchor: str, size: int = 13) -> None:
        font = ImageFont.load_default(size * SCALE)
        self.draw.text((x * SCALE, y * SCALE), words, INK, font=font, anchor=anchor)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> None:
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self.draw.line(scaled, colour, round(width * SCALE), joint="curve")

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        self.draw.rectangle([v * SCALE for v in (x0, y0, x1, y1)], colour)

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        corners = (x - radius, y - radius, x + radius, y + radius)
        self.draw.ellipse([v * SCALE for v in corners], colour)

    def png(self) -> bytes:
        """The sheet at its final size, as the bytes of a PNG file."""
        out = io.BytesIO()
        small = self.image.resize((self.width, self.height), Image.Resampling.LANCZOS)
        small.save(out, "PNG", optimize=True)
        return out.getvalue()


def axes(canvas: Canvas, title: str, across: Sequence[float], up: Sequence[float]):
    """Grid, tick labels and title; gives the functions from data to pixels, (x, y)."""
    right, bottom = canvas.width - RIGHT, canvas.height - BOTTOM
    x = scale(across[0], across[-1], LEFT, right)
    y = scale(up[0], up[-1], bottom, TOP)
    for value in up:
        canvas.line([(LEFT, y(value)), (right, y(value))], GRID)
        canvas.text(LEFT - 8, y(value), f"{value:g}", "rm")
    for value in across:
        canvas.line([(x(value), bottom), (x(value), bottom + 4)], INK)
        canvas.text(x(value), bottom + 8, f"{value:g}", "mt")
    canvas.line([(LEFT, bottom), (right, bottom)], INK)
    canvas.text(LEFT, 12, title, "lt", 15)
    return x, y


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def lines(series: Sequence[Series], title: str, label: str, size=(760, 380)) -> bytes:
    """A chart of one or more series over a shared axis named `label`, as PNG bytes."""
    canvas = Canvas(*size)
    every = [point for one in series for point in one.points]
    across = ticks(min(p[0] for p in every), max(p[0] for p in every))
    up = ticks(min(p[1] for p in every), max(p[1] for p in every))
    x, y = axes(canvas, title, across, up)
    at = float(canvas.width - RIGHT)
    for one in reversed(series):
        canvas.text(at, 19, one.name, "rm")
        at -= 14 + canvas.draw.textlength(one.name, ImageFont.load_default(13 * SCALE)) / SCALE
        canvas.box(at, 14, at + 10, 24, one.colour)
        at -= 16
    for one in series:
        pixels = [(x(a), y(b)) for a, b in one.points]
        if one.marks:
            for pixel in pixels:
                canvas.dot(*pixel, 4.5, one.colour)
        elif len(pixels) > 1:
            canvas.line(pixels, one.colour, 1.5)
    canvas.text((LEFT + canvas.width - RIGHT) / 2, canvas.height - 8, label, "mb")
    return canvas.png()


def bars(rows: Sequence[tuple[str, float, str]], title: str, unit: str, width: int = 760) -> bytes:
    """Horizontal bars from (name, value, colour), each with its value, as PNG bytes."""
    canvas = Canvas(width, TOP + 44 * len(rows) + 12)
    canvas.text(20, 12, title, "lt", 15)
    left, right = 170, canvas.width - 110
    top = max(value for _, value, _ in rows)
    for i, (name, value, colour) in enumerate(rows):
        y = TOP + 44 * i
        end = left + value / top * (right - left)
        canvas.text(left - 10, y + 16, name, "rm")
        canvas.box(left, y, end, y + 32, colour)
        canvas.text(end + 8, y + 16, f"{value:,.1f} {unit}", "lm")
    return canvas.png()

"""Draws docs/images/ratios.svg and growth.svg from docs/figures.toml: ``make charts``.

A chart is SVG by hand, since two kinds of bars are all there is to draw.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tools.requirement_marks import ROOT

FIGURES: Final = ROOT / "docs" / "figures.toml"
IMAGES: Final = ROOT / "docs" / "images"
WIDTH: Final = 860
# Where bars begin and end; the names stand on the left, the figures on the right.
LEFT, RIGHT = 330, 730
ROW, TOP, BOTTOM = 26, 64, 16
# Legible on its own white ground in light and dark, told apart by more than the hue.
GOOD, SHORT, PLAIN, INK, FAINT = "#2f7d4f", "#c2571a", "#3b6ea8", "#1f2933", "#9aa5b1"
LEAST, MOST = 0.5, 50.0
GROWTH_MOST: Final = 1.5


def figures(path: Path = FIGURES) -> dict[str, list[dict[str, Any]]]:
    """``ratio`` and ``growth``, as the file has them."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def times_asked(row: dict[str, Any]) -> float:
    """How many times what is asked was reached; how often what was used fits into a limit."""
    if "limit" in row:
        return float(row["limit"] / row["used"])
    return float(row["reached"] / row["asked"])


def ratios(rows: list[dict[str, Any]]) -> str:
    """A bar for each ratio, on a logarithmic scale whose 1 is what is asked."""

    def place(value: float) -> float:
        part = math.log(min(max(value, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
        return LEFT + part * (RIGHT - LEFT)

    drawn = []
    for number, row in enumerate(rows):
        times = times_asked(row)
        said = (
            f"{row['used']:g} of at most {row['limit']:g}"
            if "limit" in row
            else f"{row['reached']:g} of {row['asked']:g}"
        )
        color = GOOD if times >= 1 else SHORT
        start, end = sorted((place(1), place(times)))
        drawn.append(_name(number, row))
        drawn.append(_bar(number, start, end, color))
        drawn.append(_text(RIGHT + 8, number, said, color if times < 1 else INK))
    for value in (LEAST, 1, 2, 5, 10, 20, MOST):
        drawn.append(_line(place(value), len(rows), f"{value:g}×", strong=value == 1))
    title = "What was reached, in times of what is asked (right of 1: the aim is met)"
    return _chart(title, len(rows), drawn)


def growth(rows: list[dict[str, Any]]) -> str:
    """Three bars for each bench: its cost of one at 1, about 3 and 10 times, the first being 1."""

    def place(value: float) -> float:
        return LEFT + min(value, GROWTH_MOST) / GROWTH_MOST * (RIGHT - LEFT)

    drawn, number = [], 0
    for row in rows:
        for size, cost in zip(row["sizes"], row["costs"], strict=True):
            if size == row["sizes"][0]:
                drawn.append(_name(number, row))
            part = cost / row["costs"][0]
            drawn.append(_text(LEFT - 8, number, f"{size:,}", FAINT, anchor="end"))
            drawn.append(_bar(number, LEFT, place(part), PLAIN))
            drawn.append(_text(RIGHT + 8, number, f"{cost:g}", INK))
            number += 1
    for value in (0, 0.5, 1, GROWTH_MOST):
        drawn.append(_line(place(value), number, f"{value:g}×", strong=value == 1))
    return _chart(
        "What one costs as there are more of them (1 at the smallest size)", number, drawn
    )


def _chart(title: str, rows: int, drawn: list[str]) -> str:
    height = TOP + rows * ROW + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' role="img" font-family="sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="16" y="24" fill="{INK}" font-size="15">{escape(title)}</text>',
            *drawn,
            "</svg>\n",
        ]
    )


def _middle(number: int) -> float:
    return TOP + number * ROW + ROW / 2


def _name(number: int, row: dict[str, Any]) -> str:
    return _text(16, number, f"{row['bench']}: {row['of']}", INK)


def _text(x: float, number: int, said: str, color: str, *, anchor: str = "start") -> str:
    y = _middle(number) + 4
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}" text-anchor="{anchor}">{escape(said)}</text>'
    )


def _bar(number: int, start: float, end: float, color: str) -> str:
    y = _middle(number) - 8
    return (
        f'<rect x="{start:.1f}" y="{y:.0f}" width="{end - start:.1f}" height="16" fill="{color}"/>'
    )


def _line(x: float, rows: int, said: str, *, strong: bool) -> str:
    color = INK if strong else FAINT
    end = TOP + rows * ROW
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{end}" stroke="{color}"'
        f' stroke-width="{1.5 if strong else 0.5}"/>'
        f'<text x="{x:.0f}" y="{TOP - 10}" fill="{color}" text-anchor="middle">{said}</text>'
    )


def charts() -> Iterator[tuple[Path, str]]:
    """Each file with its content."""
    found = figures()
    yield IMAGES / "ratios.svg", ratios(found["ratio"])
    yield IMAGES / "growth.svg", growth(found["growth"])


if __name__ == "__main__":
    for path, content in charts():
        path.write_text(content, encoding="utf-8")

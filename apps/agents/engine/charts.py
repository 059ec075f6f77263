"""Lines of charts as SVG coordinates, made on the server: they need no script and no style.

The field of a line is ``WIDTH`` × ``HEIGHT``; the picture stretches it to where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

Point = tuple[float, float]

WIDTH: Final = 600
HEIGHT: Final = 100
# The samples come once a minute; where one is missing for longer the line has a gap.
GAP_SECONDS: Final = 150.0


def thin_out(
    points: Sequence[Point], *, seconds: float, worst: Callable[[Iterable[float]], float]
) -> list[Point]:
    """One point for each stretch of ``seconds``: its first time and its ``worst`` value.

    An average would hide what one looks for.
    """
    stretches: dict[int, list[Point]] = {}
    for point in points:
        stretches.setdefault(int(point[0] // seconds), []).append(point)
    return [(group[0][0], worst(value for _at, value in group)) for group in stretches.values()]


def segments(
    points: Sequence[Point], *, start: float, end: float, top: float, gap: float = GAP_SECONDS
) -> list[str]:
    """``points`` of an SVG polyline for each piece without a gap; times are Unix seconds.

    ``start`` is at the left edge, ``end`` at the right one, 0 at the bottom, ``top`` at the top.
    A single point becomes a short line, for a line of no length shows nothing.
    """
    pieces: list[list[str]] = []
    before: float | None = None
    for at, value in points:
        if before is None or at - before > gap:
            pieces.append([])
        before = at
        x = WIDTH * (at - start) / (end - start)
        y = HEIGHT * (1 - min(max(value / top, 0.0), 1.0))
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(piece) if len(piece) > 1 else _dot(piece[0]) for piece in pieces]


def _dot(point: str) -> str:
    x, y = point.split(",")
    return f"{point} {float(x) + 2:.1f},{y}"


def round_top(value: float) -> float:
    """The next 1, 2 or 5 of a power of ten: where an axis ends so that it can be read."""
    step = 1.0
    while step < value:
        for factor in (2, 5, 10):
            if value <= step * factor:
                return step * factor
        step *= 10
    return step

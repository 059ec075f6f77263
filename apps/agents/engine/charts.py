"""Chart lines as SVG coordinates, made on the server without scripts.

The area of a line is ``WIDTH`` × ``HEIGHT``; the image stretches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

Point = tuple[float, float]

WIDTH: Final = 600
HEIGHT: Final = 100
# Samples come once a minute; a longer distance is drawn as a gap.
GAP_SECONDS: Final = 150.0


def thin_out(
    points: Sequence[Point], *, seconds: float, worst: Callable[[Iterable[float]], float]
) -> list[Point]:
    """Return one point for each interval of ``seconds``: its first time and its ``worst`` value.

    An average would hide peaks.
    """
    stretches: dict[int, list[Point]] = {}
    for point in points:
        stretches.setdefault(int(point[0] // seconds), []).append(point)
    return [(group[0][0], worst(value for _at, value in group)) for group in stretches.values()]


def segments(
    points: Sequence[Point], *, start: float, end: float, top: float, gap: float = GAP_SECONDS
) -> list[str]:
    """Return ``points`` of an SVG polyline for each piece without a gap; times are Unix seconds.

    ``start`` is at the left edge, ``end`` at the right one, 0 at the bottom, ``top`` at the top.
    A single point becomes a short line, since a line of no length is invisible.
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
    """Return the next 1, 2 or 5 of a power of ten, as a readable end of an axis."""
    step = 1.0
    while step < value:
        for factor in (2, 5, 10):
            if value <= step * factor:
                return step * factor
        step *= 10
    return step

"""Paths in the graph of linked jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


def find_path(edges: Iterable[tuple[int, int]], start: int, goal: int) -> list[int]:
    """Return the shortest path from ``start`` to ``goal``, both included; [] without a path."""
    following: dict[int, list[int]] = {}
    for from_, to in edges:
        following.setdefault(from_, []).append(to)
    before: dict[int, int | None] = {start: None}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == goal:
            return _back(before, goal)
        for there in following.get(node, ()):
            if there not in before:
                before[there] = node
                waiting.append(there)
    return []


def _back(before: dict[int, int | None], goal: int) -> list[int]:
    path: list[int] = []
    node: int | None = goal
    while node is not None:
        path.append(node)
        node = before[node]
    return path[::-1]


def depths(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the length of the longest path to each node, which sorts nodes topologically."""
    following: dict[int, list[int]] = {}
    open_: dict[int, int] = {}
    for from_, to in edges:
        following.setdefault(from_, []).append(to)
        open_[to] = open_.get(to, 0) + 1
        open_.setdefault(from_, 0)
    depth = dict.fromkeys(open_, 0)
    ready = [start for start, number in open_.items() if not number]
    while ready:
        node = ready.pop()
        for there in following.get(node, ()):
            depth[there] = max(depth[there], depth[node] + 1)
            open_[there] -= 1
            if not open_[there]:
                ready.append(there)
    return depth

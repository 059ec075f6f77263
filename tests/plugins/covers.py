"""The mark ``covers("S1.20", ...)``: only ids that docs/requirements.md has."""

from __future__ import annotations

import pytest

from tools.requirement_marks import requirement_ids


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse the whole run when a test claims to prove a line that does not exist."""
    known = frozenset(requirement_ids())
    wrong: list[str] = []
    for item in items:
        for mark in item.iter_markers("covers"):
            if not mark.args:
                wrong.append(f"{item.nodeid}: covers() names no requirement")
            wrong.extend(
                f"{item.nodeid}: there is no requirement {requirement!r} in docs/requirements.md"
                for requirement in mark.args
                if requirement not in known
            )
    if wrong:
        raise pytest.UsageError("\n".join(dict.fromkeys(wrong)))

"""Paths of pages that show more: of a daemon, which has no pages itself.

Daemons load no admin, so their names cannot be looked up there; a test holds these to them.
"""

from __future__ import annotations

from typing import Final

_ADMIN: Final = "/admin"


def change_page(model: str, pk: object) -> str:
    """``change_page("jobs/run", 7)``: the page of one."""
    return f"{_ADMIN}/{model}/{pk}/change/"


def list_page(model: str, query: str = "") -> str:
    """``list_page("jobs/run", "state=failed")``: the list."""
    return f"{_ADMIN}/{model}/" + (f"?{query}" if query else "")

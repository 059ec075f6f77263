"""Paths of admin pages for incident links.

Hard-coded, because daemons do not load the admin; a test checks them.
"""

from __future__ import annotations

from typing import Final

_ADMIN: Final = "/admin"


def change_page(model: str, pk: object) -> str:
    """Return the path of one object's page: ``change_page("jobs/run", 7)``."""
    return f"{_ADMIN}/{model}/{pk}/change/"


def list_page(model: str, query: str = "") -> str:
    """Return the path of a list: ``list_page("jobs/run", "state=failed")``."""
    return f"{_ADMIN}/{model}/" + (f"?{query}" if query else "")

"""Sections of docs/runbook.md, shown on the health page."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from django.conf import settings


@cache
def _sections() -> dict[str, str]:
    """Return texts by heading; empty in installations without the docs folder."""
    path = Path(settings.STATICFILES_DIRS[0]).parent / "docs" / "runbook.md"
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        heading.strip(): body.strip()
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def runbook_section(heading: str) -> str:
    """Return the Markdown text of a section, or "" if there is none."""
    return _sections().get(heading, "")

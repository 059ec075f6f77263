"""What the runbook says, on the page: at night nobody looks for a document."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from django.conf import settings


@cache
def _sections() -> dict[str, str]:
    """Text by heading; empty where the documents do not lie beside the code."""
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
    """The section of this heading, as it is written; "" when there is none."""
    return _sections().get(heading, "")

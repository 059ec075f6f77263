"""The Python code of docs/outbounds.md."""

from __future__ import annotations

import functools
import re
from typing import Any

from tools.requirement_marks import ROOT

DOCUMENT = ROOT / "docs" / "outbounds.md"


@functools.cache
def examples() -> dict[str, Any]:
    """Return the names that the Python blocks of the document define."""
    names: dict[str, Any] = {"__name__": "examples"}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(DOCUMENT), "exec"), names)  # noqa: S102 - our own document
    return names

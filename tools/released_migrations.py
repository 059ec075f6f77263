"""The migrations of the last release, which the next one may not break; see docs/upgrade.md.

``python -m tools.released_migrations`` writes the list anew, at a release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.requirement_marks import ROOT

LIST: Final = ROOT / "tests" / "crawlyard" / "released_migrations.txt"


def released() -> set[tuple[str, str]]:
    """App and name of each."""
    lines = LIST.read_text(encoding="ascii").split()
    return {(app, name) for app, _dot, name in (line.partition(".") for line in lines)}


def present(root: Path = ROOT) -> list[str]:
    """Those of our apps, as ``app.name``."""
    files = sorted((root / "apps").glob("*/migrations/[0-9]*.py"))
    return [f"{file.parent.parent.name}.{file.stem}" for file in files]


if __name__ == "__main__":
    LIST.write_text("\n".join(present()) + "\n", encoding="ascii")

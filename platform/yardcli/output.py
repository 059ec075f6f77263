"""Output of answers as tables for people, as JSON or YAML for programs.

Colours and progress only on a terminal; control characters from the server are escaped.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

# Name of the field, or (title, name of the field).
Column = str | tuple[str, str]

# Characters that move the cursor, change colours or end a line.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_COLOURS: Final = {
    "red": {"failed", "lost", "rejected", "dead", "ERROR", "CRITICAL", "critical", "no", "expired"},
    "green": {"exited", "running", "succeeded", "yes", "processed", "active", "resolved"},
    "yellow": {
        "queued",
        "starting",
        "pausing",
        "paused",
        "resuming",
        "stopping",
        "draining",
        "WARNING",
        "warning",
        "open",
    },
}


class Format(StrEnum):
    """Output format."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def inert(text: str) -> str:
    """Escape everything in ``text`` that a terminal would interpret."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], form: Format) -> None:
    """Print a list: chosen columns in a table, all fields in other formats."""
    listed = list(rows)
    if form is not Format.TABLE:
        _dump(listed, form)
        return
    titled = [(column, column) if isinstance(column, str) else column for column in columns]
    lines = [[_cell(row.get(name)) for _title, name in titled] for row in listed]
    _table([title for title, _name in titled], lines)


def show_one(row: Mapping[str, Any], form: Format, names: Sequence[str] = ()) -> None:
    """Print one object: the given fields, or all with a value."""
    if form is not Format.TABLE:
        _dump(row, form)
        return
    chosen = names or [name for name, value in row.items() if value not in (None, "", [], {})]
    _table([], [[name, _cell(row.get(name))] for name in chosen])


def _dump(value: Any, form: Format) -> None:
    if form is Format.JSON:
        text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False)
    sys.stdout.write(text)


def say(line: str) -> None:
    """Print a line of the answer."""
    sys.stdout.write(inert(line) + "\n")


def note(line: str) -> None:
    """Print a line about the progress to standard error."""
    sys.stderr.write(inert(line) + "\n")


def on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping | list):
        return inert(json.dumps(value, ensure_ascii=False))
    # A row must be one line, whatever characters are in a name.
    return inert(str(value).replace("\n", " ").replace("\t", " "))


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    if not sys.stdout.isatty():
        _plain_table(titles, lines)
        return
    # Imported late: takes a tenth of a second.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(titles), header_style="bold", pad_edge=False)
    for title in titles or ("", ""):
        table.add_column(title, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell, style=_style(cell)) for cell in line))
    Console(highlight=False).print(table)


def _style(cell: str) -> str:
    return next((colour for colour, words in _COLOURS.items() if cell in words), "")


def _plain_table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    everything = [[title.upper() for title in titles], *lines] if titles else list(lines)
    if not everything:
        return
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    for line in everything:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")

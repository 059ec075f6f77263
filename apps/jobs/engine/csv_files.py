"""CSV files of jobs, one job per row; cells that a spreadsheet would evaluate are escaped."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.jobs.engine.portable import (
    MAX_JOBS,
    MAX_PROBLEMS,
    VERSION,
    VERSION_KEY,
    Column,
    ColumnKind,
    FileProblem,
    JobEntry,
    JobFile,
    JobFileUnreadable,
    by_name,
    check_version,
    decoded,
    unknown_field,
)

_FORMULA: Final = "=+\\-@\t\r\n＝＋－＠"
_TO_QUOTE = re.compile(f"'*[{_FORMULA}]")
_QUOTED = re.compile(f"'+[{_FORMULA}]")
_BOOLEAN: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_MOST_CHARACTERS: Final = 40


class _CsvError(Exception):
    """A cell is invalid; the text is the reason."""


def write_csv(jobs: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return the jobs as CSV for ``read_csv``, with a byte order mark for Excel."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([VERSION_KEY, *(column.name for column in columns)])
    for job in jobs:
        cells = [_cell(column, job.get(column.name)) for column in columns]
        writer.writerow([VERSION, *cells])
    return "\ufeff" + out.getvalue()


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return ""
    if column.kind is ColumnKind.WORDS:
        text = " ".join(value)
    elif column.kind is ColumnKind.JSON:
        text = json.dumps(value, ensure_ascii=False) if value else ""
    elif column.kind is ColumnKind.BOOLEAN:
        text = "true" if value else "false"
    else:
        text = str(value)
    return f"'{text}" if _TO_QUOTE.match(text) else text


def read_csv(raw: bytes | str, columns: Sequence[Column]) -> JobFile:
    """Read the jobs of a file; errors are returned as problems."""
    read = JobFile()
    known = by_name(columns)
    try:
        rows = _rows(decoded(raw))
        header = _header(next(rows, (1, [])), known)
        for line, cells in rows:
            if any(cell.strip() for cell in cells):
                _take_row(JobEntry(len(read.entries), line), header, cells, read, known)
            if len(read.problems) >= MAX_PROBLEMS:
                break
    except JobFileUnreadable as error:
        read.problems.append(error.problem)
    return read


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of the line on which it begins."""
    first = text.splitlines()[0] if text else ""
    # Spreadsheets use semicolons in locales where the comma is the decimal separator.
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            yield line, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            words = {"problem": str(error)[:200]}
            raise JobFileUnreadable(line, _("Not valid CSV: %(problem)s.") % words) from error


def _header(row: tuple[int, list[str]], known: Mapping[str, Column]) -> list[str]:
    line, cells = row
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if VERSION_KEY not in names:
        text = _("The first row names the columns; %(key)s, which is %(version)d, is missing.")
        raise JobFileUnreadable(line, text % {"key": VERSION_KEY, "version": VERSION})
    for number, name in enumerate(names, 1):
        if name != VERSION_KEY and name not in known:
            text = unknown_field(name, known)
            raise JobFileUnreadable(line, text, _("column %(number)d") % {"number": number})
        if name in names[: number - 1]:
            text = _("“%(name)s” occurs twice.") % {"name": name}
            raise JobFileUnreadable(line, text, _("column %(number)d") % {"number": number})
    return names


def _take_row(
    entry: JobEntry, header: list[str], cells: list[str], read: JobFile, known: Mapping[str, Column]
) -> None:
    if entry.number >= MAX_JOBS:
        raise JobFileUnreadable(entry.line, _("More than %(limit)d jobs.") % {"limit": MAX_JOBS})
    if any(cell.strip() for cell in cells[len(header) :]):
        text = _("%(count)d cells, but the first row names %(known)d columns.")
        words = {"count": len(cells), "known": len(header)}
        read.problems.append(entry.problem("", text % words))
        return
    for name, cell in zip(header, cells, strict=False):
        cell = cell[1:] if _QUOTED.match(cell) else cell
        if name == VERSION_KEY:
            check_version(int(cell) if _INTEGER.fullmatch(cell.strip()) else cell, entry.line)
            continue
        try:
            _take_cell(entry, known[name], cell)
        except _CsvError as wrong:
            where = f"jobs[{entry.number}].{name}"
            read.problems.append(FileProblem(entry.line, where, str(wrong)))
    read.entries.append(entry)


def _take_cell(entry: JobEntry, column: Column, cell: str) -> None:
    """Store a cell in ``entry``.

    An empty cell is an empty text, an empty list or null; a required number stays unset.
    """
    if column.kind is ColumnKind.TEXT:
        entry.values[column.name] = cell
    elif column.kind is ColumnKind.WORDS:
        entry.values[column.name] = cell.split()
    elif column.kind is ColumnKind.JSON:
        entry.values[column.name] = _json(cell)
    elif cell.strip():
        read = {
            ColumnKind.BOOLEAN: _boolean,
            ColumnKind.INTEGER: _integer,
            ColumnKind.NUMBER: _number,
        }
        entry.values[column.name] = read[column.kind](cell.strip())
    elif column.nullable:
        entry.values[column.name] = None


def _json(cell: str) -> Any:
    """Parse a cell as JSON; the caller handles empty cells."""
    if not cell.strip():
        return None
    try:
        return json.loads(cell)
    except (ValueError, RecursionError) as error:
        raise _CsvError(
            _("Not valid JSON: %(problem)s.") % {"problem": str(error)[:200]}
        ) from error


def _boolean(cell: str) -> bool:
    try:
        return _BOOLEAN[cell.lower()]
    except KeyError as error:
        raise _CsvError(_("Enter true or false.")) from error


def _integer(cell: str) -> int:
    # Spreadsheets may write 5 as 5.0.
    whole = re.sub(r"\.0*$", "", cell)
    if not _INTEGER.fullmatch(whole):
        raise _CsvError(_("Enter a whole number."))
    return int(whole)


def _number(cell: str) -> float:
    try:
        value = float(cell) if len(cell) <= _MOST_CHARACTERS and cell.isascii() else math.nan
    except ValueError as error:
        raise _CsvError(_("Enter a number.")) from error
    if not math.isfinite(value):
        raise _CsvError(_("Enter a number."))
    return value

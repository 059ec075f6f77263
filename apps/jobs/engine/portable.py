"""Job files: the parts that YAML and CSV share. Problems name line and field.

A file has a version, ``crawlyard_jobs: 1``, and jobs with the fields that the caller names as
columns. See docs/job-files.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext as _

from yardkit.yaml_reader import FORBIDDEN, YamlError, decode

VERSION: Final = 1
VERSION_KEY: Final = "crawlyard_jobs"
MAX_BYTES: Final = 1024 * 1024
MAX_JOBS: Final = 1000
# Reading stops after this many problems.
MAX_PROBLEMS: Final = 100
_SHOWN: Final = 60


class JobFileFormat(enum.StrEnum):
    """Format of a job file."""

    YAML = "yaml"
    CSV = "csv"


CONTENT_TYPES: Final = {
    JobFileFormat.YAML: "application/yaml; charset=utf-8",
    JobFileFormat.CSV: "text/csv; charset=utf-8",
}


def format_of(name: str) -> JobFileFormat:
    """Return the format by the extension of a file's name."""
    return JobFileFormat.CSV if name.lower().endswith(".csv") else JobFileFormat.YAML


class ColumnKind(enum.Enum):
    """Type of a field."""

    TEXT = enum.auto()
    INTEGER = enum.auto()
    NUMBER = enum.auto()
    BOOLEAN = enum.auto()
    WORDS = enum.auto()
    JSON = enum.auto()


@dataclass(frozen=True, slots=True)
class Column:
    """Field of a job in a file."""

    name: str
    kind: ColumnKind
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Error in a file. ``where`` is a path such as ``jobs[2].cron``."""

    line: int
    where: str
    text: str

    def said(self, file: str) -> str:
        """Return the error as text, such as ``jobs.yaml:17: jobs[2].cron: ...``."""
        return ": ".join(part for part in (f"{file}:{self.line}", self.where, self.text) if part)


@dataclass(slots=True)
class JobEntry:
    """Job of a file. ``values`` contains only the fields that the file names."""

    number: int
    line: int
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def problem(self, name: str, text: str) -> FileProblem:
        """Return a problem of a field of this job; "" means the job as a whole."""
        where = f"jobs[{self.number}].{name}" if name else f"jobs[{self.number}]"
        line = self.lines.get(name.partition(".")[0], self.line)
        return FileProblem(line=line, where=where, text=text)


@dataclass(slots=True)
class JobFile:
    """Content of a file. With problems the entries may be incomplete."""

    entries: list[JobEntry] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)


class JobFileUnreadable(Exception):
    """The file, or the rest of it, cannot be read."""

    def __init__(self, line: int, text: str, where: str = "") -> None:
        super().__init__(text)
        self.problem = FileProblem(line=line, where=where, text=text)


def decoded(raw: bytes | str) -> str:
    """Decode a file: UTF-8, with or without a byte order mark.

    Raises:
        JobFileUnreadable: too large, not UTF-8, or with control characters.
    """
    try:
        return decode(raw, MAX_BYTES)
    except YamlError as error:
        raise JobFileUnreadable(error.line, decoding_error_text(error)) from error


def decoding_error_text(error: YamlError) -> str:
    """Return a decoding error as a translated message."""
    if error.code == "too_large":
        return _("The file is larger than %(limit)d KiB.") % {"limit": MAX_BYTES // 1024}
    if error.code == "not_utf8":
        return _("Not UTF-8; save the file as UTF-8.")
    words = {"code": error.parameters["character"]}
    return _("The control character %(code)s is not allowed.") % words


def kind_problem(column: Column, value: object) -> str | None:
    """Return the error of a value's type; None if the type is valid."""
    if value is None:
        return None if column.nullable else _("The value is missing; leave the line out instead.")
    if column.kind is ColumnKind.TEXT and not isinstance(value, str):
        return _("Enter a text in quotes.")
    if column.kind is ColumnKind.BOOLEAN and not isinstance(value, bool):
        return _("Enter true or false.")
    whole = isinstance(value, int) and not isinstance(value, bool)
    if column.kind is ColumnKind.INTEGER and not whole:
        return _("Enter a whole number.")
    if column.kind is ColumnKind.NUMBER and not (whole or isinstance(value, float)):
        return _("Enter a number.")
    if whole and not -(2**63) <= value < 2**63:  # type: ignore[operator]
        return _("The number is too large.")
    if column.kind is ColumnKind.WORDS and not isinstance(value, list):
        return _("Enter a list of words such as [news, daily].")
    return None


def unknown_field(name: object, columns: Mapping[str, Column]) -> str:
    """Return the message for an unknown field, with the most similar name."""
    shown = FORBIDDEN.sub("?", str(name)[:_SHOWN]).encode("utf-8", "replace").decode()
    if shown in ("secrets", "cookies"):
        return _("%(name)s are not imported from files; set them on the job's page.") % {
            "name": shown
        }
    if shown == "<<":
        return _("Merge keys (<<) are not supported; write the fields out.")
    return _("Unknown field “%(name)s”; the fields are %(known)s.") % {
        "name": shown,
        "known": ", ".join(columns),
    }


def check_version(value: object, line: int) -> None:
    """Raise ``JobFileUnreadable`` for a file of another version."""
    if value != VERSION or isinstance(value, bool):
        text = _(
            "This file has version %(given)s of the format; only version %(ours)d is supported."
        )
        shown = FORBIDDEN.sub("?", str(value)[:20]).encode("utf-8", "replace").decode()
        raise JobFileUnreadable(line, text % {"given": shown, "ours": VERSION}, VERSION_KEY)


def by_name(columns: Sequence[Column]) -> dict[str, Column]:
    """Return the columns by name, in order."""
    return {column.name: column for column in columns}

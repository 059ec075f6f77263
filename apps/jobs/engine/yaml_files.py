"""YAML files of jobs, parsed by ``yardkit.yaml_reader`` and written in a readable layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.jobs.engine.portable import (
    MAX_BYTES,
    MAX_JOBS,
    MAX_PROBLEMS,
    VERSION,
    VERSION_KEY,
    Column,
    FileProblem,
    JobEntry,
    JobFile,
    JobFileUnreadable,
    by_name,
    check_version,
    decoding_error_text,
    kind_problem,
    unknown_field,
)
from yardkit.yaml_reader import Path, YamlDocument, YamlError, YamlLimits, read_document, shown_path
from yardkit.yaml_writer import write_value

MAX_NODES: Final = 100_000
_LIMITS: Final = YamlLimits(bytes=MAX_BYTES, values=MAX_NODES)
_JOBS: Final = "jobs"


# --- reading --------------------------------------------------------------------------------------


def read_yaml(raw: bytes | str, columns: Sequence[Column]) -> JobFile:
    """Read the jobs of a file; errors are returned as problems."""
    read = JobFile()
    try:
        _take_file(read_document(raw, _LIMITS), by_name(columns), read)
    except YamlError as error:
        where = shown_path(error.path)
        read.problems.append(FileProblem(line=error.line, where=where, text=_error_text(error)))
    except JobFileUnreadable as error:
        read.problems.append(error.problem)
    return read


def _error_text(error: YamlError) -> str:
    texts = {
        "not_yaml": _("Not valid YAML, column %(column)d: %(problem)s."),
        "not_yaml_at_all": _("Not valid YAML: %(problem)s."),
        "second_document": _("One document only: a second one begins here."),
        "too_deep": _("Nested more than %(limit)d levels deep."),
        "too_many_aliases": _("More than %(limit)d aliases."),
        "too_many_values": _(
            "More than %(limit)d values, aliases counted as often as they are used."
        ),
        "no_anchor": _(
            "There is no anchor “%(name)s” before this alias. A text that begins with * needs "
            "quotes."
        ),
        "bad_name": _("The name of a field must be a text."),
        "name_without_quotes": _("The name of a field must be a text; quote it."),
        "duplicate_key": _("“%(name)s” occurs twice."),
        "tag": _("YAML tags such as %(tag)s are not allowed."),
        "too_many_digits": _("A number has too many digits."),
        "bad_character": _("A character that cannot be stored (\\u0000 or half of a pair)."),
    }
    if text := texts.get(error.code):
        return text % error.parameters
    return decoding_error_text(error)


def _take_file(document: YamlDocument, columns: Mapping[str, Column], read: JobFile) -> None:
    root, lines = document.root, document.lines
    if not isinstance(root, dict):
        text = _("A file of jobs begins with %(key)s: %(version)d, then jobs: and a list.")
        raise JobFileUnreadable(lines.get((), 1), text % {"key": VERSION_KEY, "version": VERSION})
    if VERSION_KEY not in root:
        text = _("The line %(key)s: %(version)d is missing.")
        raise JobFileUnreadable(1, text % {"key": VERSION_KEY, "version": VERSION})
    check_version(root[VERSION_KEY], lines[VERSION_KEY,])
    for name in root:
        if name not in (VERSION_KEY, _JOBS):
            text = _("Unknown field; only %(key)s and jobs are allowed here.") % {
                "key": VERSION_KEY
            }
            raise JobFileUnreadable(lines[name,], text, shown_path((name,)))
    jobs = root.get(_JOBS)
    if not isinstance(jobs, list):
        raise JobFileUnreadable(lines.get((_JOBS,), 1), _("`jobs` must be a list."), _JOBS)
    if len(jobs) > MAX_JOBS:
        text = _("%(count)d jobs are given, at most %(limit)d are allowed.")
        raise JobFileUnreadable(
            lines[_JOBS,], text % {"limit": MAX_JOBS, "count": len(jobs)}, _JOBS
        )
    for number, job in enumerate(jobs):
        line = lines.get((_JOBS, number), lines[_JOBS,])
        _take_job(JobEntry(number, line), job, lines, columns, read)
        if len(read.problems) >= MAX_PROBLEMS:
            return


def _take_job(
    entry: JobEntry,
    job: object,
    lines: Mapping[Path, int],
    columns: Mapping[str, Column],
    read: JobFile,
) -> None:
    if not isinstance(job, dict):
        read.problems.append(entry.problem("", _("A job must be a mapping of fields.")))
        return
    entry.lines = {name: lines.get((_JOBS, entry.number, name), entry.line) for name in job}
    for name, value in job.items():
        column = columns.get(name)
        text = unknown_field(name, columns) if column is None else kind_problem(column, value)
        if text is None:
            entry.values[name] = value
        else:
            where = shown_path((_JOBS, entry.number, name))
            read.problems.append(FileProblem(entry.lines[name], where, text))
    read.entries.append(entry)


# --- writing --------------------------------------------------------------------------------------


def write_yaml(jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return the jobs as YAML for ``read_yaml``, with the fields in their given order."""
    head = {VERSION_KEY: VERSION}
    body = [dict(job) for job in jobs]
    text = write_value(head)
    if not body:
        return f"{text}{_JOBS}: []\n"
    parts = [write_value([job]) for job in body]
    return f"{text}{_JOBS}:\n" + "\n".join(parts)

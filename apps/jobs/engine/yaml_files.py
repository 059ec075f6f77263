"""Jobs as YAML: read event by event, without recursion, tags or surprises; written for people.

Plain words are read as in YAML 1.2: ``yes``, ``on``, ``12:30`` and dates are texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from django.utils.translation import gettext as _

from apps.jobs.engine.portable import (
    MAX_JOBS,
    MAX_PROBLEMS,
    VERSION,
    VERSION_KEY,
    Column,
    Entry,
    JobFile,
    Problem,
    Unreadable,
    by_name,
    check_version,
    decoded,
    kind_problem,
    unknown_field,
)

MAX_DEPTH: Final = 30
MAX_NODES: Final = 100_000
MAX_ALIASES: Final = 100
# Deeper than this nobody is told the line of.
_LINES_DEPTH: Final = 3
_JOBS: Final = "jobs"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOLEAN: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 30

Path = tuple[str | int, ...]


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: Any
    path: Path
    line: int
    anchor: str | None
    size: int = 1
    key: str | None = None
    names: set[str] = field(default_factory=set)


class _Builder:
    """Makes values of events, and remembers on which line each field stands."""

    def __init__(self) -> None:
        self.root: Any = None
        self.lines: dict[Path, int] = {}
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliases = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """One event; raises ``Unreadable``."""
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise Unreadable(line, _("One document only: a second one begins here."))
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event.tag, line)
            plain = event.implicit[0] and not event.style
            value = self._scalar(event.value, line, plain=plain)
            self._add(value, 1, line, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), line)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._begin(event, line)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._end()

    def _begin(self, event: Any, line: int) -> None:
        self._refuse_tag(event.tag, line)
        if len(self._open) >= MAX_DEPTH:
            text = _("Nested more than %(limit)d levels deep.") % {"limit": MAX_DEPTH}
            raise Unreadable(line, text, _where(self._place()))
        if self._expects_name():
            raise Unreadable(line, _("The name of a field must be a text."), _where(self._place()))
        value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._open.append(_Open(value, self._place(), line, event.anchor))

    def _end(self) -> None:
        done = self._open.pop()
        self._add(done.value, done.size, done.line, done.anchor)

    def _alias(self, anchor: str, line: int) -> None:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise Unreadable(line, _("More than %(limit)d aliases.") % {"limit": MAX_ALIASES})
        if anchor not in self._anchors:
            shown = anchor[:60].encode("utf-8", "replace").decode()
            text = _(
                "There is no anchor “%(name)s” before this alias. A text that begins with * needs "
                "quotes."
            )
            raise Unreadable(line, text % {"name": shown}, _where(self._place()))
        value, size = self._anchors[anchor]
        self._add(value, size, line, None)

    def _add(self, value: Any, size: int, line: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[str(anchor)] = (value, size)
        if not self._open:
            self.root = value
            self.lines[()] = line
            return
        holder = self._open[-1]
        holder.size += size
        if holder.size > MAX_NODES:
            text = _("More than %(limit)d values, aliases counted as often as they are used.")
            raise Unreadable(line, text % {"limit": MAX_NODES})
        if isinstance(holder.value, list):
            self._note(line)
            holder.value.append(value)
        elif holder.key is None:
            self._name(holder, value, line)
        else:
            holder.value[holder.key] = value
            holder.key = None

    def _name(self, holder: _Open, value: Any, line: int) -> None:
        where = _where(holder.path)
        if not isinstance(value, str):
            raise Unreadable(line, _("The name of a field must be a text; quote it."), where)
        if value in holder.names:
            shown = value[:60].encode("utf-8", "replace").decode()
            raise Unreadable(line, _("“%(name)s” is there twice.") % {"name": shown}, where)
        holder.names.add(value)
        holder.key = value
        self._note(line)

    def _expects_name(self) -> bool:
        if not self._open:
            return False
        holder = self._open[-1]
        return isinstance(holder.value, dict) and holder.key is None

    def _place(self) -> Path:
        if not self._open:
            return ()
        holder = self._open[-1]
        if isinstance(holder.value, list):
            return (*holder.path, len(holder.value))
        return holder.path if holder.key is None else (*holder.path, holder.key)

    def _note(self, line: int) -> None:
        place = self._place()
        if len(place) <= _LINES_DEPTH:
            # Of a list's entry its first line, which may have been noted by what is in it.
            self.lines[place] = min(line, self.lines.get(place, line))

    def _refuse_tag(self, tag: str | None, line: int) -> None:
        if tag is not None:
            shown = tag[:60].encode("utf-8", "replace").decode()
            text = _("Tags such as %(tag)s are refused.") % {"tag": shown}
            raise Unreadable(line, text, _where(self._place()))

    def _scalar(self, text: str, line: int, *, plain: bool) -> Any:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._refuse_text(line)
        if "\x00" in text:
            self._refuse_text(line)
        return _plain_value(text, line) if plain else text

    def _refuse_text(self, line: int) -> None:
        text = _("A character that cannot be stored (\\u0000 or half of a pair).")
        raise Unreadable(line, text, _where(self._place()))


def _plain_value(text: str, line: int) -> Any:
    if _NULL.fullmatch(text):
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise Unreadable(line, _("A number has too many digits."))
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _where(path: Path) -> str:
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            shown = step[:60].encode("utf-8", "replace").decode()
            parts.append(f".{shown}" if parts else shown)
    return "".join(parts)


# --- reading -----------------------------------------------------------------------------------


def read_yaml(raw: bytes | str, columns: Sequence[Column]) -> JobFile:
    """The jobs of a file. What is wrong is among the problems; nothing is raised."""
    read = JobFile()
    builder = _Builder()
    try:
        _build(decoded(raw), builder)
        _take_file(builder, by_name(columns), read)
    except Unreadable as error:
        read.problems.append(error.problem)
    return read


def _build(text: str, builder: _Builder) -> None:
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or ""
        text = _("Not valid YAML, column %(column)d: %(problem)s.")
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Unreadable(line, text % {"column": column, "problem": said[:200]}) from error
    except yaml.YAMLError as error:
        said = str(error).replace("\n", " ")[:200]
        raise Unreadable(1, _("Not valid YAML: %(problem)s.") % {"problem": said}) from error


def _take_file(builder: _Builder, columns: Mapping[str, Column], read: JobFile) -> None:
    root, lines = builder.root, builder.lines
    if not isinstance(root, dict):
        text = _("A file of jobs begins with %(key)s: %(version)d, then jobs: and a list.")
        raise Unreadable(lines.get((), 1), text % {"key": VERSION_KEY, "version": VERSION})
    if VERSION_KEY not in root:
        text = _("The line %(key)s: %(version)d is missing.")
        raise Unreadable(1, text % {"key": VERSION_KEY, "version": VERSION})
    check_version(root[VERSION_KEY], lines[VERSION_KEY,])
    for name in root:
        if name not in (VERSION_KEY, _JOBS):
            text = _("Only %(key)s and jobs are known here.") % {"key": VERSION_KEY}
            raise Unreadable(lines[name,], text, _where((name,)))
    jobs = root.get(_JOBS)
    if not isinstance(jobs, list):
        raise Unreadable(lines.get((_JOBS,), 1), _("A list of jobs is needed."), _JOBS)
    if len(jobs) > MAX_JOBS:
        text = _("At most %(limit)d jobs, these are %(count)d.")
        raise Unreadable(lines[_JOBS,], text % {"limit": MAX_JOBS, "count": len(jobs)}, _JOBS)
    for number, job in enumerate(jobs):
        line = lines.get((_JOBS, number), lines[_JOBS,])
        _take_job(Entry(number, line), job, lines, columns, read)
        if len(read.problems) >= MAX_PROBLEMS:
            return


def _take_job(
    entry: Entry,
    job: object,
    lines: Mapping[Path, int],
    columns: Mapping[str, Column],
    read: JobFile,
) -> None:
    if not isinstance(job, dict):
        read.problems.append(entry.problem("", _("A job is a mapping of fields.")))
        return
    entry.lines = {name: lines.get((_JOBS, entry.number, name), entry.line) for name in job}
    for name, value in job.items():
        column = columns.get(name)
        text = unknown_field(name, columns) if column is None else kind_problem(column, value)
        if text is None:
            entry.values[name] = value
        else:
            where = _where((_JOBS, entry.number, name))
            read.problems.append(Problem(entry.lines[name], where, text))
    read.entries.append(entry)


# --- writing -----------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not read as a text; no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    # A text of several lines as one, where YAML can give it back unchanged.
    block = "\n" in text and not re.search(r"[\r\x85\u2028\u2029\ufeff\t]|[ ]\n|^\s", text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None)


_Dumper.add_representer(str, _text)
for _pattern, _tag, _first in (
    (_INTEGER, "int", "-+0123456789"),
    (_NUMBER, "float", "-+.0123456789"),
):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern.pattern})$"), list(_first)
    )


def write_yaml(jobs: Sequence[Mapping[str, Any]]) -> str:
    """A file that ``read_yaml`` reads as these jobs, in the order of their fields."""
    head = {VERSION_KEY: VERSION}
    body = [dict(job) for job in jobs]
    options: dict[str, Any] = {
        "Dumper": _Dumper,
        "sort_keys": False,
        "allow_unicode": True,
        "width": 100,
    }
    text = yaml.dump(head, **options)
    if not body:
        return f"{text}{_JOBS}: []\n"
    parts = [yaml.dump([job], **options) for job in body]
    return f"{text}{_JOBS}:\n" + "\n".join(parts)

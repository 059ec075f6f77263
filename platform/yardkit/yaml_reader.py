"""Safe reader of untrusted YAML: event by event, without recursion or tags.

Plain scalars are read as in YAML 1.2: ``yes``, ``on``, ``12:30``, ``0x10`` and dates are texts. The
order of keys and the line of each value are kept, comments are not. Accepted: one document, keys
that are unique texts, aliases within a budget. Everything else is an error with its line.

An error carries a code and its parameters, so that a caller can translate it; ``str(error)`` is
English.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NULL: Final = re.compile(r"~|null|Null|NULL|")
_BOOLEAN: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
INTEGER: Final = re.compile(r"[-+]?[0-9]+")
NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 30
_SHOWN: Final = 60
_SAID: Final = 200

TEXTS: Final = {
    "too_large": "larger than {limit} bytes",
    "not_utf8": "not UTF-8; save the file as UTF-8",
    "control_character": "a control character, {character}, is refused",
    "bad_character": "a character that cannot be stored (\\u0000 or half of a pair)",
    "not_yaml": "not valid YAML, column {column}: {problem}",
    "not_yaml_at_all": "not valid YAML: {problem}",
    "second_document": "one document only: a second one begins here",
    "too_deep": "nested more than {limit} levels deep",
    "too_many_aliases": "more than {limit} aliases",
    "too_many_values": "more than {limit} values, aliases counted as often as they are used",
    "no_anchor": "there is no anchor {name!r} before this alias; a text that begins with * needs "
    "quotes",
    "bad_name": "the name of a field must be a text",
    "name_without_quotes": "the name of a field must be a text; quote it",
    "duplicate_key": "{name!r} is there twice",
    "merge_key": "merge keys (<<) are not supported; write the fields out",
    "tag": "tags such as {tag} are refused",
    "too_many_digits": "a number has too many digits",
}


class YamlError(ValueError):
    """Invalid YAML: line, code, path and parameters of the first error."""

    def __init__(self, line: int, code: str, path: Path = (), **parameters: Any) -> None:
        super().__init__(TEXTS[code].format(**parameters))
        self.line = line
        # A key of ``TEXTS``.
        self.code = code
        # Where in the values, () at the top.
        self.path = path
        self.parameters = parameters


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Limits of a document."""

    bytes: int = 1024 * 1024
    depth: int = 30
    # Number of values; those of an alias count at each use.
    values: int = 100_000
    aliases: int = 100
    # Deeper values have no line of their own: ``line`` returns that of the enclosing value.
    depth_of_lines: int = 3


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """Values of a document and their lines."""

    root: Any
    lines: dict[Path, int]
    # Number of values, as ``YamlLimits.values`` counts them.
    values: int

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest enclosing value that has one."""
        for length in range(len(path), -1, -1):
            if line_found := self.lines.get(path[:length]):
                return line_found
        return 1


def decode(raw: bytes | str, most: int) -> str:
    """Return the text of at most ``most`` bytes of UTF-8, with or without a byte-order mark.

    Raises:
        YamlError: too large, not UTF-8, or with characters that YAML does not allow.
    """
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    if len(data) > most:
        raise YamlError(1, "too_large", limit=most)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(line, "not_utf8") from error
    text = text.removeprefix("\ufeff")
    if bad := FORBIDDEN.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise YamlError(line, "control_character", character=f"U+{ord(bad[0]):04X}")
    return text


def read_document(
    raw: bytes | str, limits: YamlLimits = YamlLimits(), *, refuse_merge_keys: bool = False
) -> YamlDocument:
    """Read a text with one document; an empty text is None.

    ``refuse_merge_keys`` refuses an unquoted ``<<``, which is otherwise an ordinary key.

    Raises:
        YamlError: the first error.
    """
    builder = _Builder(limits, refuse_merge_keys=refuse_merge_keys)
    text = decode(raw, limits.bytes)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = (error.problem or error.context or "")[:_SAID]
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlError(line, "not_yaml", column=column, problem=said) from error
    except yaml.YAMLError as error:
        said = str(error).replace("\n", " ")[:_SAID]
        raise YamlError(1, "not_yaml_at_all", problem=said) from error
    return YamlDocument(builder.root, builder.lines, builder.values)


def plain_value(text: str, line: int = 1) -> Any:
    """Return the value of a plain scalar. Raises ``YamlError`` for an infinite number."""
    if _NULL.fullmatch(text):
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise YamlError(line, "too_many_digits")
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def shown_path(path: Path) -> str:
    """Return a path in its usual notation: ``jobs[2].cron``."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{_shown(step)}" if parts else _shown(step))
    return "".join(parts)


def _shown(text: str) -> str:
    return text[:_SHOWN].encode("utf-8", "replace").decode()


@dataclass(slots=True)
class _Open:
    """List or mapping that has not ended yet."""

    value: Any
    path: Path
    line: int
    anchor: str | None
    size: int = 1
    key: str | None = None
    names: set[str] = field(default_factory=set)


class _Builder:
    """Builds values from events and records the line of each."""

    def __init__(self, limits: YamlLimits, *, refuse_merge_keys: bool) -> None:
        self.root: Any = None
        self.lines: dict[Path, int] = {}
        self.values = 0
        self._limits = limits
        self._refuse_merge_keys = refuse_merge_keys
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._aliases = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Process one event. Raises ``YamlError``."""
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise YamlError(line, "second_document")
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event.tag, line)
            plain = event.implicit[0] and not event.style
            value = self._scalar(event.value, line, plain=plain)
            if plain and value == "<<" and self._refuse_merge_keys and self._expects_name():
                raise YamlError(line, "merge_key", self._place())
            self._add(value, 1, line, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), line)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._begin(event, line)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            self._end()

    def _begin(self, event: Any, line: int) -> None:
        self._refuse_tag(event.tag, line)
        if len(self._open) >= self._limits.depth:
            raise YamlError(line, "too_deep", self._place(), limit=self._limits.depth)
        if self._expects_name():
            raise YamlError(line, "bad_name", self._place())
        value: Any = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self._open.append(_Open(value, self._place(), line, event.anchor))

    def _end(self) -> None:
        done = self._open.pop()
        self._add(done.value, done.size, done.line, done.anchor)

    def _alias(self, anchor: str, line: int) -> None:
        self._aliases += 1
        if self._aliases > self._limits.aliases:
            raise YamlError(line, "too_many_aliases", limit=self._limits.aliases)
        if anchor not in self._anchors:
            raise YamlError(line, "no_anchor", self._place(), name=_shown(anchor))
        value, size = self._anchors[anchor]
        self._add(value, size, line, None)

    def _add(self, value: Any, size: int, line: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[str(anchor)] = (value, size)
        if not self._open:
            self.root = value
            self.values = size
            self.lines[()] = line
            return
        holder = self._open[-1]
        holder.size += size
        if holder.size > self._limits.values:
            raise YamlError(line, "too_many_values", limit=self._limits.values)
        if isinstance(holder.value, list):
            self._note(line)
            holder.value.append(value)
        elif holder.key is None:
            self._name(holder, value, line)
        else:
            holder.value[holder.key] = value
            holder.key = None

    def _name(self, holder: _Open, value: Any, line: int) -> None:
        if not isinstance(value, str):
            raise YamlError(line, "name_without_quotes", holder.path)
        if value in holder.names:
            raise YamlError(line, "duplicate_key", holder.path, name=_shown(value))
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
        if len(place) <= self._limits.depth_of_lines:
            # A value inside this entry may have recorded its first line already.
            self.lines[place] = min(line, self.lines.get(place, line))

    def _refuse_tag(self, tag: str | None, line: int) -> None:
        if tag is not None:
            raise YamlError(line, "tag", self._place(), tag=_shown(tag))

    def _scalar(self, text: str, line: int, *, plain: bool) -> Any:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise YamlError(line, "bad_character", self._place()) from None
        if "\x00" in text:
            raise YamlError(line, "bad_character", self._place())
        return plain_value(text, line) if plain else text

"""Validate single values of a rule set and report problems with their place and reason."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from apps.routing.engine.files.placeholders import TextTooLong, fill, only_name
from apps.routing.engine.rules import Problem
from yardkit.yaml_reader import Path, YamlDocument, YamlError, plain_value, shown_path

# Maximum number of errors in a report, and separately of warnings.
MAX_PROBLEMS: Final = 100
# Same as for files, so that all stored data can be exported as a file.
MAX_DEPTH: Final = 30
# Maximum number of names for which a similar known name is looked up.
_MOST_HINTS: Final = 1000
# Integers must fit into 64 bits, as in databases and other programs.
_MOST: Final = 2**63
_MOST_CHARACTERS: Final = 100_000
_SHOWN: Final = 60
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Check a selector: returns code, text and offset of the first wrong character, or None if valid.
CheckSelector = Callable[[str], "tuple[str, str, int] | None"]


class Origin(Protocol):
    """Source of values: a file or stored data."""

    def place(self, path: Path) -> str:
        """Return the place of a value as shown in a problem."""

    def said(self, path: Path, text: str) -> str:
        """Return the text of a problem, prefixed by the path unless the place contains it."""


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Origin in a file: places are a file name and a line, such as ``main.yaml:12``."""

    name: str
    document: YamlDocument

    def place(self, path: Path) -> str:
        return f"{self.name}:{self.document.line(path)}"

    def said(self, path: Path, text: str) -> str:
        return f"{shown_path(path)}: {text}" if path else text


@dataclass(frozen=True, slots=True)
class DataOrigin:
    """Origin in stored data: places are paths, such as ``outbound[3].selector[0]``."""

    def place(self, path: Path) -> str:
        return shown_path(path) or "rules"

    def said(self, path: Path, text: str) -> str:
        return text


@dataclass(slots=True)
class Report:
    """Collected problems, at most ``MAX_PROBLEMS`` errors and as many warnings."""

    problems: list[Problem] = field(default_factory=list)
    errors: int = 0
    warnings: int = 0
    # Cache of similar names, so that a name is compared only once.
    hints: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    def nearest(self, name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
        """Return the most similar known name; "" if there is none or too many were looked up."""
        key = (name[:_SHOWN].lower(), tuple(known))
        if key not in self.hints:
            if len(self.hints) >= _MOST_HINTS:
                return ""
            matches = difflib.get_close_matches(key[0], key[1], n=1, cutoff=cutoff)
            self.hints[key] = matches[0] if matches else ""
        return self.hints[key]

    def add(self, problem: Problem) -> None:
        """Add a problem. Beyond the limit, problems are counted but not listed."""
        if problem.warning:
            self.warnings += 1
            if self.warnings <= MAX_PROBLEMS:
                self.problems.append(problem)
            return
        self.errors += 1
        if self.errors <= MAX_PROBLEMS:
            self.problems.append(problem)
        elif self.errors == MAX_PROBLEMS + 1:
            text = f"more than {MAX_PROBLEMS} problems; the rest are not shown"
            self.problems.append(Problem(problem.place, "too_many_problems", text))


@dataclass(frozen=True, slots=True)
class Fields:
    """Reader for the values of one origin. Invalid values are reported and usually read as None."""

    origin: Origin
    report: Report
    # None: placeholders are not substituted.
    placeholders: Mapping[str, str] | None = None
    check_selector: CheckSelector | None = None
    # Data of a newer format version: unknown keys are warnings, not errors.
    newer: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """Return the keys in which stored data keeps the original file and line of an entry."""
        return ("place",) if isinstance(self.origin, DataOrigin) else ()

    def problem(
        self, path: Path, code: str, text: str, *, offset: int | None = None, warning: bool = False
    ) -> None:
        """Report a problem with the value at ``path``."""
        message = self.origin.said(path, text)
        self.report.add(Problem(self.origin.place(path), code, message, offset, warning))

    def wrong(self, path: Path, wanted: str, value: object) -> None:
        """Report a value of the wrong type, without showing the value: it may be a password."""
        hint = ""
        if isinstance(value, Mapping) and len(value) == 1 and [*value.values()] == [None]:
            hint = "; a placeholder needs quotes: '{name}'"
        elif wanted == "a text":
            hint = "; put it in quotes"
        self.problem(path, "wrong_type", f"{wanted} is needed, this is {kind_of(value)}{hint}")

    def mapping(self, value: object, path: Path) -> dict[str, Any]:
        """Read a mapping with string keys; empty if it is missing or not a mapping."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(path, "a mapping", value)
            return {}
        names = [name for name in value if not isinstance(name, str)]
        if names:
            self.problem(path, "bad_key", f"the name {shown(names[0])} must be a text")
        return {name: part for name, part in value.items() if isinstance(name, str)}

    def known(self, given: Iterable[str], known: Iterable[str], path: Path) -> None:
        """Report every name in ``given`` that is not in ``known``."""
        names = [*known]
        for name in given:
            if name not in names:
                self.unknown((*path, name), names)

    def unknown(self, path: Path, known: Iterable[str], hint: str = "") -> None:
        """Report an unknown key, and suggest the most similar known one."""
        name = str(path[-1])
        near = self.report.nearest(name, known)
        text = f"there is no key {shown(name)}" + (f"; is {near} meant?" if near else hint)
        self.problem(path, "unknown_key", text, warning=self.newer)

    def items(self, value: object, path: Path) -> list[tuple[Any, Path]]:
        """Read a list as pairs of value and path; a missing list is empty."""
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.wrong(path, "a list", value)
            return []
        return [(part, (*path, number)) for number, part in enumerate(value)]

    def one_or_more(self, value: object, path: Path) -> list[tuple[Any, Path]]:
        """Read a list, or a single value in place of a list of one, as ``items`` does."""
        return self.items(value if isinstance(value, list | tuple) else [value], path)

    def literal(self, value: object, path: Path) -> str | None:
        """Read a string without substituting placeholders."""
        if not isinstance(value, str):
            self.wrong(path, "a text", value)
            return None
        return value if self._is_text(value, path) else None

    def text(self, value: object, path: Path, *, keep_unknown: bool = False) -> str | None:
        """Read a string and substitute its placeholders."""
        written = self.literal(value, path)
        if written is None or self.placeholders is None:
            return written
        try:
            filled, unknown = fill(written, self.placeholders, keep_unknown=keep_unknown)
        except TextTooLong as error:
            self.problem(path, "too_long", str(error))
            return None
        for name in unknown[:1]:
            near = self.report.nearest(name, self.placeholders)
            text = f"there is no placeholder {{{shown_word(name)}}}"
            text += f"; is {{{near}}} meant?" if near else "; set it in ROUTING_PLACEHOLDERS"
            text += f" (braces of a text are doubled: {{{{{shown_word(name)}}}}})"
            self.problem(path, "unknown_placeholder", text)
        return filled if not unknown and self._is_text(filled, path) else None

    def name(self, value: object, path: Path) -> str | None:
        """Read a name: 1 to 200 characters on one line, without surrounding blanks."""
        found = self.text(value, path)
        if found is None:
            return None
        if not found or found != found.strip() or _CONTROL.search(found) or len(found) > 200:
            text = "a name of 1 to 200 characters on one line is needed, without blanks around it"
            self.problem(path, "bad_name", text)
            return None
        return found

    def whole(self, value: object, path: Path, *, least: int, most: int) -> int | None:
        """Read an integer from ``least`` to ``most``."""
        value = self._filled(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(path, "a whole number", value)
            return None
        if not least <= value <= most:
            self.problem(path, "out_of_range", f"a whole number from {least} to {most} is needed")
            return None
        return value

    def number(self, value: object, path: Path, *, least: float, most: float) -> float | None:
        """Read a number from ``least`` to ``most``."""
        value = self._filled(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(path, "a number", value)
            return None
        if not least <= value <= most:
            self.problem(path, "out_of_range", f"a number from {least:g} to {most:g} is needed")
            return None
        return float(value)

    def truth(self, value: object, path: Path) -> bool | None:
        """Read a boolean."""
        value = self._filled(value)
        if isinstance(value, bool):
            return value
        self.wrong(path, "true or false", value)
        return None

    def texts(self, value: object, path: Path) -> tuple[str, ...] | None:
        """Read a string or a list of strings."""
        entries = [self.text(part, where) for part, where in self.one_or_more(value, path)]
        return tuple(part for part in entries if part is not None)

    def statuses(self, value: object, path: Path) -> tuple[int | str, ...]:
        """Read status values of items, such as 1000 or "timeout": a single value or a list."""
        result: list[int | str] = []
        for part, where in self.one_or_more(value, path):
            if isinstance(part, bool) or not isinstance(part, int | str):
                self.wrong(where, "a whole number or a text", part)
            elif isinstance(part, int):
                number = self.whole(part, where, least=-_MOST, most=_MOST - 1)
                result += [] if number is None else [number]
            else:
                text = self.text(part, where)
                result += [] if text is None else [text]
        return tuple(result)

    def selectors(self, value: object, path: Path) -> tuple[str, ...]:
        """Read and check a selector or a list of selectors. Placeholders are not substituted."""
        result: list[str] = []
        for part, where in self.one_or_more(value, path):
            # First, because it reports the offset of the wrong character.
            if isinstance(part, str) and part.strip() and self.check_selector:
                wrong = self.check_selector(part)
                if wrong:
                    code, message, offset = wrong
                    self.problem(where, code, message, offset=offset)
                    continue
            text = self.literal(part, where)
            if text is None:
                continue
            result.append(text)
            if not text.strip():
                self.problem(where, "empty_selector", "a condition is needed here", offset=0)
        return tuple(result)

    def plain(self, value: object, path: Path, *, keep_unknown: bool = False) -> Any:
        """Read any JSON value, substituting placeholders in its strings."""
        if isinstance(value, Mapping | list | tuple) and len(path) >= MAX_DEPTH:
            self.problem(path[:6], "too_deep", f"nested more than {MAX_DEPTH} levels deep")
            return None
        if isinstance(value, str):
            return self.text(value, path, keep_unknown=keep_unknown)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.whole(value, path, least=-_MOST, most=_MOST - 1)
        if isinstance(value, float):
            if not math.isfinite(value):
                self.problem(path, "out_of_range", "the number is too large")
            return value
        if isinstance(value, Mapping):
            return {
                name: self.plain(part, (*path, name), keep_unknown=keep_unknown)
                for name, part in self.mapping(value, path).items()
                if self._is_text(name, path)
            }
        if isinstance(value, list | tuple):
            return [
                self.plain(part, where, keep_unknown=keep_unknown)
                for part, where in self.items(value, path)
            ]
        self.wrong(path, "a value of JSON", value)
        return None

    def _filled(self, value: object) -> object:
        """Parse the value of a text that is a single placeholder like an unquoted YAML value."""
        if isinstance(value, str) and self.placeholders and (name := only_name(value)):
            try:
                return plain_value(self.placeholders.get(name, value))
            except YamlError:
                return value
        return value

    def _is_text(self, text: str, path: Path) -> bool:
        if len(text) > _MOST_CHARACTERS:
            text = f"a text of at most {_MOST_CHARACTERS} characters is needed"
            self.problem(path, "too_long", text)
            return False
        try:
            text.encode()
        except UnicodeEncodeError:
            return self._bad_character(path)
        return self._bad_character(path) if "\x00" in text else True

    def _bad_character(self, path: Path) -> bool:
        text = "a character that cannot be stored (\\u0000 or half of a pair)"
        self.problem(path, "bad_character", text)
        return False


def shown(value: object) -> str:
    """Format a name for a message: shortened, on one line, in quotes."""
    return f"'{shown_word(str(value))}'"


def shown_word(text: str, most: int = _SHOWN) -> str:
    """Format a word for a message: shortened to ``most`` characters, on one line."""
    return one_line(text[:most])


def one_line(text: str) -> str:
    """Replace line breaks, control characters and lone surrogates by question marks."""
    return _CONTROL.sub("?", text).encode("utf-8", "replace").decode()


def same(one: object, other: object) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 and true differ."""
    try:
        return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        # Not JSON values; the reader of the value reports that.
        return False


def kind_of(value: object) -> str:
    """Return the type of a value in words."""
    words = {
        str: "a text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        list: "a list",
        tuple: "a list",
        dict: "a mapping",
        type(None): "empty",
    }
    return words.get(type(value), type(value).__name__)

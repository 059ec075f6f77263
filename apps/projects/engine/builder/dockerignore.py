"""Rules of ``.dockerignore``: files excluded from the context, as by the Docker client.

Patterns are translated to RE2, whose matching time is linear: the file is untrusted.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any, Final

import re2

from apps.projects.engine.builder.control import BuildStepFailed

MAX_PATTERNS: Final = 1000
MAX_PATTERN_CHARACTERS: Final = 500
_ESCAPED: Final = frozenset(".+()|{}$")


@dataclass(frozen=True)
class _Rule:
    pattern: Any
    includes: bool


class Ignoring:
    """Rules of one ``.dockerignore`` file; the last rule that matches a path decides."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.lstrip("\ufeff").splitlines()]
        wanted = [line for line in lines if line and not line.startswith("#")]
        if len(wanted) > MAX_PATTERNS:
            raise BuildStepFailed("ignore_too_many", limit=MAX_PATTERNS)
        self._rules = [rule for line in wanted if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str) -> bool:
        """Return whether a relative path is excluded; a rule for a folder covers its content."""
        parts = path.split("/")
        prefixes = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
        out = False
        for rule in self._rules:
            if rule.includes == out and any(rule.pattern.fullmatch(prefix) for prefix in prefixes):
                out = not rule.includes
        return out


def _rule(line: str) -> _Rule | None:
    includes = line.startswith("!")
    text = posixpath.normpath(line[includes:].strip() or ".").lstrip("/")
    if text in (".", ""):
        return None
    if len(text) > MAX_PATTERN_CHARACTERS:
        raise BuildStepFailed("ignore_bad_pattern", pattern=line)
    options = re2.Options()
    options.log_errors = False
    # Memory limit of RE2: sufficient for 1,000 rules with long names.
    try:
        return _Rule(re2.compile(_translated(text), options), includes)
    except re2.error as error:
        raise BuildStepFailed("ignore_bad_pattern", pattern=line) from error


def _translated(text: str) -> str:
    pattern, at = "", 0
    while at < len(text):
        character, at = text[at], at + 1
        if character == "*" and text[at : at + 1] == "*":
            at += 1
            if text[at : at + 1] == "/":
                at += 1
            pattern += ".*" if at >= len(text) else "(.*/)?"
        elif character == "*":
            pattern += "[^/]*"
        elif character == "?":
            pattern += "[^/]"
        elif character == "\\":
            pattern += re2.escape(text[at : at + 1]) if at < len(text) else r"\\"
            at += 1
        elif character in _ESCAPED:
            pattern += "\\" + character
        else:
            pattern += character
    return f"(?s){pattern}"

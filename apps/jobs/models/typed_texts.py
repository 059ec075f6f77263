"""Text forms of commands, environments and tags: parsing and formatting."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from apps.jobs.arguments import MAX_BYTES, parse_json
from apps.jobs.models.execution_rules import MAX_ENVIRONMENT_CHARACTERS, shown

# Quotes and escapes make the text longer than the environment.
MOST_CHARACTERS: Final = 2 * MAX_ENVIRONMENT_CHARACTERS
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_QUOTED = re.compile(r"""\"([^"]*)\"|'([^']*)'""")


def parse_command(text: str) -> list[str]:
    """Split a command line by the quoting rules of a shell, without running a shell.

    Raises:
        ValidationError: an open quote, or shell syntax other than quoting.
    """
    _check_length(text, MAX_BYTES)
    if not text.strip():
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        if "escape" in str(error).lower():
            raise ValidationError(_("The backslash at the end escapes nothing.")) from error
        raise ValidationError(_("A quotation mark is not closed.")) from error


def format_command(words: list[str]) -> str:
    """Return a command line that ``parse_command`` splits into these words."""
    return shlex.join(words)


def parse_environment(text: str) -> dict[str, Any]:
    """Parse ``NAME=value`` separated by spaces or line breaks, or a JSON object.

    Values may be quoted; backslashes are literal.

    Raises:
        ValidationError: the message names the line, never a value.
    """
    _check_length(text, MOST_CHARACTERS)
    if text.lstrip().startswith("{"):
        return _object(parse_json(text, limit=MOST_CHARACTERS))
    variables: dict[str, Any] = {}
    for line, word in _words(re.sub(r"\r\n?", "\n", text)):
        name, separator, value = word.partition("=")
        if not separator:
            raise ValidationError(
                _(
                    "Line %(line)d: “=” is missing. Write NAME=value, and quote values with "
                    'spaces: NAME="two words".'
                ),
                params={"line": line},
            )
        _add(variables, name, value, line)
    return variables


def parse_secrets(text: str) -> dict[str, Any]:
    """Parse one ``NAME=value`` per line, with literal values, or a JSON object.

    Raises:
        ValidationError: the message names the line, never a value.
    """
    _check_length(text, MOST_CHARACTERS)
    if text.lstrip().startswith("{"):
        return _object(parse_json(text, limit=MOST_CHARACTERS))
    secrets: dict[str, Any] = {}
    for line, words in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if not words.strip():
            continue
        name, separator, value = words.partition("=")
        if not separator:
            raise ValidationError(
                _("Line %(line)d has no “=”; write NAME=value."), params={"line": line}
            )
        _add(secrets, name.strip(), value, line)
    return secrets


def format_environment(values: Mapping[str, Any]) -> str:
    """Return one ``NAME=value`` per line, in the format of ``parse_environment``."""
    return "\n".join(f"{name}={_quoted(str(value))}" for name, value in values.items())


def parse_tags(text: str) -> list[str]:
    """Parse words separated by spaces or commas; duplicates are removed."""
    _check_length(text, MAX_BYTES)
    return list(dict.fromkeys(word for word in re.split(r"[\s,;，；]+", text) if word))


def _quoted(value: str) -> str:
    # Like shlex.quote, for a parser without escapes.
    return shlex.quote(value) if value else ""


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield each word with the number of the line where it begins."""
    place = 0
    while (begin := _SPACE.match(text, place).end()) < len(text):  # type: ignore[union-attr]
        line = text.count("\n", 0, begin) + 1
        word = _WORD.match(text, begin)
        if word is None or (word.end() < len(text) and text[word.end()] in "\"'"):
            raise ValidationError(
                _("Line %(line)d: a quotation mark is not closed."), params={"line": line}
            )
        yield line, _QUOTED.sub(lambda found: found[1] or found[2] or "", word[0])
        place = word.end()


def _add(found: dict[str, Any], name: str, value: str, line: int) -> None:
    if name in found:
        raise ValidationError(
            _("Line %(line)d: %(name)s occurs twice."), params={"line": line, "name": shown(name)}
        )
    found[name] = value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValidationError(_('Enter an object of texts such as {"DEPTH": "3"}.'))
    return value


def _check_length(text: str, limit: int) -> None:
    if len(text) > limit:
        raise ValidationError(_("Longer than %(limit)d characters."), params={"limit": limit})

"""Parameters of outbound classes under ``init``, and their validation."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import re2

# Return what is wrong with a value; "" if it is valid.
Check = Callable[[Any], str]

_KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    list: "a list",
}
_MASK: Final = "***"
_PLACEHOLDER: Final = re.compile(r"\{\w+\}")
# Query parameters of a URL with a secret-like name, and their values. Uses re2, because the
# backtracking of ``re`` would take hours on a long URL with many consecutive question marks.
SECRET_QUERY: Final = re2.compile(
    r"(?i)([?&;][^=&;]*(?:pass|secret|token|key|auth|sign)[^=&;]*=)[^&;#]*"
)
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of an outbound class; a missing or null value means ``default``."""

    kind: type
    required: bool = False
    default: Any = None
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class ParameterError:
    """Validation error of one key; the text never contains a secret."""

    key: str
    code: str
    text: str


def read(init: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the value of each parameter. Raises ``ValueError`` that lists all errors."""
    faults = list(parameter_errors(init, parameters))
    if faults:
        raise ValueError("; ".join(fault.text for fault in faults))
    return {
        name: parameter.default if init.get(name) is None else init[name]
        for name, parameter in parameters.items()
    }


def parameter_errors(
    init: Mapping[str, Any], parameters: Mapping[str, Parameter]
) -> Iterable[ParameterError]:
    """Yield all validation errors, those of unknown keys first."""
    for name in init:
        if name not in parameters:
            near = nearest(name, parameters)
            text = f"init.{name} is no parameter of this class; {near}"
            yield ParameterError(name, "unknown_parameter", text)
    for name, parameter in parameters.items():
        value = init.get(name)
        if value is None:
            if parameter.required:
                yield ParameterError(
                    name, "missing_parameter", f"init.{name} is needed, {_a(parameter)}"
                )
            continue
        if not _is(value, parameter.kind):
            text = f"init.{name} must be {_a(parameter)}, this is {_kind_of(value)}"
            yield ParameterError(name, "wrong_parameter", text)
            continue
        wrong = parameter.check(value) if parameter.check is not None else ""
        if wrong:
            yield ParameterError(name, "wrong_parameter", f"init.{name}: {wrong}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with similar or all known names, to append to an error message."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}" if known else "there is none"


def _is(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    if kind is dict:
        return isinstance(value, Mapping)
    if kind is list:
        return isinstance(value, list | tuple)
    return isinstance(value, kind)


def _a(parameter: Parameter) -> str:
    return _KINDS.get(parameter.kind, parameter.kind.__name__)


def _kind_of(value: Any) -> str:
    return next((word for kind, word in _KINDS.items() if _is(value, kind)), type(value).__name__)


# --- checks -------------------------------------------------------------------------------------


def name_of(what: str, most_bytes: int) -> Check:
    """Return a check for names: 1 to ``most_bytes`` UTF-8 bytes without NUL."""

    def check(value: str) -> str:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            return f"{what} is no valid text"
        if not 0 < size <= most_bytes or "\x00" in value:
            return f"{what} has 1 to {most_bytes} bytes and no character 0"
        return ""

    return check


def between(least: float, most: float) -> Check:
    """Return a check for numbers in an inclusive range."""

    def check(value: float) -> str:
        return "" if least <= value <= most else f"{value} is not between {least} and {most}"

    return check


def url_of(schemes: Iterable[str], form: str) -> Check:
    """Return a check for URLs with a host; its messages mask the secrets of the URL."""
    schemes = frozenset(schemes)

    def check(value: str) -> str:
        if _PLACEHOLDER.search(value.partition("?")[0]):
            return f"a placeholder stands where the address should be; use {form}"
        # Check first, because ``urlsplit`` silently removes line breaks and tabs.
        if _CONTROL.search(value):
            return f"the address has a blank or a control character; use {form}"
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            return f"the address cannot be read; use {form}"
        if parts.scheme.lower() not in schemes:
            return f"{masked(value)} is no address for this class; use {form}"
        if not parts.hostname:
            return f"{masked(value)} names no host; use {form}"
        if port == 0:
            return f"{masked(value)} has port 0; use {form}"
        return ""

    return check


def masked(url: str) -> str:
    """Return the URL with passwords and secret query values masked, for display and logs."""
    try:
        parts = urlsplit(url)
        password, name = parts.password, parts.username
    except ValueError:
        return _MASK
    if "@" in url and not parts.netloc:
        return _MASK
    if "@" in parts.netloc:
        user = _MASK if password is None else f"{name or ''}:{_MASK}"
        parts = parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}")
    return str(SECRET_QUERY.sub(rf"\1{_MASK}", urlunsplit(parts)))

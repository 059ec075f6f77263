"""Typed settings from the environment, with secrets from files and helpful errors.

``NAME``, or the content of the file ``NAME_FILE``. An empty variable counts as not set. Invalid
values raise ``EnvError`` with the setting, the problem and the fix, without the value of a secret.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, overload
from urllib.parse import urlsplit

from yardkit.names import CONTROL

T = TypeVar("T")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_SHOWN_CHARACTERS = 60


class EnvError(ValueError):
    """An invalid setting. ``str()`` is one line for the operator.

    ``EnvError("PORT", "'x' is no whole number", "use one such as 8000")``, or a whole line that
    starts with the name: ``EnvError("DATABASE_URL: not understood")``.
    """

    def __init__(self, name: str, problem: str = "", remedy: str = "") -> None:
        text = f"{name}: {problem}; {remedy}" if problem else name
        self.name = text.partition(":")[0]
        super().__init__(text)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that was read, for pages and tests that list all settings."""

    name: str
    kind: str
    default: Any
    secret: bool
    given: bool


class Env:
    """Typed reader of ``environ``.

    Defaults are returned unchanged; without one an unset setting raises ``EnvError``. ``settings``
    lists every setting that was read.
    """

    def __init__(self, environ: Mapping[builtins.str, builtins.str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.settings: dict[builtins.str, Setting] = {}

    @overload
    def str(
        self,
        name: builtins.str,
        default: builtins.str | _Required = REQUIRED,
        *,
        choices: Sequence[builtins.str] | None = None,
    ) -> builtins.str: ...
    @overload
    def str(
        self, name: builtins.str, default: None, *, choices: Sequence[builtins.str] | None = None
    ) -> builtins.str | None: ...
    def str(
        self,
        name: builtins.str,
        default: builtins.str | _Required | None = REQUIRED,
        *,
        choices: Sequence[builtins.str] | None = None,
    ) -> builtins.str | None:
        """Text; one of ``choices`` where given."""

        def convert(value: builtins.str) -> builtins.str:
            if choices is not None and value not in choices:
                raise EnvError(
                    name, f"{_shown(value)} is none of its values", f"use {_listed(choices)}"
                )
            return value

        return self._get(name, "text", default, convert)

    @overload
    def int(
        self,
        name: builtins.str,
        default: builtins.int | _Required = REQUIRED,
        *,
        minimum: builtins.int | None = None,
        maximum: builtins.int | None = None,
    ) -> builtins.int: ...
    @overload
    def int(
        self,
        name: builtins.str,
        default: None,
        *,
        minimum: builtins.int | None = None,
        maximum: builtins.int | None = None,
    ) -> builtins.int | None: ...
    def int(
        self,
        name: builtins.str,
        default: builtins.int | _Required | None = REQUIRED,
        *,
        minimum: builtins.int | None = None,
        maximum: builtins.int | None = None,
    ) -> builtins.int | None:
        """A whole number, inside ``minimum`` and ``maximum`` where given."""

        def convert(value: builtins.str) -> builtins.int:
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
                raise EnvError(name, f"{_shown(value)} is no whole number", "use one such as 10")
            number = builtins.int(value)
            _check_range(name, number, minimum, maximum)
            return number

        return self._get(name, "whole number", default, convert)

    @overload
    def float(
        self,
        name: builtins.str,
        default: builtins.float | _Required = REQUIRED,
        *,
        minimum: builtins.float | None = None,
        maximum: builtins.float | None = None,
    ) -> builtins.float: ...
    @overload
    def float(
        self,
        name: builtins.str,
        default: None,
        *,
        minimum: builtins.float | None = None,
        maximum: builtins.float | None = None,
    ) -> builtins.float | None: ...
    def float(
        self,
        name: builtins.str,
        default: builtins.float | _Required | None = REQUIRED,
        *,
        minimum: builtins.float | None = None,
        maximum: builtins.float | None = None,
    ) -> builtins.float | None:
        """A finite number, inside ``minimum`` and ``maximum`` where given."""

        def convert(value: builtins.str) -> builtins.float:
            if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", value):
                raise EnvError(name, f"{_shown(value)} is no number", "use one such as 2.5")
            number = builtins.float(value)
            _check_range(name, number, minimum, maximum)
            return number

        return self._get(name, "number", default, convert)

    @overload
    def bool(
        self, name: builtins.str, default: builtins.bool | _Required = REQUIRED
    ) -> builtins.bool: ...
    @overload
    def bool(self, name: builtins.str, default: None) -> builtins.bool | None: ...
    def bool(
        self, name: builtins.str, default: builtins.bool | _Required | None = REQUIRED
    ) -> builtins.bool | None:
        """1, true, yes, on or 0, false, no, off; in any letter case."""

        def convert(value: builtins.str) -> builtins.bool:
            if value.lower() in _TRUE:
                return True
            if value.lower() in _FALSE:
                return False
            raise EnvError(name, f"{_shown(value)} is neither true nor false", "use true or false")

        return self._get(name, "true or false", default, convert)

    def list(
        self,
        name: builtins.str,
        default: Sequence[builtins.str] | _Required = REQUIRED,
        *,
        separator: builtins.str = ",",
    ) -> builtins.list[builtins.str]:
        """Texts between separators, stripped, without empty ones."""

        def convert(value: builtins.str) -> builtins.list[builtins.str]:
            return [part.strip() for part in value.split(separator) if part.strip()]

        return builtins.list(self._get(name, "list", default, convert))

    @overload
    def path(
        self, name: builtins.str, default: Path | builtins.str | _Required = REQUIRED
    ) -> Path: ...
    @overload
    def path(self, name: builtins.str, default: None) -> Path | None: ...
    def path(
        self, name: builtins.str, default: Path | builtins.str | _Required | None = REQUIRED
    ) -> Path | None:
        """A path, ``~`` expanded; it need not exist."""

        def convert(value: builtins.str) -> Path:
            try:
                return Path(value).expanduser()
            except RuntimeError as error:
                raise EnvError(
                    name, f"the home folder in {_shown(value)} is unknown", "write the whole path"
                ) from error

        found = self._get(name, "path", default, convert)
        return Path(found) if isinstance(found, builtins.str) else found

    @overload
    def url(
        self,
        name: builtins.str,
        default: builtins.str | _Required = REQUIRED,
        *,
        schemes: Sequence[builtins.str] = (),
    ) -> builtins.str: ...
    @overload
    def url(
        self, name: builtins.str, default: None, *, schemes: Sequence[builtins.str] = ()
    ) -> builtins.str | None: ...
    def url(
        self,
        name: builtins.str,
        default: builtins.str | _Required | None = REQUIRED,
        *,
        schemes: Sequence[builtins.str] = (),
    ) -> builtins.str | None:
        """A URL with one of ``schemes``. It may hold a password, so no error repeats it."""

        def convert(value: builtins.str) -> builtins.str:
            remedy = f"use {_listed([f'{scheme}://...' for scheme in schemes or ('scheme',)])}"
            problem = _url_problem(value, schemes)
            if problem:
                raise EnvError(name, problem, remedy)
            return value

        return self._get(name, "URL", default, convert)

    @overload
    def secret(
        self, name: builtins.str, default: builtins.str | _Required = REQUIRED
    ) -> builtins.str: ...
    @overload
    def secret(self, name: builtins.str, default: None) -> builtins.str | None: ...
    def secret(
        self, name: builtins.str, default: builtins.str | _Required | None = REQUIRED
    ) -> builtins.str | None:
        """Text that no error, listing or log may show."""
        return self._get(name, "secret", default, lambda value: value, secret=True)

    def file_of(self, name: builtins.str) -> Path | None:
        """Return the file that holds the value, for watching it; None: the value is in the
        variable.
        """
        file = self._environ.get(f"{name}_FILE", "")
        return Path(file) if file else None

    def _get(
        self,
        name: builtins.str,
        kind: builtins.str,
        default: T | _Required,
        convert: Callable[[builtins.str], T],
        *,
        secret: builtins.bool = False,
    ) -> T:
        value = self._raw(name)
        shown = default if not secret or default in (None, REQUIRED) else "(hidden)"
        self.settings[name] = Setting(name, kind, shown, secret, value is not None)
        if value is not None:
            return convert(value if secret else value.strip())
        if isinstance(default, _Required):
            article = "a" if kind[0].lower() not in "aeiou" else "an"
            expected = f"{article} {kind}" if kind not in ("text", "true or false") else kind
            raise EnvError(name, "it is not set", f"set {name} or {name}_FILE ({expected})")
        return default

    def _raw(self, name: builtins.str) -> builtins.str | None:
        value = self._environ.get(name, "")
        file_name = f"{name}_FILE"
        file = self._environ.get(file_name, "")
        if not file:
            return value if value.strip() else None
        if value:
            raise EnvError(name, f"both {name} and {file_name} are set", "keep one of them")
        try:
            content = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise EnvError(
                file_name,
                f"cannot read {_shown(file)} ({error.strerror or error})",
                "name a file this process may read",
            ) from error
        except ValueError as error:
            raise EnvError(
                file_name, f"{_shown(file)} is no UTF-8 text", "write the value as plain text"
            ) from error
        content = content.rstrip("\r\n")
        if not content.strip():
            raise EnvError(file_name, f"{_shown(file)} is empty", "write the value into it")
        return content


def _check_range(name: str, number: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and number < minimum:
        raise EnvError(name, f"{number} is too small", f"use {minimum} or more")
    if maximum is not None and number > maximum:
        raise EnvError(name, f"{number} is too large", f"use {maximum} or less")


def _url_problem(value: str, schemes: Sequence[str]) -> Literal[""] | str:
    if CONTROL.search(value) or " " in value:
        return "its URL holds a blank or a control character"
    scheme, separator, _ = value.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return "its value is no URL"
    if schemes and scheme.lower() not in schemes:
        return f"its URL starts with {_shown(scheme)}://"
    try:
        port = urlsplit(value).port
    except ValueError:
        return "the host or port of its URL cannot be read"
    return "its URL has port 0" if port == 0 else ""


def _shown(value: str) -> str:
    cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "..."
    return repr(cut)


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values[:-1]) + (" or " if len(values) > 1 else "") + values[-1]

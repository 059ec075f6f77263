"""What a kind of configuration must be able to do, and which kinds there are.

An app registers its kind when it starts::

    class RoutingKind(Kind):
        name = "routing"
        title = _("Routing rules")

        def check(self, data): ...

    register(RoutingKind())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Protocol

from apps.configcenter.engine.diffs import DataChange, changes
from apps.configcenter.engine.plain import MAX_BYTES, Data
from apps.configcenter.engine.texts import read_json, write_json
from yardkit.names import IDENTIFIER
from yardkit.yaml_reader import YamlError, YamlLimits, read_document, shown_path
from yardkit.yaml_writer import write_value

_LIMITS: Final = YamlLimits(bytes=MAX_BYTES)


class Problem(Protocol):
    """Validation problem that a kind reports; ``str()`` is one line with place and text."""

    @property
    def place(self) -> str:
        """``main.yaml:12`` or ``outbound[3].selector[0]``."""

    @property
    def code(self) -> str:
        """Stable code for programs."""

    @property
    def text(self) -> str:
        """Text for people."""

    @property
    def warning(self) -> bool:
        """True if the data may be saved and activated in spite of it."""


@dataclass(frozen=True, slots=True)
class DataProblem:
    """``Problem`` of kinds that have no problem class of their own."""

    place: str
    code: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class Unreadable(ValueError):
    """The text cannot be parsed; ``problems`` say where."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = list(problems)


class UnknownKindName(KeyError):
    """No app has registered a kind of this name."""


class ConfigKind:
    """Base of every kind. A subclass must define ``name``, ``title`` and ``check``.

    All methods are pure: equal data gives equal results; they use neither database nor network.
    """

    name: ClassVar[str]
    # May be a lazy translation.
    title: ClassVar[object]
    # File name extension of exported files.
    suffix: ClassVar[str] = "json"
    media_type: ClassVar[str] = "application/json"
    # Whether the platform has a configuration of this kind in addition to those of projects.
    platform: ClassVar[bool] = False

    def check(self, data: Data) -> Iterable[Problem]:
        """Return the problems of ``data``; errors forbid saving and activating, warnings do not."""
        raise NotImplementedError

    def check_change(self, old: Data, new: Data, now: datetime) -> Iterable[Problem]:
        """Return the problems of replacing the active ``old`` by ``new``; both are valid."""
        return ()

    def diff(self, old: Data, new: Data) -> list[DataChange]:
        """Return the differences from ``old`` to ``new`` in the order of the data."""
        return changes(old, new)

    def public(self, data: Data) -> Data:
        """Return the data with secret values masked, for users who may view but not edit."""
        return data

    def summary(self, data: Data) -> str:
        """Return a short summary for lists: ``3 inbounds, 12 outbounds``."""
        return ", ".join(
            f"{name}: {len(value) if isinstance(value, list | dict) else value}"
            for name, value in list(data.items())[:6]
        )[:200]

    def read(self, raw: bytes, name: str = "") -> Data:
        """Parse the text form; ``name`` is the file name. Raises ``Unreadable``."""
        try:
            return read_json(raw)
        except ValueError as error:
            raise Unreadable([DataProblem(name, "unreadable", str(error))]) from None

    def read_file(self, path: Path) -> Data:
        """Parse a file and the files it includes. Raises ``Unreadable`` and ``OSError``."""
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            text = f"a configuration has at most {MAX_BYTES} bytes"
            raise Unreadable([DataProblem(str(path), "too_large", text)])
        return self.read(raw, str(path))

    def places(self, path: Path) -> Mapping[str, str]:
        """Return where parts of a file's data stand, for kinds whose files include others.

        Keys are places of ``check``, such as ``outbound[3]``, values ``sub/b.yaml:12``.
        """
        return {}

    def write(self, data: Data) -> str:
        """Serialize data to the text form that ``read`` parses."""
        return write_json(data)


class YamlKind(ConfigKind):
    """Base of kinds whose text form is YAML, of which JSON is a subset."""

    suffix: ClassVar[str] = "yaml"
    media_type: ClassVar[str] = "application/yaml"
    # Description of the expected mapping, for the error about a text that is not a mapping.
    shape: ClassVar[str] = "a configuration is a mapping"

    def read(self, raw: bytes, name: str = "") -> Data:
        """Parse a YAML mapping; an empty text is an empty mapping. Raises ``Unreadable``."""
        try:
            root = read_document(raw, _LIMITS).root
        except YamlError as error:
            where = shown_path(error.path)
            text = f"{where}: {error}" if where else str(error)
            place = f"{name}:{error.line}" if name else f"line {error.line}"
            raise Unreadable([DataProblem(place, error.code, text)]) from None
        if root is None:
            return {}
        if not isinstance(root, dict):
            raise Unreadable([DataProblem(name, "not_a_mapping", self.shape)])
        return root

    def write(self, data: Data) -> str:
        """Serialize data to YAML."""
        return write_value(data)


_kinds: dict[str, ConfigKind] = {}


def register(kind: ConfigKind) -> None:
    """Register a kind. Raises ``ValueError`` for an invalid or duplicate name."""
    if not IDENTIFIER.fullmatch(kind.name):
        raise ValueError(f"{kind.name!r} cannot be the name of a kind")
    if kind.name in _kinds and type(_kinds[kind.name]) is not type(kind):
        raise ValueError(f"kind {kind.name} is already registered")
    _kinds[kind.name] = kind


def find_kind(name: str) -> ConfigKind:
    """Return the registered kind of that name. Raises ``UnknownKindName``."""
    try:
        return _kinds[name]
    except KeyError:
        raise UnknownKindName(name) from None


def all_kinds() -> list[ConfigKind]:
    """Return all registered kinds by name."""
    return [_kinds[name] for name in sorted(_kinds)]

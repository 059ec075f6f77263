"""What a kind of configuration must be able to do, and which kinds there are.

An app registers its kind when it starts::

    class RoutingKind(Kind):
        name = "routing"
        title = _("Routing rules")

        def check(self, data): ...

    register(RoutingKind())
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, Protocol

from apps.configcenter.engine.diffs import DataChange, changes
from apps.configcenter.engine.plain import MAX_BYTES, Data
from apps.configcenter.engine.texts import read_json, write_json
from yardkit.yaml_reader import YamlError, YamlLimits, read_document, shown_path
from yardkit.yaml_writer import write_value

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_LIMITS: Final = YamlLimits(bytes=MAX_BYTES)


class Problem(Protocol):
    """Something a kind has found; ``str`` of it is one line that says where and what."""

    @property
    def place(self) -> str:
        """``main.yaml:12`` or ``outbound[3].selector[0]``."""

    @property
    def code(self) -> str:
        """Stable, for programs."""

    @property
    def text(self) -> str:
        """For people."""

    @property
    def warning(self) -> bool:
        """It may be saved and run all the same."""


@dataclass(frozen=True, slots=True)
class DataProblem:
    """A ``Problem`` for kinds that have no class of their own."""

    place: str
    code: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class Unreadable(ValueError):
    """A text is no data at all; ``problems`` say where."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(each) for each in problems))
        self.problems = list(problems)


class UnknownKindName(KeyError):
    """No app has registered a kind of this name."""


class ConfigKind:
    """Base of every kind. Only ``name``, ``title`` and ``check`` are a kind's duty.

    All methods are pure: the same data, the same answer, no database and no network.
    """

    name: ClassVar[str]
    # May be a lazy translation.
    title: ClassVar[object]
    # Of exported files.
    suffix: ClassVar[str] = "json"
    media_type: ClassVar[str] = "application/json"
    # Whether the platform has one, too, beside those of projects.
    platform: ClassVar[bool] = False

    def check(self, data: Data) -> Iterable[Problem]:
        """What is wrong with ``data``; one that is no warning forbids saving and activating."""
        raise NotImplementedError

    def check_change(self, old: Data, new: Data, now: datetime) -> Iterable[Problem]:
        """What is wrong with ``new`` taking the place of the active ``old``. Both are checked."""
        return ()

    def diff(self, old: Data, new: Data) -> list[DataChange]:
        """What changes from ``old`` to ``new``, in the order of the data."""
        return changes(old, new)

    def public(self, data: Data) -> Data:
        """The data for those who may look and not edit: without what is secret in it."""
        return data

    def summary(self, data: Data) -> str:
        """A few words for lists: ``3 inbounds, 12 outbounds``."""
        return ", ".join(
            f"{name}: {len(value) if isinstance(value, list | dict) else value}"
            for name, value in list(data.items())[:6]
        )[:200]

    def read(self, raw: bytes, name: str = "") -> Data:
        """Data of its text form; ``name`` is the file's. Raises ``Unreadable``."""
        try:
            return read_json(raw)
        except ValueError as error:
            raise Unreadable([DataProblem(name, "unreadable", str(error))]) from None

    def read_file(self, path: Path) -> Data:
        """Data of a file, and of those it includes. Raises ``Unreadable`` and ``OSError``."""
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
        """The text form, which ``read`` reads back."""
        return write_json(data)


class YamlKind(ConfigKind):
    """Base of kinds whose text is YAML, and so JSON as well."""

    suffix: ClassVar[str] = "yaml"
    media_type: ClassVar[str] = "application/yaml"
    # What a text has to be, for the error about one that is not a mapping.
    shape: ClassVar[str] = "a configuration is a mapping"

    def read(self, raw: bytes, name: str = "") -> Data:
        """The mapping that it is; of nothing an empty one. Raises ``Unreadable``."""
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
        """YAML, which ``read`` reads back."""
        return write_value(data)


_kinds: dict[str, ConfigKind] = {}


def register(kind: ConfigKind) -> None:
    """Make a kind known. Raises ``ValueError`` for a bad name or one that is taken."""
    if not _NAME.fullmatch(kind.name):
        raise ValueError(f"{kind.name!r} cannot be the name of a kind")
    if kind.name in _kinds and type(_kinds[kind.name]) is not type(kind):
        raise ValueError(f"there is a kind {kind.name} already")
    _kinds[kind.name] = kind


def find_kind(name: str) -> ConfigKind:
    """The kind of that name. Raises ``UnknownKindName``."""
    try:
        return _kinds[name]
    except KeyError:
        raise UnknownKindName(name) from None


def all_kinds() -> list[ConfigKind]:
    """Every kind, by name."""
    return [_kinds[name] for name in sorted(_kinds)]

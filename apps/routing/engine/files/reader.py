"""Reader for rule sets in taskHUB's YAML; reports all problems at once.

The order of keys and entries is preserved, comments are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from apps.routing.engine.files.classes import ClassParameters, known_parameters
from apps.routing.engine.files.fields import (
    MAX_DEPTH,
    CheckSelector,
    DataOrigin,
    Fields,
    FileOrigin,
    Report,
    shown,
    shown_word,
)
from apps.routing.engine.files.folder import MAX_FILE_BYTES, MAX_FILES, FileRefused, Folder
from apps.routing.engine.files.ruleset import ENTRIES, INCLUDE, MAIN_KEYS, Builder
from apps.routing.engine.rules import Problem, RuleSet
from yardkit.yaml_reader import YamlDocument, YamlError, YamlLimits, read_document, shown_path

MAX_VALUES: Final = 400_000
MAX_ALL_VALUES: Final = MAX_VALUES
_LIMITS: Final = YamlLimits(
    bytes=MAX_FILE_BYTES, depth=MAX_DEPTH, values=MAX_VALUES, aliases=1000, depth_of_lines=8
)

Read = tuple[RuleSet | None, list[Problem]]


def read_rules(
    source: Path | str | bytes,
    placeholders: Mapping[str, str] | None,
    *,
    name: str = "main.yaml",
    class_parameters: ClassParameters = known_parameters,
    check_selector: CheckSelector | None = None,
) -> Read:
    """Read a rule set from a file or a text and return it with the problems found.

    The rule set is None if any problem is an error. Invalid rules raise no exception.

    - ``source``: path of the main file, or its text. A text cannot include other files.
    - ``placeholders``: values by name; None leaves placeholders for ``from_data`` to substitute.
    - ``name``: file name for the problems of a text.
    """
    report = Report()
    blank = Fields(DataOrigin(), report, placeholders, check_selector)
    reader = _Files(blank, Folder(source) if isinstance(source, Path) else None)
    main = reader.main(source, source.name if isinstance(source, Path) else name)
    if main is None:
        return None, report.problems
    fields, root = main
    builder = Builder(class_parameters)
    for included_fields, included_root in reader.included(fields, root):
        builder.add_entries(included_fields, included_root)
    builder.add_entries(fields, root)
    rules = builder.build(fields, root)
    return (None if report.errors else rules), report.problems


class _Files:
    """Reads the main file and its includes and reports their problems."""

    def __init__(self, blank: Fields, folder: Folder | None) -> None:
        self._blank = blank
        self._folder = folder
        self._values = 0

    def main(self, source: Path | str | bytes, name: str) -> tuple[Fields, dict[str, Any]] | None:
        """Return the reader and the root mapping of the main file, or None if it is unreadable."""
        if isinstance(source, Path):
            raw = self._raw(name)
            document = None if raw is None else self._document(raw, name)
        else:
            document = self._document(source, name)
        if document is None:
            return None
        fields = self._fields(name, document)
        if not isinstance(document.root, dict):
            fields.problem((), "not_rules", "rules begin with project: and a name")
            return None
        fields.known(document.root, (INCLUDE, *MAIN_KEYS), ())
        return fields, document.root

    def included(
        self, main: Fields, root: Mapping[str, Any]
    ) -> list[tuple[Fields, dict[str, Any]]]:
        """Return the reader and the root mapping of each include, by file name."""
        files = []
        for name in self._names(main, root):
            raw = self._raw(name)
            document = None if raw is None else self._document(raw, name)
            if document is None or document.root is None:
                continue
            fields = self._fields(name, document)
            keys = fields.mapping(document.root, ())
            for key in keys:
                if key in (INCLUDE, *MAIN_KEYS) and key not in ENTRIES:
                    text = "only the main file may say this; here are inbound and outbound"
                    fields.problem((key,), "main_file_only", text)
                elif key not in ENTRIES:
                    fields.unknown((key,), ENTRIES)
            files.append((fields, keys))
        return files

    def _names(self, main: Fields, root: Mapping[str, Any]) -> list[str]:
        given = root.get(INCLUDE)
        wanted = [] if given is None else main.one_or_more(given, (INCLUDE,))
        if len(wanted) > MAX_FILES:
            main.problem((INCLUDE,), "too_many_files", f"more than {MAX_FILES} to include")
            return []
        names: dict[str, str] = {}
        for part, path in wanted:
            include = main.text(part, path)
            if include is None:
                continue
            try:
                for name in self._found(include):
                    key = self._key(name)
                    if key in names:
                        raise FileRefused("include_twice", f"{shown(name)} is included twice")
                    names[key] = name
            except FileRefused as error:
                main.problem(path, error.code, f"{shown(include)}: {error}")
            if len(names) > MAX_FILES:
                main.problem(path, "too_many_files", f"more than {MAX_FILES} included files")
                return []
        return sorted(names.values(), key=lambda name: (name.rpartition("/")[2], name))

    def _found(self, include: str) -> list[str]:
        if self._folder is None:
            raise FileRefused("no_folder", "a text cannot include files; read it as a file")
        return self._folder.included(include)

    def _key(self, name: str) -> str:
        return self._folder.key(name) if self._folder else name

    def _raw(self, name: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            return self._folder.read(name)
        except FileRefused as error:
            self._add(name, 1, error.code, str(error))
            return None

    def _document(self, raw: bytes | str, name: str) -> YamlDocument | None:
        try:
            document = read_document(raw, _LIMITS, refuse_merge_keys=True)
        except YamlError as error:
            where = shown_path(error.path)
            self._add(name, error.line, error.code, f"{where}: {error}" if where else str(error))
            return None
        self._values += document.values
        if self._values > MAX_ALL_VALUES:
            text = f"all files together have more than {MAX_ALL_VALUES} values"
            self._add(name, 1, "too_many_values", text)
            return None
        return document

    def _fields(self, name: str, document: YamlDocument) -> Fields:
        return replace(self._blank, origin=FileOrigin(shown_word(name, 300), document))

    def _add(self, name: str, line: int, code: str, text: str) -> None:
        self._blank.report.add(Problem(f"{shown_word(name, 300)}:{line}", code, text))

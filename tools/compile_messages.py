"""Compiles locale/**/*.po to .mo in plain Python.

The compiled catalogues are committed, because a fresh clone must show both languages and a stock
Debian has no gettext. GNU msgfmt would do, but its output differs between versions; this one
always writes the same bytes for the same input, so a test can tell when a catalogue is out of
step with its source.
"""

from __future__ import annotations

import ast
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCALE = ROOT / "locale"
_MAGIC = 0x950412DE
_CONTEXT_SEPARATOR = "\x04"


class CatalogueError(ValueError):
    """A .po file that cannot be read: says file, line and what is wrong."""


@dataclass
class _Entry:
    fields: dict[str, str] = field(default_factory=dict)
    fuzzy: bool = False

    def translations(self) -> list[str]:
        plural = [name for name in self.fields if name.startswith("msgstr[")]
        return [self.fields[name] for name in sorted(plural)] or [self.fields.get("msgstr", "")]

    def key(self) -> str:
        key = self.fields["msgid"]
        if "msgctxt" in self.fields:
            key = self.fields["msgctxt"] + _CONTEXT_SEPARATOR + key
        if "msgid_plural" in self.fields:
            key += "\0" + self.fields["msgid_plural"]
        return key


def read_po(path: Path) -> dict[str, str]:
    """Catalogue of ``path``: key (context, plural form inside) to translation.

    Fuzzy and empty entries are left out, as gettext does: the text then stays English.

    Raises:
        CatalogueError: a line that is no part of a .po file.
    """
    catalogue: dict[str, str] = {}
    for entry in _entries(path):
        translations = entry.translations()
        is_header = entry.fields["msgid"] == "" and "msgctxt" not in entry.fields
        if (entry.fuzzy and not is_header) or not all(translations):
            continue
        catalogue[entry.key()] = "\0".join(translations)
    return catalogue


def _entries(path: Path) -> list[_Entry]:
    entries: list[_Entry] = []
    entry, current, fuzzy = _Entry(), "", False
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            # An obsolete entry (#~) takes its own flags with it.
            fuzzy = not line.startswith("#~") and (
                fuzzy or (line.startswith("#,") and "fuzzy" in line)
            )
            continue
        keyword, _, rest = line.partition(" ") if not line.startswith('"') else ("", "", line)
        # An entry starts at its context, or at its msgid when it has none.
        starts = keyword == "msgctxt" or (keyword == "msgid" and current != "msgctxt")
        if starts:
            if "msgid" in entry.fields:
                entries.append(entry)
            entry, fuzzy = _Entry(fuzzy=fuzzy), False
        current = keyword or current
        try:
            text = ast.literal_eval(rest)
        except (SyntaxError, ValueError):
            text = None
        if not isinstance(text, str) or not current.startswith(("msgctxt", "msgid", "msgstr")):
            raise CatalogueError(f"{path}:{number}: not a line of a .po file: {line[:60]}")
        entry.fields[current] = entry.fields.get(current, "") + text
    if "msgid" in entry.fields:
        entries.append(entry)
    return entries


def compile_catalogue(catalogue: dict[str, str]) -> bytes:
    """The bytes of the .mo file: header, two index tables, keys, translations."""
    pairs = sorted((key.encode(), text.encode()) for key, text in catalogue.items())
    count = len(pairs)
    keys_at, texts_at = 28, 28 + count * 8
    position = texts_at + count * 8
    tables: list[bytes] = []
    blob = b""
    for column in (0, 1):
        for pair in pairs:
            tables.append(struct.pack("<II", len(pair[column]), position + len(blob)))
            blob += pair[column] + b"\0"
    header = struct.pack("<7I", _MAGIC, 0, count, keys_at, texts_at, 0, position)
    return header + b"".join(tables) + blob


def sources(locale: Path = LOCALE) -> list[Path]:
    """Every .po file of the project."""
    return sorted(locale.rglob("*.po"))


def main() -> int:
    """Compile everything; exit status 1 with one line for a file that cannot be read."""
    try:
        for path in sources():
            path.with_suffix(".mo").write_bytes(compile_catalogue(read_po(path)))
    except CatalogueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

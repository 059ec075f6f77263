"""Parser and writer of resource files: CSV or JSON lines with name and secret.

No error text contains a secret.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from apps.seeds.engine.errors import SeedError

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_RESOURCES: Final = 20_000
MAX_NAME: Final = 200
MAX_SECRET_BYTES: Final = 8 * 1024
MAX_ENTRIES: Final = 50
MAX_PROBLEMS: Final = 20
# Key under which a plain-text secret is stored.
PLAIN: Final = "secret"
_MAX_KEY: Final = 100
_FORMULA: Final = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")


class FileFormat(StrEnum):
    """Formats of resource files."""

    CSV = "csv"
    JSONL = "jsonl"


class BadSecret(SeedError):
    """The secret is invalid; the text does not quote it."""

    code = "bad_secret"


class BadName(SeedError):
    """The resource name is invalid."""

    code = "bad_name"


class UnreadableFile(SeedError):
    """The file cannot be imported. ``problems``: line number and text of each; nothing was
    imported.
    """

    code = "unreadable_file"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class NewResource:
    """Resource of a file. Its ``repr`` omits the secret."""

    name: str
    secret: str

    def __repr__(self) -> str:
        return f"NewResource({self.name!r})"


def checked_name(name: object) -> str:
    """Return ``name`` without surrounding spaces. Raises ``BadName``."""
    if not isinstance(name, str) or not name.strip():
        raise BadName("a name is needed")
    name = name.strip()
    if len(name) > MAX_NAME or not name.isprintable():
        raise BadName(f"a name has at most {MAX_NAME} characters that can be seen")
    return name


def checked_secret(secret: object) -> str:
    """Return a secret in its stored form, a JSON object of texts; a plain text becomes ``{"secret":
    text}``.

    Raises ``BadSecret``.
    """
    if isinstance(secret, str):
        if not secret:
            raise BadSecret("a secret is needed")
        secret = _object_in(secret) if secret.lstrip().startswith("{") else {PLAIN: secret}
    if not isinstance(secret, Mapping) or not secret:
        raise BadSecret("a secret is a text or an object of texts")
    if len(secret) > MAX_ENTRIES:
        raise BadSecret(f"a secret has at most {MAX_ENTRIES} entries")
    for number, (key, value) in enumerate(secret.items(), 1):
        if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY or not key.isprintable():
            raise BadSecret(f"entry {number} of the secret has a name that is none")
        if not isinstance(value, str) or "\x00" in value:
            raise BadSecret(f"{key} of the secret is no text")
    text = json.dumps(dict(secret), ensure_ascii=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        # A lone surrogate; the exception itself would quote the whole secret.
        raise BadSecret("a secret holds characters that are none") from None
    if size > MAX_SECRET_BYTES:
        raise BadSecret(f"a secret has at most {MAX_SECRET_BYTES} bytes")
    return text


def opened(stored: str) -> dict[str, str]:
    """Decode a stored secret; {} if it cannot be read."""
    try:
        secret = json.loads(stored) if stored else {}
    except (ValueError, RecursionError):
        secret = stored
    if isinstance(secret, dict):
        return {str(key): value if isinstance(value, str) else "" for key, value in secret.items()}
    # Not written by this module, such as by a manual database change.
    return {PLAIN: stored}


def _object_in(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadSecret("the secret is nested too deep") from None
    except ValueError as error:
        where = f" (column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        # Not the exception itself: it contains the whole text.
        raise BadSecret(f"the secret begins like JSON and is none{where}") from None


def read_resources(raw: bytes | str, kind: FileFormat) -> list[NewResource]:
    """Parse the resources of a file; names are unique. Raises ``UnreadableFile`` with all problems.

    CSV: the first row names the columns. ``name`` is required; ``secret`` is a text or a JSON
    object; without it every other column is an entry of the secret, as in ``name,user,password``.
    JSON lines: ``{"name": ..., "secret": ...}``.
    """
    if len(raw) > MAX_BYTES:
        raise UnreadableFile([f"The file is larger than {MAX_BYTES} bytes."])
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnreadableFile([f"The file is no UTF-8 (byte {error.start})."]) from None
    text = raw.removeprefix("\ufeff")
    rows = _csv_rows(text) if kind is FileFormat.CSV else _json_rows(text)
    return _validated(rows)


def _validated(rows: Iterable[tuple[int, object, object]]) -> list[NewResource]:
    resources: dict[str, NewResource] = {}
    problems: list[str] = []
    lines: dict[str, int] = {}
    for line, name, secret in rows:
        try:
            if isinstance(secret, SeedError):
                raise secret
            taken = NewResource(checked_name(name), checked_secret(secret))
            if taken.name in resources:
                raise BadName(f"the name of line {lines[taken.name]} again")
            resources[taken.name], lines[taken.name] = taken, line
        except SeedError as error:
            problems.append(f"Line {line}: {error}.")
        if len(problems) >= MAX_PROBLEMS:
            break
        if len(resources) > MAX_RESOURCES:
            problems.append(f"More than {MAX_RESOURCES} resources.")
            break
    if not resources and not problems:
        problems.append("The file has no resources.")
    if problems:
        raise UnreadableFile(problems)
    return list(resources.values())


def _json_rows(text: str) -> Iterator[tuple[int, object, object]]:
    for line, text_line in enumerate(text.split("\n"), 1):
        if not text_line.strip():
            continue
        try:
            row = json.loads(text_line)
        except (ValueError, RecursionError):
            yield line, "?", BadSecret("no JSON")
            continue
        if not isinstance(row, dict) or set(row) != {"name", "secret"}:
            yield line, "?", BadSecret('not an object with just "name" and "secret"')
            continue
        yield line, row["name"], row["secret"]


def _csv_rows(text: str) -> Iterator[tuple[int, object, object]]:
    first = text.split("\n", 1)[0]
    # In locales with a decimal comma, spreadsheets separate cells by semicolons.
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if "name" not in header or len(header) < 2 or len(set(header)) < len(header):
            raise UnreadableFile(
                ["Line 1: the first row names the columns: name, and secret or others, each once."]
            )
        if "secret" in header and len(header) > 2:
            raise UnreadableFile(["Line 1: beside secret there is only name."])
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, *_csv_row(header, cells)
    except csv.Error:
        raise UnreadableFile([f"Line {reader.line_num}: no CSV."]) from None


def _csv_row(header: Sequence[str], cells: Sequence[str]) -> tuple[object, object]:
    if len(cells) != len(header):
        return "?", BadSecret(f"{len(cells)} cells, and the first row names {len(header)}")
    row = dict(zip(header, cells, strict=True))
    name = row.pop("name")
    return name, row.get("secret", row)


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a CSV file; cells that a spreadsheet would read as a formula are
    quoted.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    out.write("\ufeff")
    writer.writerow(columns)
    for row in rows:
        yield out.getvalue()
        out.seek(0)
        out.truncate()
        writer.writerow([_cell(value) for value in row])
    yield out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text

"""Conversion between the data of rules and the texts and check boxes of the editor.

A draft is a list of entries. Each refers to the entry of the version that it was made from
(``from``) and holds only the changed fields (``set``). All other values are copied from the version
unchanged, so that saving never rewrites a field that was not edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.routing.admin import schema
from apps.routing.engine.files.data import inbound_data, outbound_data, to_data
from apps.routing.engine.rules import Inbound, Outbound, RuleSet

Data = dict[str, Any]

OF: Final = ("inbound", "outbound")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
# Lists whose lines may be numbers; the lines of all other lists are texts.
_STATUSES: Final = ("dont_retry_status", "direct_failback_status", "routing.terminal_codes")
# The editor never sends more entries than this.
_MOST_ENTRIES: Final = 10_000


class InvalidDraft(ValueError):
    """The request body is not a draft of rules."""


@dataclass(frozen=True, slots=True)
class DraftProblem:
    """Problem of a draft with the field where it is shown; ``place`` is None for ``of`` "rules"."""

    of: str
    place: int | None
    field: str
    text: str
    # Index of the row in a list, from 0.
    row: int | None = None
    # Position of the first invalid character in a selector, from 0.
    offset: int | None = None
    warning: bool = False


@dataclass(slots=True)
class ParsedDraft:
    """Data of a draft, and the problems of its syntax."""

    data: Data
    wrong: list[DraftProblem] = field(default_factory=list)


def new_data(project: str) -> Data:
    """Return the data of an empty rule set."""
    return to_data(RuleSet(project=project))


# --- to the form --------------------------------------------------------------------------------


def form_of(data: Data) -> dict[str, Any]:
    """Return the values of all fields of a version for the page's script."""
    return {
        "rules": _state("rules", data),
        **{of: [_state(of, entry) for entry in data.get(of) or ()] for of in OF},
    }


def _state(of: str, entry: Data) -> dict[str, Any]:
    state = {
        name: _shown(field.kind, _inside(entry, name))
        for name, field in schema.fields_of(of).items()
        if field.kind != schema.PARAMETERS
    }
    if of in OF:
        state["disable"] = bool(entry.get("disable"))
        known = schema.parameters_of(of, str(entry.get("class"))) or {}
        for name, value in (entry.get("init") or {}).items():
            kind = known[name].kind if name in known else schema.TEXT
            state[f"init.{name}"] = _shown(kind, value)
    return state


def _inside(entry: Data, name: str) -> Any:
    outer, _dot, inner = name.partition(".")
    value = entry.get(outer)
    return (value or {}).get(inner) if inner else value


def _shown(kind: str, value: Any) -> Any:
    if kind == schema.TRUTH:
        return bool(value)
    if kind == schema.SELECTORS:
        return list(value or ())
    if kind == schema.CONVERTS:
        return [
            {"class": converter.get("class", ""), "init": _lines_of(converter.get("init") or {})}
            for converter in value or ()
        ]
    if kind == schema.MAPPING and isinstance(value, Mapping):
        return _lines_of(value)
    if kind == schema.LINES and isinstance(value, list | tuple):
        return "\n".join(_one(element) for element in value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _lines_of(value: Mapping[str, Any]) -> str:
    return "\n".join(f"{_key(name)}: {_one(part)}" for name, part in value.items())


def _key(name: str) -> str:
    plain = name.isprintable() and _split(f"{name}: 1") == (name, "1")
    return name if plain else json.dumps(name, ensure_ascii=False)


def _one(value: Any) -> str:
    """Return a value on one line: as plain text if unambiguous, else as JSON."""
    if isinstance(value, str) and value and value == value.strip() and value.isprintable():
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            if value[0] != '"':
                return value
    return json.dumps(value, ensure_ascii=False)


# --- and back -----------------------------------------------------------------------------------


def read_draft(base: Data, draft: Any) -> ParsedDraft:
    """Return ``base`` with the changes of ``draft``.

    Raises ``InvalidDraft`` if ``draft`` does not have the structure that the editor sends.
    """
    if not isinstance(draft, dict):
        raise InvalidDraft
    parsed = ParsedDraft({name: value for name, value in base.items() if name not in OF})
    _read_rules(parsed, _mapping(draft.get("rules")))
    for of in OF:
        entries = draft.get(of)
        if not isinstance(entries, list) or len(entries) > _MOST_ENTRIES:
            raise InvalidDraft
        before = base.get(of) or []
        parsed.data[of] = [
            _read_entry(parsed, of, place, _mapping(entry), before)
            for place, entry in enumerate(entries)
        ]
    return parsed


def _read_rules(found: ParsedDraft, typed: dict[str, Any]) -> None:
    fields = schema.fields_of("rules")
    for name, value in typed.items():
        if name not in fields:
            raise InvalidDraft
        outer, _dot, inner = name.partition(".")
        read = _read(found, "rules", None, fields[name], value)
        if inner:
            found.data[outer] = {**(found.data.get(outer) or {}), inner: read}
        else:
            found.data[outer] = read
    for name, needed in (("failure", "path"), ("server", "bind")):
        section = found.data.get(name)
        if section and section.get(needed) in (None, "") and not section.get("port"):
            found.data[name] = None


def _read_entry(
    found: ParsedDraft, of: str, place: int, sent: dict[str, Any], before: list[Data]
) -> Data:
    origin, typed = sent.get("from"), _mapping(sent.get("set"))
    if origin is None:
        entry = _new_entry(of)
    elif isinstance(origin, int) and not isinstance(origin, bool) and 0 <= origin < len(before):
        entry = {name: value for name, value in before[origin].items() if name != "place"}
    else:
        raise InvalidDraft
    fields = schema.fields_of(of)
    for name, value in typed.items():
        if name == "disable":
            entry["disable"] = value is True
        elif name in fields and fields[name].kind != schema.PARAMETERS:
            entry[name] = _read(found, of, place, fields[name], value)
        elif not name.startswith("init."):
            raise InvalidDraft
    entry["init"] = _read_init(found, of, place, entry, typed)
    return entry


def _read_init(
    found: ParsedDraft, of: str, place: int, entry: Data, typed: dict[str, Any]
) -> dict[str, Any]:
    """Return an entry's parameters; after a change of the class only those of the new class."""
    known = schema.parameters_of(of, str(entry.get("class")))
    init = dict(entry.get("init") or {})
    if "class" in typed and known is not None:
        init = {name: value for name, value in init.items() if name in known}
    for name, value in typed.items():
        bare = name.removeprefix("init.")
        if bare == name:
            continue
        if known is not None and bare not in known and bare not in init:
            continue
        field = (known or {}).get(bare) or schema.Field(bare, schema.TEXT, bare)
        read = _read(found, of, place, field, value, under="init.")
        init.pop(bare, None) if read in (None, "") else init.update({bare: read})
    return init


def _new_entry(of: str) -> Data:
    made = inbound_data(Inbound("", "")) if of == "inbound" else outbound_data(Outbound("", ""))
    return {name: value for name, value in made.items() if name != "place"}


def _read(
    found: ParsedDraft, of: str, place: int | None, each: schema.Field, value: Any, under: str = ""
) -> Any:
    """Return the value of a field; None for an empty field.

    Problems are added to ``found``.
    """
    name = under + each.name
    if each.kind == schema.TRUTH:
        return value is True
    if each.kind == schema.SELECTORS:
        return [_text(row) for row in _list(value)]
    if each.kind == schema.CONVERTS:
        return [
            {
                "class": _text(_mapping(row).get("class")),
                "init": _pairs(found, of, place, name, _text(_mapping(row).get("init")), at),
            }
            for at, row in enumerate(_list(value))
        ]
    text = _text(value)
    if each.kind == schema.MAPPING:
        return _pairs(found, of, place, name, text)
    if each.kind == schema.LINES:
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        if each.name in _STATUSES:
            return [_value(line) for line in lines]
        return [_quoted(line) for line in lines] or None
    if each.kind in (schema.NUMBER, schema.MAYBE):
        stripped = text.strip()
        return _value(stripped) if stripped else None
    return text.strip() if each.kind == schema.TEXT else text


def _pairs(
    found: ParsedDraft, of: str, place: int | None, name: str, text: str, row: int | None = None
) -> dict[str, Any]:
    """Read lines of ``name: value``; problems are added to ``found``."""
    pairs: dict[str, Any] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        pair = _split(line)
        if pair is None:
            message = _("Invalid line: %(line)s. Write one name: value per line.")
            found.wrong.append(DraftProblem(of, place, name, message % {"line": line[:80]}, row))
        elif pair[0] in pairs:
            message = _("Duplicate name: %(name)s.") % {"name": pair[0][:80]}
            found.wrong.append(DraftProblem(of, place, name, message, row))
        else:
            pairs[pair[0]] = _value(pair[1])
    return pairs


def _split(line: str) -> tuple[str, str] | None:
    """Split ``name: value``; a name with special characters is quoted. None for any other line."""
    line = line.strip()
    quoted = _QUOTED.match(line)
    at = quoted.end() if quoted else line.find(": ")
    if at < 0 and line.endswith(":"):
        at = len(line) - 1
    if at <= 0 or line[at : at + 1] != ":":
        return None
    name = _quoted(line[:at].strip())
    return (name, line[at + 1 :].strip()) if name else None


def _quoted(text: str) -> str:
    """Return a text, decoded if it is a quoted JSON string."""
    value = _value(text) if text.startswith('"') else text
    return value if isinstance(value, str) else text


def _value(text: str) -> Any:
    """Return the text decoded as JSON, or unchanged if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _mapping(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidDraft
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidDraft
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidDraft
    return value

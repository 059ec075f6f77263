"""JSON format of rule sets, in which versions of a configuration are stored.

``version`` is the format version of the writer, ``needs`` the oldest format version that can read
the data. A reader of an older version, but at least ``needs``, ignores unknown keys with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any, Final

from apps.routing.engine.files.entries import PARAMETERS
from apps.routing.engine.files.fields import CheckSelector, DataOrigin, Fields, Report
from apps.routing.engine.files.placeholders import map_texts
from apps.routing.engine.files.ruleset import MAIN_KEYS, Builder
from apps.routing.engine.rules import Convert, Inbound, Outbound, Problem, RuleSet

VERSION: Final = 1
# Oldest format version whose reader understands the data written here.
NEEDS: Final = 1

Data = dict[str, Any]


def to_data(rules: RuleSet) -> Data:
    """Convert a rule set to JSON-serializable data, including fields that have default values."""
    server, failure = rules.server, rules.failure
    return {
        "version": VERSION,
        "needs": NEEDS,
        "project": rules.project,
        "server": server and {"bind": server.bind, "port": server.port},
        "routing": {"limits": rules.limits, "terminal_codes": [*rules.terminal_codes]},
        "failure": failure and {"path": failure.path, "compress": failure.compress},
        "inbound": [inbound_data(inbound) for inbound in rules.inbounds],
        "outbound": [outbound_data(outbound) for outbound in rules.outbounds],
        "logging": _copy(rules.logging),
    }


def inbound_data(inbound: Inbound) -> Data:
    """Convert an inbound to data with the key names of a rule file."""
    return _entry(inbound) | {"convert": [_entry(convert) for convert in inbound.convert]}


def outbound_data(outbound: Outbound) -> Data:
    """Convert an outbound to data. ``init`` has only parameters of the class, no constants."""
    data = _entry(outbound)
    top = {name: data.pop(name) for name in ("name", "disable", "selector")}
    parameters = {name: data.pop(name) for name in PARAMETERS}
    return top | parameters | data


def from_data(
    data: object,
    *,
    placeholders: Mapping[str, str] | None = None,
    check_selector: CheckSelector | None = None,
) -> tuple[RuleSet | None, list[Problem]]:
    """Read data written by ``to_data`` and return the rule set and the problems found.

    The rule set is None if any problem is an error. Invalid data raises no exception. Placeholders
    in texts are substituted only if ``placeholders`` is given.
    """
    report = Report()
    fields = Fields(DataOrigin(), report, placeholders, check_selector)
    root = fields.mapping(data, ())
    newer = _is_newer(fields, root)
    if report.errors:
        return None, report.problems
    fields = Fields(DataOrigin(), report, placeholders, check_selector, newer)
    fields.known(root, ("version", "needs", *MAIN_KEYS), ())
    builder = Builder(None)
    builder.add_entries(fields, root)
    rules = builder.build(fields, root)
    return (None if report.errors else rules), report.problems


def _is_newer(fields: Fields, root: Mapping[str, Any]) -> bool:
    """Return whether a newer format version wrote the data; report unreadable versions."""
    head = {}
    for key in ("version", "needs"):
        value = root.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            text = f"the {key} of the data is missing or no number"
            fields.problem((key,), "bad_version", text)
            return False
        head[key] = value
    if head["needs"] > VERSION:
        text = f"written for version {head['needs']} of the rules; version {VERSION} is understood"
        fields.problem(("needs",), "newer_version", text)
    return head["version"] > VERSION


def _entry(entry: Inbound | Outbound | Convert) -> Data:
    data: Data = {}
    for field in fields_of(entry):
        if field.name != "convert":
            name = "class" if field.name == "cls" else field.name
            data[name] = _copy(getattr(entry, field.name))
    if not data["place"]:
        del data["place"]
    return data


def _copy(value: Any) -> Any:
    # ``str.__str__`` turns members of a StrEnum into plain strings.
    return map_texts(value, lambda text: str.__str__(text))

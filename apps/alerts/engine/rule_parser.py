"""Parser from validated configuration data to a rulebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import time
from typing import Any

from apps.alerts.engine.quiet import DAYS, QuietHours
from apps.alerts.engine.rules import Condition, Escalation, Recovery, Rule, Rulebook, find_builtin


def rulebook(data: Mapping[str, Any], number: int = 0) -> Rulebook:
    """Return the rules of valid configuration data (see ``validation.problems``)."""
    defaults = data.get("defaults") or {}
    return Rulebook(
        rules=tuple(rule_of(entry) for entry in data.get("rules") or []),
        quiet_hours={
            name: _hours_of(entry) for name, entry in (data.get("quiet_hours") or {}).items()
        },
        tell=tuple(defaults.get("tell") or ()),
        repeat_seconds=float(defaults.get("repeat_seconds", 0)),
        quiet=defaults.get("quiet", ""),
        number=number,
    )


def rule_of(entry: Mapping[str, Any]) -> Rule:
    """Return the rule of a valid entry; one named like a built-in rule modifies that rule."""
    # A null value counts as unset.
    entry = {name: value for name, value in entry.items() if value is not None}
    base = find_builtin(entry["name"]) if not _watches(entry) else None
    rule = base if base is not None else Rule(name=entry["name"])
    plain = ("series", "event", "label", "severity", "quiet", "enabled", "description")
    values: dict[str, Any] = {name: entry[name] for name in plain if name in entry}
    if "when" in entry:
        values["when"] = Condition(**entry["when"])
    if "recover" in entry:
        values["recover"] = Recovery(**entry["recover"])
    if "match" in entry:
        values["match"] = {name: str(value) for name, value in entry["match"].items()}
    if "tell" in entry:
        values["tell"] = tuple(entry["tell"])
    if "repeat_seconds" in entry:
        values["repeat_seconds"] = float(entry["repeat_seconds"])
    if "escalate" in entry:
        values["escalate"] = tuple(
            Escalation(
                float(step["after_seconds"]),
                tuple(step.get("tell") or ()),
                step.get("severity", ""),
            )
            for step in entry["escalate"]
        )
    return replace(rule, **values, builtin=False)


def _hours_of(entry: Mapping[str, Any]) -> QuietHours:
    days = entry.get("days")
    return QuietHours(
        begin=_time_of(entry["from"]),
        end=_time_of(entry["to"]),
        days=frozenset(range(7) if days is None else (DAYS.index(day) for day in days)),
        time_zone=entry.get("time_zone", "UTC"),
        excepted=frozenset(entry.get("except") or ()),
    )


def _time_of(text: str) -> time:
    hour, minute = text.split(":")
    return time(int(hour), int(minute))


def _watches(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("series") or entry.get("event"))

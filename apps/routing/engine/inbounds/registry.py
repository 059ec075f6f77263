"""Registry of inbound classes, and validation of the rules that use them.

Plug-ins register a class by an entry point in the group ``crawlyard.inbounds``; its name is the
class name in rules.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from apps.routing.engine.inbounds.base import BadInit, Context, Finding, Inbound, Parameter
from apps.routing.engine.inbounds.urls import has_placeholder
from apps.routing.engine.rules import Inbound as Rule
from apps.routing.engine.rules import Problem

GROUP: Final = "crawlyard.inbounds"
HTTP: Final = "http.HttpInbound"
_PACKAGE: Final = "apps.routing.engine.inbounds"
_BUILT_IN: Final = {
    "file.FileInbound": f"{_PACKAGE}.file:FileInbound",
    HTTP: f"{_PACKAGE}.web:HttpInbound",
    "kafka.KafkaInbound": f"{_PACKAGE}.kafka:KafkaInbound",
    "rabbitmq.RabbitInbound": f"{_PACKAGE}.rabbitmq:RabbitInbound",
    "redis_queue.RedisListInbound": f"{_PACKAGE}.redis_queue:RedisListInbound",
}
_KINDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of texts",
    dict: "keys and values",
}


class UnknownClass(LookupError):
    """Raised when no inbound class has this name; the message suggests similar names."""


class BrokenClass(RuntimeError):
    """Raised when the class of an entry point cannot be loaded or is not an inbound."""


def names() -> list[str]:
    """Return the names of all classes, built-in ones first."""
    return [*sorted(_BUILT_IN), *sorted(_others().keys() - _BUILT_IN.keys())]


def find(name: str) -> Any:
    """Return the class of a name. Raises ``UnknownClass`` or ``BrokenClass``.

    Entry points cannot override built-in classes.
    """
    if name in _BUILT_IN:
        module, _colon, attribute = _BUILT_IN[name].partition(":")
        return getattr(import_module(module), attribute)
    entry = _others().get(name)
    if entry is None:
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = (
            f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(names())}"
        )
        raise UnknownClass(f"there is no inbound class {name[:100]!r}{hint}")
    try:
        loaded = entry.load()
    except Exception as error:  # a plug-in module may raise anything
        raise BrokenClass(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [
        attribute
        for attribute in ("PARAMETERS", "check", "take", "ack")
        if not hasattr(loaded, attribute)
    ]
    if missing:
        raise BrokenClass(f"{name} is no inbound: it has no {', '.join(missing)}")
    return loaded


def parameters(name: str) -> tuple[Parameter, ...]:
    """Return the parameters of a class under ``init``. Raises the same errors as ``find``."""
    return tuple(find(name).PARAMETERS)


def is_polled(name: str) -> bool:
    """Return whether routers poll this class; the web process receives items over HTTP."""
    return name != HTTP


def make(rule: Rule, context: Context) -> Inbound:
    """Create the inbound of a rule. Raises ``BadInit``, ``UnknownClass`` or ``BrokenClass``."""
    problems = [finding for finding in check(rule) if not finding.warning]
    if problems:
        raise BadInit("; ".join(problem.text for problem in problems))
    if not is_polled(rule.cls):
        raise BadInit(f"{rule.cls} is not polled")
    made: Inbound = find(rule.cls)(context, rule.init)
    return made


def check(rule: Rule) -> list[Problem]:
    """Validate the class and the parameters of a rule without connecting to a server."""
    place = rule.place or f"inbound {rule.name}"
    try:
        cls = find(rule.cls)
    except UnknownClass as error:
        return [Problem(place, "unknown_class", str(error))]
    except BrokenClass as error:
        return [Problem(place, "broken_class", str(error))]
    wanted = tuple(cls.PARAMETERS)
    findings = _check_names(rule, wanted)
    findings += [pair for parameter in wanted for pair in _check_type(parameter, rule.init)]
    if not findings:
        findings = list(cls.check(rule.init))
    return [
        Problem(
            place,
            finding.code,
            f"{rule.cls}: init.{name}: {finding.text}" if name else f"{rule.cls}: {finding.text}",
        )
        for name, finding in findings
    ]


def check_running(inbound: Inbound, rule: Rule) -> list[Problem]:
    """Return the warnings of a running inbound about its rule, such as too many threads."""
    place = rule.place or f"inbound {rule.name}"
    return [
        Problem(place, finding.code, finding.text, warning=True)
        for finding in inbound.check_running(rule.threads)
    ]


def _check_names(rule: Rule, wanted: tuple[Parameter, ...]) -> list[tuple[str, Finding]]:
    known = [parameter.name for parameter in wanted]
    findings = []
    for name in rule.init:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
            text = f"there is no such parameter; {hint}"
            findings.append((str(name)[:100], Finding("unknown_parameter", text)))
    findings += [
        (parameter.name, Finding("missing_parameter", f"it is required: {parameter.text}"))
        for parameter in wanted
        if parameter.required and rule.init.get(parameter.name) is None
    ]
    return findings


def _check_type(parameter: Parameter, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
    value = init.get(parameter.name)
    if parameter.name not in init or (value is None and parameter.required):
        return []
    if _fits(value, parameter.type) or (parameter.type is not dict and has_placeholder(value)):
        return []
    text = f"this is {_KINDS.get(type(value), 'nothing')}, wanted is {_KINDS[parameter.type]}"
    return [(parameter.name, Finding("wrong_type", text))]


def _fits(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted is list:
        return isinstance(value, list | tuple) and all(
            isinstance(element, str) for element in value
        )
    if wanted is dict:
        return isinstance(value, Mapping) and all(isinstance(element, str) for element in value)
    return isinstance(value, wanted)


def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}

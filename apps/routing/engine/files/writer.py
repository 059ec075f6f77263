"""Export of rule sets as taskHUB's YAML: lossless, in the seed's key order, without defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from apps.routing.engine.files.classes import ClassParameters, known_parameters
from apps.routing.engine.files.data import Data, inbound_data, outbound_data, to_data
from apps.routing.engine.files.entries import PARAMETERS, TOP_ONLY
from apps.routing.engine.files.placeholders import escape, map_texts
from apps.routing.engine.rules import Inbound, Outbound, RuleSet
from yardkit.yaml_writer import write_value

_USUAL_INBOUND: Final = inbound_data(Inbound(name="", cls=""))
_USUAL_OUTBOUND: Final = outbound_data(Outbound(name="", cls=""))
_USUAL_ROUTING: Final = to_data(RuleSet(project=""))["routing"]
# Fields in which placeholders are not substituted.
_LITERAL: Final = ("selector", "note")
# Written in init before and after the constants, as in the seed.
_BEFORE_CONSTANTS: Final = ("task_params", "task_params_wrapped")
_AFTER_CONSTANTS: Final = ("priority", "rt_priority")
_BESIDE_INIT: Final = tuple(
    name for name in PARAMETERS if name not in (*_BEFORE_CONSTANTS, *_AFTER_CONSTANTS)
)
# Each selector on one line, however long, for readable line-based diffs.
_WIDTH: Final = 1_000_000


def write_rules(
    rules: RuleSet,
    *,
    class_parameters: ClassParameters = known_parameters,
    with_placeholders: bool = False,
) -> str:
    """Return YAML that ``read_rules`` reads as the same rule set, given equal ``class_parameters``.

    Braces are escaped, so that no text is taken for a placeholder. Pass ``with_placeholders`` for
    a rule set whose placeholders were not substituted; they are then written unescaped.
    """
    change: Callable[[str], str] = str if with_placeholders else escape
    data = to_data(rules)
    parts = [_written(_changed(_head(data), change))]
    inbounds = [_inbound(inbound) for inbound in data["inbound"]]
    outbounds = [_outbound(outbound, class_parameters) for outbound in data["outbound"]]
    for key, entries in (("inbound", inbounds), ("outbound", outbounds)):
        if entries:
            written = "\n".join(_written([_changed(entry, change)]) for entry in entries)
            parts.append(f"{key}:\n{written}")
    if data["logging"]:
        parts.append(_written(_changed({"logging": data["logging"]}, change)))
    return "\n".join(parts)


def _head(data: Data) -> Data:
    head = {"project": data["project"]}
    if data["server"]:
        head["server"] = data["server"]
    if routing := _unusual(data["routing"], _USUAL_ROUTING):
        head["routing"] = routing
    if data["failure"]:
        head["failure"] = _unusual(data["failure"], {"compress": False})
    return head


def _inbound(data: Data) -> Data:
    for convert in data["convert"]:
        convert.pop("place", None)
    data["convert"] = [_unusual(convert, {"init": {}}) for convert in data["convert"]]
    order = ("name", "disable", "weight", "selector", "class", "init", "convert", "threads", "note")
    return _unusual({name: data[name] for name in order}, _USUAL_INBOUND)


def _outbound(data: Data, classes: ClassParameters) -> Data:
    top = {name: data[name] for name in ("name", "disable", "selector")}
    beside = {name: data[name] for name in _BESIDE_INIT}
    before = {name: data[name] for name in _BEFORE_CONSTANTS}
    after = {name: data[name] for name in _AFTER_CONSTANTS}
    cls = {"class": data["class"]}
    note = {"note": data["note"]}
    init, constants = data["init"], data["constants"]
    if not _can_be_mixed(data, classes):
        usual = {name: value for name, value in _USUAL_OUTBOUND.items() if name != "constants"}
        own = {"init": init, "constants": constants}
        return _unusual(top | beside | before | after | cls | own | note, usual)
    mixed = init | _unusual(before, _USUAL_OUTBOUND) | constants | _unusual(after, _USUAL_OUTBOUND)
    return _unusual(top | beside | cls | {"init": mixed} | note, _USUAL_OUTBOUND)


def _can_be_mixed(data: Data, classes: ClassParameters) -> bool:
    """Return whether ``init`` can hold parameters and constants without ambiguity."""
    try:
        own = classes(data["class"])
    except LookupError:
        own = None
    common = {*PARAMETERS, *TOP_ONLY}
    init, constants = {*data["init"]}, {*data["constants"]}
    if own is None:
        return not constants and not init & common
    return not (common & (own | init | constants) or init - own or constants & own)


def _unusual(data: Data, usual: Data) -> Data:
    """Return the keys that differ from their default; ``name`` and ``class`` are always kept."""
    return {
        name: value
        for name, value in data.items()
        if name in ("name", "class") or name not in usual or value != usual[name]
    }


def _changed(value: Data, change: Callable[[str], str]) -> Data:
    return {
        name: part if name in _LITERAL else map_texts(part, change) for name, part in value.items()
    }


def _written(value: Any) -> str:
    return write_value(value, width=_WIDTH)

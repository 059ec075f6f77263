"""Read a single inbound or outbound from a mapping of a rule file or of stored data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from apps.routing.engine.files.classes import ClassParameters, known_parameters
from apps.routing.engine.files.fields import Fields, same, shown, shown_word
from apps.routing.engine.rules import Convert, Inbound, Outbound, Overflow
from yardkit.yaml_reader import Path

MAX_THREADS: Final = 1024
MAX_WEIGHT: Final = 1_000_000
MAX_COUNT: Final = 2**31 - 1
# Ten years, an upper bound for every result timeout.
MAX_SECONDS: Final = 10 * 366 * 86400.0
MAX_RATE: Final = 1e9

Read = Callable[[Fields, Any, Path], Any]
# Value and its path.
Spot = tuple[Any, Path]


def _whole(least: int, most: int = MAX_COUNT) -> Read:
    return lambda fields, value, path: fields.whole(value, path, least=least, most=most)


def _number(least: float, most: float) -> Read:
    return lambda fields, value, path: fields.number(value, path, least=least, most=most)


def _overflow(fields: Fields, value: Any, path: Path) -> Overflow | None:
    text = fields.text(value, path)
    if text is None or text in [*Overflow]:
        return None if text is None else Overflow(text)
    fields.problem(path, "unknown_value", f"one of {', '.join(Overflow)} is needed")
    return None


_COMMON: Final[dict[str, Read]] = {
    "selector": Fields.selectors,
    "disable": Fields.truth,
    "note": Fields.literal,
}
# Keys of an inbound that are read only beside ``init``, not in it.
_INBOUND: Final[dict[str, Read]] = _COMMON | {
    "weight": _whole(1, MAX_WEIGHT),
    "threads": _whole(1, MAX_THREADS),
}
# Parameters common to all outbounds, allowed beside ``init`` and in it, in export order.
PARAMETERS: Final[dict[str, Read]] = {
    "max_lag": _whole(-1),
    "overflow": _overflow,
    "retry_limits": _whole(0),
    "reset_retry_times": Fields.truth,
    "dont_retry_status": Fields.statuses,
    "direct_failback_status": Fields.statuses,
    "failback": Fields.text,
    "token_scope": Fields.name,
    "token_per_second": _number(0.0, MAX_RATE),
    "expects_result": Fields.truth,
    "result_timeout_seconds": _number(0.001, MAX_SECONDS),
    "task_params": Fields.texts,
    "task_params_wrapped": Fields.truth,
    "priority": _whole(-MAX_COUNT),
    "rt_priority": _whole(-MAX_COUNT),
}
# Not allowed in ``init``: probably wrong indentation, not a constant.
TOP_ONLY: Final = ("name", "disable", "selector", "class", "init", "constants", "note")
OUTBOUND_KEYS: Final = (*TOP_ONLY, *PARAMETERS)
# Keys that the router sets on every item.
RESERVED: Final = frozenset(
    [
        "outbound",
        "routed_count",
        "retry_times",
        "submitter",
        "submit_time",
        "retry_limits",
        "rt",
        "priority",
        "task_uuid",
        "group_retry_times",
        "token_scope",
    ]
)
_LIKE: Final = 0.85


def read_inbound(
    fields: Fields, value: Any, path: Path, classes: ClassParameters
) -> Inbound | None:
    """Read an inbound and report its problems; None if its name or class is unreadable."""
    entry = _entry(fields, value, path)
    if entry is None:
        return None
    cls = _required(fields, entry, "class", path)
    own = _of_class(classes, cls) or known_parameters(cls or "") or frozenset()
    known = ("name", "class", "init", "convert", *_INBOUND, *fields.places)
    fields.known((name for name in entry if name not in own), known, path)
    init = _spots(fields, entry.get("init"), (*path, "init"))
    for name in [name for name in entry if name in own and name not in known]:
        _put(fields, init, name, (entry[name], (*path, name)))
    values = _values(fields, _INBOUND, {name: (entry[name], (*path, name)) for name in entry})
    values["convert"] = tuple(
        convert
        for part, where in fields.items(entry.get("convert"), (*path, "convert"))
        if (convert := _convert(fields, part, where))
    )
    title = _required(fields, entry, "name", path)
    if title is None or cls is None:
        return None
    place = _place(fields, entry, path)
    return Inbound(name=title, cls=cls, init=_plain(fields, init), place=place, **values)


def read_outbound(
    fields: Fields, value: Any, path: Path, classes: ClassParameters | None
) -> Outbound | None:
    """Read an outbound and report its problems; None if its name or class is unreadable.

    If the entry has the key ``constants``, ``init`` contains only parameters of the class.
    Otherwise ``init`` may also contain common parameters, and all other keys are constants.
    """
    entry = _entry(fields, value, path)
    if entry is None:
        return None
    cls = _required(fields, entry, "class", path)
    own = _of_class(classes, cls)
    if classes and cls and own is None:
        text = f"the class {shown(cls)} is not known here: all of init is taken for its parameters"
        fields.problem((*path, "class"), "unknown_class", text, warning=True)
    parameters = {name: (entry[name], (*path, name)) for name in entry if name not in TOP_ONLY}
    init = _spots(fields, entry.get("init"), (*path, "init"))
    constants = _spots(fields, entry.get("constants"), (*path, "constants"))
    if "constants" not in entry:
        parameters, init, constants = _sorted_out(fields, parameters, init, own)
    for name in [name for name in parameters if name not in (*PARAMETERS, *fields.places)]:
        if name in (own or ()):
            _put(fields, init, name, parameters[name])
        else:
            hint = "; constants stand in init"
            known = (*OUTBOUND_KEYS, *sorted(own or ()))
            fields.unknown((*path, name), known, hint)
    _warn_of_reserved(fields, constants)
    top = {name: (entry[name], (*path, name)) for name in entry if name in _COMMON}
    values = _values(fields, _COMMON | PARAMETERS, top | parameters)
    title = _required(fields, entry, "name", path)
    if title is None or cls is None:
        return None
    values |= {"init": _plain(fields, init), "constants": _plain(fields, constants)}
    return Outbound(name=title, cls=cls, place=_place(fields, entry, path), **values)


def _sorted_out(
    fields: Fields, parameters: dict[str, Spot], given: dict[str, Spot], own: frozenset[str] | None
) -> tuple[dict[str, Spot], dict[str, Spot], dict[str, Spot]]:
    """Split a mixed ``init`` into common parameters, parameters of the class and constants."""
    parameters = dict(parameters)
    init: dict[str, Spot] = {}
    constants: dict[str, Spot] = {}
    known = (*PARAMETERS, *sorted(own or ()))
    for name, spot in given.items():
        if own is not None and name in own:
            init[name] = spot
        elif name in PARAMETERS:
            _put(fields, parameters, name, spot)
        elif name in TOP_ONLY:
            text = f"{name} stands beside init; a constant of this name stands in constants"
            fields.problem(spot[1], "misplaced", text)
        elif own is None:
            init[name] = spot
        else:
            constants[name] = spot
            if near := fields.report.nearest(name, known, _LIKE):
                text = f"{shown(name)} is set on items as a constant; is {near} meant?"
                fields.problem(spot[1], "like_a_parameter", text, warning=True)
    return parameters, init, constants


def _put(fields: Fields, spots: dict[str, Spot], name: str, spot: Spot) -> None:
    """Add a value that is allowed in two places; report two different values."""
    value, path = spot
    if name in spots and value is not None and spots[name][0] is not None:
        if not same(spots[name][0], value):
            text = f"{name} is given twice, beside init and in it, with different values"
            fields.problem(path, "contradiction", text)
        return
    if name not in spots or spots[name][0] is None:
        spots[name] = spot


def _warn_of_reserved(fields: Fields, constants: Mapping[str, Spot]) -> None:
    for name, (_value, path) in constants.items():
        if name in RESERVED:
            text = f"the router sets {name} itself; the constant is overwritten"
            fields.problem(path, "reserved_key", text, warning=True)


def _entry(fields: Fields, value: Any, path: Path) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return fields.mapping(value, path)
    fields.wrong(path, "a mapping with name and class", value)
    return None


def _required(fields: Fields, entry: Mapping[str, Any], key: str, path: Path) -> str | None:
    if entry.get(key) is None:
        where = (*path, key) if key in entry else path
        fields.problem(where, "missing", f"{key} is missing")
        return None
    return fields.name(entry[key], (*path, key))


def _of_class(classes: ClassParameters | None, cls: str | None) -> frozenset[str] | None:
    if classes is None or cls is None:
        return None
    try:
        return classes(cls)
    except LookupError:
        return None


def _convert(fields: Fields, value: Any, path: Path) -> Convert | None:
    if not isinstance(value, Mapping):
        fields.wrong(path, "a mapping with class", value)
        return None
    entry = fields.mapping(value, path)
    fields.known(entry, ("class", "init", *fields.places), path)
    cls = _required(fields, entry, "class", path)
    init = _plain(fields, _spots(fields, entry.get("init"), (*path, "init")))
    return Convert(cls=cls, init=init, place=_place(fields, entry, path)) if cls else None


def _spots(fields: Fields, value: Any, path: Path) -> dict[str, Spot]:
    return {name: (part, (*path, name)) for name, part in fields.mapping(value, path).items()}


def _plain(fields: Fields, spots: Mapping[str, Spot]) -> dict[str, Any]:
    return {
        name: fields.plain(value, path)
        for name, (value, path) in spots.items()
        if fields.literal(name, path) is not None
    }


def _values(
    fields: Fields, readers: Mapping[str, Read], spots: Mapping[str, Spot]
) -> dict[str, Any]:
    """Return the values that are present and valid. A null value counts as absent."""
    values: dict[str, Any] = {}
    for name, read in readers.items():
        value, path = spots.get(name, (None, ()))
        if value is not None and (got := read(fields, value, path)) is not None:
            values[name] = got
    return values


def _place(fields: Fields, entry: Mapping[str, Any], path: Path) -> str:
    """Return the place of an entry: the one stored in data, else the current one."""
    kept = entry.get("place") if fields.places else None
    return shown_word(kept, 300) if isinstance(kept, str) else fields.origin.place(path)

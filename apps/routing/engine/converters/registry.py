"""Registry of converter classes: look up a class by its name in the rules and create chains."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any, Final

import msgspec

from apps.routing.engine.converters.base import BuiltInConverter, Converter
from apps.routing.engine.converters.chain import Chain, ConverterStep
from apps.routing.engine.converters.extraction import ExtractMetadata, ExtractTaskParams
from apps.routing.engine.converters.keys import Copy, Delete, ParseJson, Rename, Set
from apps.routing.engine.converters.logstash import RemoveBuildinKeys
from apps.routing.engine.converters.times import ParseTime
from apps.routing.engine.rules import Convert, Problem

GROUP: Final = "crawlyard.converters"

BUILT_IN: Final[Mapping[str, type[BuiltInConverter]]] = {
    "logstash.RemoveBuildinKeys": RemoveBuildinKeys,
    "common.ExtractTaskParams": ExtractTaskParams,
    "common.ExtractMetadata": ExtractMetadata,
    "common.Rename": Rename,
    "common.Set": Set,
    "common.Delete": Delete,
    "common.Copy": Copy,
    "common.ParseJson": ParseJson,
    "common.ParseTime": ParseTime,
}


class _Invalid(Exception):
    """Reason why a converter cannot be created."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def known_classes() -> list[str]:
    """Return the sorted names of all built-in and installed converter classes."""
    return sorted({*BUILT_IN, *_plug_ins()})


def build_chain(converts: Iterable[Convert]) -> tuple[Chain, list[Problem]]:
    """Build a chain and list the problems found; entries with a problem are left out."""
    steps: list[ConverterStep] = []
    problems: list[Problem] = []
    for index, convert in enumerate(converts):
        place = convert.place or f"convert[{index}]"
        try:
            steps.append(ConverterStep(convert.cls, _build(convert), place))
        except _Invalid as refused:
            problems.append(Problem(place, refused.code, str(refused)))
    return Chain(steps), problems


def _build(convert: Convert) -> Converter:
    converter_class = BUILT_IN.get(convert.cls) or _load(convert.cls)
    init = dict(convert.init)
    try:
        if isinstance(converter_class, type) and issubclass(converter_class, msgspec.Struct):
            made: Any = msgspec.convert(init, converter_class)
        else:
            _bind(converter_class, init)
            made = converter_class(**init)
    except (ValueError, TypeError) as error:
        raise _Invalid("bad_parameter", _wrong(convert.cls, converter_class, error)) from None
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        text = f"{convert.cls} cannot be made: {type(error).__name__}: {error}"
        raise _Invalid("broken_class", text) from None
    if not callable(getattr(made, "convert", None)):
        raise _Invalid("broken_class", f"{convert.cls} has no method convert")
    checked: Converter = made
    return checked


def _bind(found: Any, init: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for unknown or missing parameters before code of the class runs."""
    try:
        signature = inspect.signature(found)
    except ValueError:
        # Some classes written in C have no signature.
        return
    signature.bind(**init)


def _load(name: str) -> Any:
    """Load the class that an installed package registered as ``name``. Raises ``_Invalid``."""
    points = _plug_ins()
    if name not in points:
        raise _Invalid("unknown_class", _unknown(name, points))
    offered = points[name]
    if len({point.value for point in offered}) > 1:
        places = ", ".join(sorted(point.value for point in offered))
        raise _Invalid("ambiguous_class", f"several packages call something {name}: {places}")
    try:
        converter_class = offered[0].load()
    except Exception as error:  # noqa: BLE001 - importing a plug-in runs its code
        text = f"{name} ({offered[0].value}) cannot be loaded: {type(error).__name__}: {error}"
        raise _Invalid("broken_class", text) from None
    if not callable(converter_class):
        raise _Invalid("broken_class", f"{name} ({offered[0].value}) is no class")
    return converter_class


def _plug_ins() -> dict[str, list[metadata.EntryPoint]]:
    points: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=GROUP):
        # A plug-in cannot replace a built-in converter.
        if point.name not in BUILT_IN:
            points.setdefault(point.name, []).append(point)
    return points


def _unknown(name: str, points: Iterable[str]) -> str:
    known = sorted({*BUILT_IN, *points})
    # Names differ mostly in their second half or in upper and lower case, hence the low cutoff.
    by_lower = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    if near:
        return f"there is no converter {name!r}; near it: {', '.join(by_lower[n] for n in near)}"
    return f"there is no converter {name!r}; there are: {', '.join(known)}"


def _wrong(name: str, found: Any, error: Exception) -> str:
    text = f"{name}: {error}"
    try:
        names = [
            parameter.name
            for parameter in inspect.signature(found).parameters.values()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
    except (TypeError, ValueError):
        return text
    return f"{text}; its parameters: {', '.join(names)}" if names else f"{text}; it has none"

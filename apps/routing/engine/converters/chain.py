"""Chain of the converters of one inbound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apps.routing.engine.converters.base import BuiltInConverter, Converter, ConvertError
from apps.routing.engine.items import Item, ItemError, check_item


@dataclass(frozen=True, slots=True)
class ConverterStep:
    """Converter with its class name in the rules and its place in the rule file."""

    cls: str
    converter: Converter
    place: str = ""


@dataclass(frozen=True, slots=True)
class ConverterChanges:
    """Changes that one step made to an item, or the ``error`` that it raised."""

    cls: str
    place: str
    added: Mapping[str, Any] = field(default_factory=dict)
    removed: Mapping[str, Any] = field(default_factory=dict)
    # key -> (before, after)
    changed: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    error: ConvertError | None = None


@dataclass(frozen=True, slots=True)
class ChainExplanation:
    """Steps that were run and the resulting item; ``item`` is None if the last step failed."""

    steps: tuple[ConverterChanges, ...]
    item: Item | None

    @property
    def error(self) -> ConvertError | None:
        """Return the error of the failed step, or None if every step succeeded."""
        return self.steps[-1].error if self.steps else None


class Chain:
    """Sequence of converters. The item that the caller passes is never modified."""

    def __init__(self, steps: Sequence[ConverterStep] = ()) -> None:
        self.steps: Final = tuple(steps)

    def __len__(self) -> int:
        return len(self.steps)

    def convert(self, item: Item) -> Item:
        """Return the item after all steps. Raises ``ConvertError`` with the failed step."""
        for index in range(len(self.steps)):
            item = self._one(index, item)
        return item

    def explain(self, item: Item) -> ChainExplanation:
        """Convert an item and record the changes of each step. Errors are recorded, not raised."""
        seen: list[ConverterChanges] = []
        for index, step in enumerate(self.steps):
            try:
                after = self._one(index, item)
            except ConvertError as error:
                seen.append(ConverterChanges(step.cls, step.place, error=error))
                return ChainExplanation(tuple(seen), None)
            seen.append(_difference(step, item, after))
            item = after
        return ChainExplanation(tuple(seen), item)

    def _one(self, index: int, item: Item) -> Item:
        step = self.steps[index]
        # Built-in converters do not modify nested values; plug-ins may.
        given = dict(item) if isinstance(step.converter, BuiltInConverter) else _whole_copy(item)
        try:
            after = step.converter.convert(given)
            if not isinstance(after, dict):
                kind = type(after).__name__
                raise ConvertError("no_dict", f"it gave no dict but {kind}")
            if getattr(step.converter, "adds", True):
                # The result may be too deep or too large, or not representable in JSON.
                check_item(after)
        except ConvertError as error:
            error.step, error.cls = index, step.cls
            raise
        except ItemError as error:
            raise _failed(index, step.cls, "bad_result", f"it gave no item: {error}") from None
        except Exception as error:
            # A plug-in may raise any exception.
            text = f"{type(error).__name__}: {error}"[:500]
            raise _failed(index, step.cls, "converter_failed", text) from error
        return after


def _failed(index: int, cls: str, code: str, text: str) -> ConvertError:
    error = ConvertError(code, text)
    error.step, error.cls = index, cls
    return error


def _difference(step: ConverterStep, before: Item, after: Item) -> ConverterChanges:
    return ConverterChanges(
        step.cls,
        step.place,
        added={key: value for key, value in after.items() if key not in before},
        removed={key: value for key, value in before.items() if key not in after},
        changed={
            key: (before[key], value)
            for key, value in after.items()
            if key in before and not _same(before[key], value)
        },
    )


def _same(before: Any, after: Any) -> bool:
    # Python's ``1 == True`` does not hold in JSON.
    return before is after or (type(before) is type(after) and repr(before) == repr(after))


def _whole_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole_copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole_copy(part) for part in value]
    return value

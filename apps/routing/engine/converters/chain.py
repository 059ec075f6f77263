"""All steps of one inbound, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apps.routing.engine.converters.base import Converter, ConvertError, Own
from apps.routing.engine.items import Item, NoItem, check_item


@dataclass(frozen=True, slots=True)
class Step:
    """One converter and what the rules call it."""

    cls: str
    converter: Converter
    place: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """What one step did to an item; or, with ``error``, why it could not."""

    cls: str
    place: str
    added: Mapping[str, Any] = field(default_factory=dict)
    removed: Mapping[str, Any] = field(default_factory=dict)
    # key -> (before, after)
    changed: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    error: ConvertError | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """The steps that were tried, and the item after the last; None when one has failed."""

    steps: tuple[Changed, ...]
    item: Item | None

    @property
    def error(self) -> ConvertError | None:
        """Why the item is refused, if it is."""
        return self.steps[-1].error if self.steps else None


class Chain:
    """Applies its steps in order; the caller's dict and all that is in it stay as they are."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.steps: Final = tuple(steps)

    def __len__(self) -> int:
        return len(self.steps)

    def convert(self, item: Item) -> Item:
        """The item after all steps. Raises ``ConvertError``, which says at which step."""
        for index in range(len(self.steps)):
            item = self._one(index, item)
        return item

    def explain(self, item: Item) -> Explained:
        """The same, with what each step has changed. Raises nothing."""
        seen: list[Changed] = []
        for index, step in enumerate(self.steps):
            try:
                after = self._one(index, item)
            except ConvertError as error:
                seen.append(Changed(step.cls, step.place, error=error))
                return Explained(tuple(seen), None)
            seen.append(_difference(step, item, after))
            item = after
        return Explained(tuple(seen), item)

    def _one(self, index: int, item: Item) -> Item:
        step = self.steps[index]
        # Built-in ones are known not to change what is inside the values; plug-ins may.
        given = dict(item) if isinstance(step.converter, Own) else _whole_copy(item)
        try:
            after = step.converter.convert(given)
            if not isinstance(after, dict):
                kind = type(after).__name__
                raise ConvertError("no_dict", f"it gave no dict but {kind}")
            if getattr(step.converter, "adds", True):
                # It may be too deep or too large now, or hold what JSON has no word for.
                check_item(after)
        except ConvertError as error:
            error.step, error.cls = index, step.cls
            raise
        except NoItem as error:
            raise _failed(index, step.cls, "bad_result", f"it gave no item: {error}") from None
        except Exception as error:
            # Of other people's code nothing is too strange.
            text = f"{type(error).__name__}: {error}"[:500]
            raise _failed(index, step.cls, "converter_failed", text) from error
        return after


def _failed(index: int, cls: str, code: str, text: str) -> ConvertError:
    error = ConvertError(code, text)
    error.step, error.cls = index, cls
    return error


def _difference(step: Step, before: Item, after: Item) -> Changed:
    return Changed(
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
    # 1 and true are equal for Python, and two things in JSON.
    return before is after or (type(before) is type(after) and repr(before) == repr(after))


def _whole_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole_copy(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole_copy(part) for part in value]
    return value

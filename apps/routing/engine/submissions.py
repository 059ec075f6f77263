"""Body of ``POST /task/``: one item or a list of items, and the inbound that accepts each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from apps.routing.engine.converters.chain import Chain
from apps.routing.engine.inbounds.registry import HTTP
from apps.routing.engine.items import MAX_BYTES, Item, ItemError, read_item, read_json
from apps.routing.engine.rules import Inbound
from apps.routing.engine.selector import compile_rules
from apps.routing.engine.track import CompiledInbound, Malformed, Track

# Limits of one request; a single item is limited by ``items.MAX_BYTES``.
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_ITEMS: Final = 1000
# Maximum number of faults in one response.
MOST_TOLD: Final = 20
# Default inbound of a rule set without an HTTP inbound; it accepts every item.
IMPLICIT: Final = Inbound(name="http", cls=HTTP)

_split: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class SubmissionError:
    """Validation error of a request; ``place`` is ``items.3``, or ``items`` for the whole body."""

    place: str
    code: str
    text: str


class InvalidSubmission(ValueError):
    """Raised when a request is rejected as a whole; ``faults`` has 1 to ``MOST_TOLD`` entries."""

    def __init__(self, faults: Sequence[SubmissionError]) -> None:
        super().__init__("; ".join(f"{fault.place}: {fault.text}" for fault in faults))
        self.faults = list(faults)


@dataclass(frozen=True, slots=True)
class ConvertedItem:
    """Submitted item after the HTTP inbounds have converted and filtered it."""

    # Item converted by the first inbound, used if it is a result; None if conversion failed.
    first: Item | None
    # Inbound that accepts the item as new, and the item as converted by that inbound.
    inbound: str = ""
    item: Item | None = None
    # First conversion error, if no inbound accepts the item.
    poison: Malformed | None = None


def read_submission(raw: bytes) -> list[Item]:
    """Parse the items of a request body: a JSON object, or an array of up to ``MOST_ITEMS``.

    Raises:
        InvalidSubmission: the body or at least one item is invalid.
    """
    if len(raw) > MOST_BYTES:
        text = f"a call has at most {MOST_BYTES} bytes, this has {len(raw)}"
        raise InvalidSubmission([SubmissionError("items", "too_large", text)])
    items: list[Item] = []
    faults: list[SubmissionError] = []
    for number, part in enumerate(_parts(raw)):
        try:
            items.append(read_item(part))
        except ItemError as error:
            faults.append(SubmissionError(f"items.{number}", error.code, str(error)))
    if faults:
        raise InvalidSubmission(faults[:MOST_TOLD])
    return items


def _parts(raw: bytes) -> list[bytes]:
    """Split a body into the JSON of each item. Raises ``InvalidSubmission``."""
    if not raw.lstrip(b" \t\r\n").startswith(b"["):
        return [raw]
    try:
        parts = _split.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidSubmission([_why(raw, error)]) from None
    if not parts:
        raise InvalidSubmission([SubmissionError("items", "empty", "the list holds no item")])
    if len(parts) > MOST_ITEMS:
        text = f"a call has at most {MOST_ITEMS} items, this has {len(parts)}"
        raise InvalidSubmission([SubmissionError("items", "too_many", text)])
    return [bytes(part) for part in parts]


def _why(raw: bytes, error: Exception) -> SubmissionError:
    """Return the fault of a list that cannot be parsed."""
    if len(raw) <= MAX_BYTES:
        try:
            read_json(raw)
        except ItemError as told:
            return SubmissionError("items", told.code, str(told))
    if isinstance(error, RecursionError):
        return SubmissionError("items", "too_deep", "the list is nested too deep")
    return SubmissionError("items", "not_json", str(error))


def web_entrances(track: Track) -> list[CompiledInbound]:
    """Return the enabled HTTP inbounds in the order of the rules.

    If the rules have no HTTP inbound at all, return only ``IMPLICIT``, which accepts every item.
    """
    named = [entrance for entrance in track.entrances.values() if entrance.rule.cls == HTTP]
    if not named:
        return [CompiledInbound(IMPLICIT, Chain(), compile_rules([(IMPLICIT.name, ())]))]
    return [entrance for entrance in named if not entrance.rule.disable]


def enter(entrances: Sequence[CompiledInbound], item: Item) -> ConvertedItem:
    """Assign an item to the first inbound that can convert it and whose selectors match."""
    first: Item | None = None
    poison: Malformed | None = None
    for number, entrance in enumerate(entrances):
        try:
            converted = entrance.convert(item)
        except Malformed as error:
            poison = poison or error
            continue
        if number == 0:
            first = converted
        if entrance.accepts(converted):
            return ConvertedItem(first, entrance.rule.name, converted)
    return ConvertedItem(first, poison=poison)

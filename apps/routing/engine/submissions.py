"""What is sent to ``POST /task/``: one item or a list of them, and which inbound takes each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from apps.routing.engine.converters.chain import Chain
from apps.routing.engine.inbounds.registry import HTTP
from apps.routing.engine.items import MAX_BYTES, Item, NoItem, read_item, read_json
from apps.routing.engine.rules import Inbound
from apps.routing.engine.selecting import compile_rules
from apps.routing.engine.track import Entrance, Poison, Track

# Of one call; one item has ``items.MAX_BYTES`` at most.
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_ITEMS: Final = 1000
# More mistakes of one call are not worth telling.
MOST_TOLD: Final = 20
# What a rule set without an inbound of HTTP has all the same: it takes everything.
IMPLICIT: Final = Inbound(name="http", cls=HTTP)

_split: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something is refused: where (``items.3``, or ``items`` for all), a code and a text."""

    place: str
    code: str
    text: str


class BadSubmission(ValueError):
    """Nothing of it is taken; ``faults`` says why, at least one and ``MOST_TOLD`` at most."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{each.place}: {each.text}" for each in faults))
        self.faults = list(faults)


@dataclass(frozen=True, slots=True)
class Entered:
    """One item before the inbounds of HTTP."""

    # As the first inbound converts it: of a result this is what counts. None: it cannot.
    first: Item | None
    # The inbound that takes it as a new item, and the item as that one converts it.
    inbound: str = ""
    item: Item | None = None
    # Why it is none that any inbound could take.
    poison: Poison | None = None


def read_submission(raw: bytes) -> list[Item]:
    """The items of a body, in their order: a JSON object is one, an array holds any number.

    Raises:
        BadSubmission: with a place for each item that is none.
    """
    if len(raw) > MOST_BYTES:
        text = f"a call has at most {MOST_BYTES} bytes, this has {len(raw)}"
        raise BadSubmission([Fault("items", "too_large", text)])
    items: list[Item] = []
    faults: list[Fault] = []
    for number, part in enumerate(_parts(raw)):
        try:
            items.append(read_item(part))
        except NoItem as error:
            faults.append(Fault(f"items.{number}", error.code, str(error)))
    if faults:
        raise BadSubmission(faults[:MOST_TOLD])
    return items


def _parts(raw: bytes) -> list[bytes]:
    """The bytes of each item. Raises ``BadSubmission``."""
    if not raw.lstrip(b" \t\r\n").startswith(b"["):
        return [raw]
    try:
        parts = _split.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadSubmission([_why(raw, error)]) from None
    if not parts:
        raise BadSubmission([Fault("items", "empty", "the list holds no item")])
    if len(parts) > MOST_ITEMS:
        text = f"a call has at most {MOST_ITEMS} items, this has {len(parts)}"
        raise BadSubmission([Fault("items", "too_many", text)])
    return [bytes(part) for part in parts]


def _why(raw: bytes, error: Exception) -> Fault:
    """What is wrong with a list that cannot be taken apart."""
    if len(raw) <= MAX_BYTES:
        try:
            read_json(raw)
        except NoItem as told:
            return Fault("items", told.code, str(told))
    if isinstance(error, RecursionError):
        return Fault("items", "too_deep", "the list is nested too deep")
    return Fault("items", "not_json", str(error))


def web_entrances(track: Track) -> list[Entrance]:
    """The inbounds that take items over HTTP, in the order of the rules, without disabled ones.

    Of rules that name none, the implicit one, which takes everything.
    """
    named = [each for each in track.entrances.values() if each.rule.cls == HTTP]
    if not named:
        return [Entrance(IMPLICIT, Chain(), compile_rules([(IMPLICIT.name, ())]))]
    return [each for each in named if not each.rule.disable]


def enter(entrances: Sequence[Entrance], item: Item) -> Entered:
    """The first inbound takes it whose converters can work on it and whose selector holds."""
    first: Item | None = None
    poison: Poison | None = None
    for number, entrance in enumerate(entrances):
        try:
            converted = entrance.convert(item)
        except Poison as error:
            poison = poison or error
            continue
        if number == 0:
            first = converted
        if entrance.accepts(converted):
            return Entered(first, entrance.rule.name, converted)
    return Entered(first, poison=poison)

"""Structs of the frequent calls' bodies, decoded by msgspec, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from django.core import signing
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from apps.seeds.api.bodies import read_as
from apps.seeds.api.moments import Moment, beginning, due, iso, to_ms
from apps.seeds.engine.seeds import MAX_KEY_BYTES, check_text
from yardkit.protocol import LeasedSeed, Seed, SeedAnswer, SeedFinish, SeedFinished, SeedsLeased
from yardkit.protocol.seeds import GRAB, MAX_SEEDS, KnownSeed, SeedOutcome

# Callers over REST cannot choose the recipient of a result, only return the one from the lease.
_grabs: Final = signing.Signer(salt="seeds.grab")


class SeedBody(msgspec.Struct, forbid_unknown_fields=True):
    """Seed in the body of a call."""

    data: str
    active_at: Moment | None = None
    max_retry: int | None = None
    ext: dict[str, Any] | None = None
    urgent: bool = False

    def seed(self, place: str) -> Seed:
        """Return the seed for the service. Raises ``ValidationError`` for a field below
        ``place``.
        """
        active_at = self.active_at
        if active_at is not None:
            active_at = to_ms(active_at, f"{place}active_at")
        if self.ext and GRAB in self.ext:
            text = _("The name %(name)s is reserved.") % {"name": GRAB}
            raise ValidationError({f"{place}ext": [text]})
        return Seed(self.data, active_at, self.max_retry, self.ext or None, self.urgent)


class SeedsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body with a list of seeds."""

    seeds: list[SeedBody | str]


class FinishBody(msgspec.Struct, forbid_unknown_fields=True):
    """Outcome of one leased seed."""

    segment: Moment
    key: str
    outcome: str
    generation: int | None = None
    grab: str | None = None
    result: Any = None


class FinishesBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a finish call. ``generation``: of finishes without their own."""

    finishes: list[FinishBody]
    owner: str = ""
    generation: int | None = None
    found: list[SeedBody | str] = []


def seeds_of(value: Any) -> list[Seed]:
    """Return the seeds of a body: one or a list, each an object or a text, optionally in ``seeds``.

    Raises:
        ValidationError: with the path of an item that is not a seed.
    """
    if isinstance(value, dict) and "seeds" in value:
        return _seeds(read_as(SeedsBody, value).seeds, "seeds")
    if isinstance(value, list):
        return _seeds(read_as(SeedsBody, {"seeds": value}).seeds, "seeds")
    if isinstance(value, str):
        return [Seed(value)]
    return [read_as(SeedBody, value).seed("")]


def _seeds(bodies: Sequence[SeedBody | str], name: str) -> list[Seed]:
    check_number(bodies, name)
    return [
        Seed(item) if isinstance(item, str) else item.seed(f"{name}.{number}.")
        for number, item in enumerate(bodies)
    ]


def check_number(items: Sequence[object], name: str, most: int = MAX_SEEDS) -> None:
    """Reject a list longer than ``most``. Raises ``ValidationError``."""
    if len(items) > most:
        words = {"number": len(items), "most": most}
        text = _("Too many items: %(number)d; at most %(most)d are allowed.") % words
        raise ValidationError({name: [text]})


def finishes_of(body: FinishesBody) -> tuple[list[SeedFinish], list[Seed]]:
    """Return the outcomes and the discovered seeds. Raises ``ValidationError``."""
    check_number(body.finishes, "finishes")
    finishes = []
    for number, item in enumerate(body.finishes):
        place = f"finishes.{number}."
        generation = body.generation if item.generation is None else item.generation
        finishes.append(
            SeedFinish(
                to_ms(item.segment, f"{place}segment"),
                item.key,
                _generation(generation, f"{place}generation"),
                _outcome(item.outcome, f"{place}outcome"),
                _grab(item.grab, f"{place}grab"),
                item.result,
            )
        )
    return finishes, _seeds(body.found, "found")


def _generation(value: int | None, place: str) -> int:
    if value is None:
        raise ValidationError({place: [_("The number of the lease is missing.")]})
    if not 0 <= value < 2**63:
        raise ValidationError({place: [_("Not a valid lease number.")]})
    return value


def _outcome(value: str, place: str) -> SeedOutcome:
    try:
        return SeedOutcome[value.upper()]
    except KeyError:
        known = ", ".join(outcome.name.lower() for outcome in SeedOutcome)
        raise ValidationError({place: [_("One of these is needed: %s.") % known]}) from None


def _grab(value: str | None, place: str) -> str:
    if not value:
        return ""
    try:
        return _grabs.unsign(value)
    except signing.BadSignature:
        text = _("Must be the value returned by the lease.")
        raise ValidationError({place: [text]}) from None


def checked_key(value: str, place: str = "key") -> str:
    """Return ``value`` if a seed may have it as its key. Raises ``BadSeed``."""
    return check_text("key", value, MAX_KEY_BYTES)


# --- answers --------------------------------------------------------------------------------------


def shown_answers(answers: Sequence[SeedAnswer]) -> list[dict[str, Any]]:
    """Return the results of an add as JSON, in order."""
    return [_answer(answer) for answer in answers]


def _answer(answer: SeedAnswer) -> dict[str, Any]:
    known = answer.code in ("new", "duplicate")
    return {
        "code": answer.code,
        "since": iso(answer.since) if answer.since else None,
        "state": answer.state.name.lower() if known else None,
        "text": answer.text,
    }


def tally(answers: Sequence[SeedAnswer]) -> dict[str, int]:
    """Return the number of results by code."""
    new = sum(answer.code == "new" for answer in answers)
    duplicates = sum(answer.code == "duplicate" for answer in answers)
    return {"new": new, "duplicates": duplicates, "refused": len(answers) - new - duplicates}


def shown_lease(lease: SeedsLeased, owner: str) -> dict[str, Any]:
    """Return a lease as JSON."""
    return {
        "owner": owner,
        "generation": lease.generation,
        "deadline": iso(lease.deadline) if lease.seeds else None,
        "seeds": [_leased(seed) for seed in lease.seeds],
        "next_due": iso(lease.next_due),
        "pending": lease.pending,
    }


def _leased(seed: LeasedSeed) -> dict[str, Any]:
    ext = dict(seed.ext or {})
    grab = ext.pop(GRAB, "")
    return {
        "segment": seed.segment,
        "key": seed.key,
        "data": seed.data,
        "retry": seed.retry,
        "max_retry": seed.max_retry,
        "ext": ext or None,
        "grab": _grabs.sign(grab) if grab else None,
    }


def shown_finish(answer: SeedFinished) -> dict[str, Any]:
    """Return the result of a finish as JSON."""
    state = None if answer.state is None else answer.state.name.lower()
    return {"code": answer.code, "state": state}


def shown_known(known: KnownSeed) -> dict[str, Any]:
    """Return all stored fields of a seed as JSON."""
    ext = {name: value for name, value in (known.ext or {}).items() if name != GRAB}
    return {
        "segment": known.segment,
        "begins_at": beginning(known.segment),
        "key": known.key,
        "data": known.data,
        "state": known.state.name.lower(),
        "retry": known.retry,
        "max_retry": known.max_retry,
        "added_at": iso(known.added_at),
        "changed_at": iso(known.changed_at),
        "due_at": due(known.due),
        "generation": known.generation,
        "ext": ext or None,
        "owner": known.owner,
        "deadline": iso(known.deadline),
    }

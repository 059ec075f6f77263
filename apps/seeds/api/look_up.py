"""Look-up of seeds, by data or by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from apps.seeds.api.bodies import dotted
from apps.seeds.api.moments import beginning, due, to_ms
from apps.seeds.api.service_calls import asker
from apps.seeds.api.shapes import checked_key, shown_known
from apps.seeds.models import Frontier
from apps.seeds.services import find_seed
from yardkit.protocol import Seed, SeedLookedUp
from yardkit.protocol.seeds import KnownSeed

_NAMES = frozenset({"data", "active_at", "segment", "key"})


def looked_up(frontier: Frontier, asked: Sequence[Any]) -> list[dict[str, Any]]:
    """Look up each seed; return the results in order. Raises ``ValidationError`` or ``BadSeed``."""
    many = len(asked) > 1
    questions = [
        _question(question, f"{number}." if many else "") for number, question in enumerate(asked)
    ]
    return [
        looked_up_one(frontier, question)
        if isinstance(question, Seed)
        else _by_key(frontier, *question)
        for question in questions
    ]


def looked_up_one(frontier: Frontier, seed: Seed) -> dict[str, Any]:
    """Return whether a seed would be new, with its state if it is known."""
    answer: SeedLookedUp = asker(frontier).look_up(seed)
    return _shown(answer.segment, answer.key, answer.due, answer.known)


def _by_key(frontier: Frontier, segment: int, key: str) -> dict[str, Any]:
    known = find_seed(frontier, segment, key)
    return _shown(segment, key, known.due if known else None, known)


def _shown(segment: int, key: str, when: int | None, known: KnownSeed | None) -> dict[str, Any]:
    return {
        "new": known is None,
        "segment": segment,
        "begins_at": beginning(segment),
        "key": key,
        "due_at": due(when),
        "known": None if known is None else shown_known(known),
    }


def _question(asked: Any, place: str) -> Seed | tuple[int, str]:
    if isinstance(asked, str):
        return Seed(asked)
    if not isinstance(asked, dict):
        text = _("Expected an object or a text.")
        raise ValidationError({place.rstrip(".") or dotted(""): [text]})
    if unknown := [name for name in asked if name not in _NAMES]:
        raise ValidationError(
            {f"{place}{name}": [_("There is no such field.")] for name in unknown}
        )
    by_key = "key" in asked
    main, time = ("key", "segment") if by_key else ("data", "active_at")
    value, when = asked.get(main), asked.get(time)
    if not isinstance(value, str):
        raise ValidationError({f"{place}{main}": [_("Expected a text.")]})
    others = [name for name in asked if name not in (main, time)]
    if others:
        text = _("Give either data and active_at, or segment and key.")
        raise ValidationError({f"{place}{name}": [text] for name in others})
    ms = None if when is None else to_ms(when, f"{place}{time}")
    if by_key:
        return ms or 0, checked_key(value)
    return Seed(value, ms)

"""Dry run of adding a seed: whether it would be new and, if not, since when it is known."""

from __future__ import annotations

import msgspec

from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import Seed
from apps.seeds.stores.base import Known, SeedStore


class SeedExplanation(msgspec.Struct, frozen=True):
    """Segment and key of a seed; ``known``: the stored seed with that key, None if there is
    none.
    """

    segment: int
    key: str
    due: int
    known: Known | None

    @property
    def new(self) -> bool:
        """Return whether ``add`` would store the seed."""
        return self.known is None


def explain(store: SeedStore, frontier: int, rules: FrontierRules, seed: Seed) -> SeedExplanation:
    """Return what ``add`` would do with a seed, without doing it.

    Raises:
        BadSeed: ``add`` would reject it.
    """
    resolved = rules.resolve(seed)
    known = store.lookup(frontier, resolved.segment, resolved.key)
    return SeedExplanation(resolved.segment, resolved.key, resolved.due, known)

"""Would this seed be new, and if not, since when?"""

from __future__ import annotations

import msgspec

from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import Seed
from apps.seeds.stores.base import Known, SeedStore


class Explanation(msgspec.Struct, frozen=True):
    """Where a seed would go; ``known``: what stands in its way, None where it would be new."""

    segment: int
    key: str
    due: int
    known: Known | None

    @property
    def new(self) -> bool:
        """Would it be taken?"""
        return self.known is None


def explain(store: SeedStore, frontier: int, rules: FrontierRules, seed: Seed) -> Explanation:
    """What ``add`` would do with a seed, without doing it.

    Raises:
        BadSeed: it would be refused.
    """
    resolved = rules.resolve(seed)
    known = store.lookup(frontier, resolved.segment, resolved.key)
    return Explanation(resolved.segment, resolved.key, resolved.due, known)

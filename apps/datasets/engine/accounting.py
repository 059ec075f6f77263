"""Sums over the items of a run: reasons of rejections, statistics of fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from yardkit.items.segments import FieldStatistics

MOST_REASONS: Final = 50
OTHER_REASONS: Final = "other reasons"


def merged_reasons(stored: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of both by reason; the rarest are merged."""
    total = Counter(stored) + Counter(new)
    kept = dict(total.most_common(MOST_REASONS))
    rest = total.total() - sum(kept.values())
    if rest:
        kept[OTHER_REASONS] = kept.get(OTHER_REASONS, 0) + rest
    return kept


def merged_fields(stored: Mapping[str, Any], new: Mapping[str, FieldStatistics]) -> dict[str, Any]:
    """Return the statistics of both by field, as ``DatasetRun.fields`` has them."""
    merged = dict(stored)
    for name, statistics in new.items():
        known = msgspec.convert(merged.get(name, {}), FieldStatistics)
        merged[name] = msgspec.to_builtins(known.merged(statistics))
    return merged

"""How often Python looks for circles of objects that nobody needs."""

from __future__ import annotations

import gc
from typing import Final

# The youngest are looked at when there are so many more of them; the others a little oftener than
# by default, because that is seldomer now.
THRESHOLDS: Final = (20_000, 10, 5)


def spare_the_collector() -> None:
    """For daemons whose batches are thousands of objects that no circle holds.

    By itself Python would go over all of it, and over the code, again and again, for a fifth of
    the time of an item.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

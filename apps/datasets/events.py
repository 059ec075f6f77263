"""Events for open pages."""

from typing import Final

# Items of a run were stored; payload: dataset, run.
ITEMS_GREW: Final = "items.grew"

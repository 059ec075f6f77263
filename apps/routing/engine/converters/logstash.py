"""Converter ``logstash.RemoveBuildinKeys``: remove keys that log shippers add to a log line."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Final

from apps.routing.engine.converters.base import BuiltInConverter
from apps.routing.engine.items import Item

# Keys that only Logstash and Beats write, never a spider.
ALWAYS: Final = frozenset(
    {"@timestamp", "@version", "@metadata", "beat", "prospector", "ecs", "input_type", "fileset"}
)
# Keys that a task may use as well (the host of a site, the path of a file). They are removed only
# if the line passed a log shipper, which always sets @timestamp or @version.
SHIPPED: Final = frozenset(
    {"host", "path", "tags", "message", "input", "offset", "source", "log", "agent", "event"}
)


class RemoveBuildinKeys(BuiltInConverter, frozen=True, kw_only=True):
    """Remove the keys that Logstash and Beats add. "Buildin" is the seed's spelling.

    ``type`` is kept by default: spiders use it too (``tax_arrears_announcement``), and the value
    that a shipper sets depends on its configuration. Use ``also: [type]`` to remove further keys
    and ``keep: [host]`` to keep keys that are removed by default.
    """

    adds: ClassVar[bool] = False

    also: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        both = set(self.also) & set(self.keep)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} cannot be in both also and keep")

    def convert(self, item: Item) -> Item:
        shipped = "@timestamp" in item or "@version" in item
        gone = _gone(self.also, self.keep, shipped)
        return {key: value for key, value in item.items() if key not in gone}


@lru_cache(maxsize=256)
def _gone(also: tuple[str, ...], keep: tuple[str, ...], shipped: bool) -> frozenset[str]:
    """Return the keys to remove. Cached, so the set is not built again for each item."""
    gone = ALWAYS.union(also, SHIPPED if shipped else ())
    return gone.difference(keep)

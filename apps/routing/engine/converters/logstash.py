"""``logstash.*``: what log shippers add to a line on its way."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Final

from apps.routing.engine.converters.base import Own
from apps.routing.engine.items import Item

# No spider writes keys like these: logstash and the beats alone do.
ALWAYS: Final = frozenset(
    {"@timestamp", "@version", "@metadata", "beat", "prospector", "ecs", "input_type", "fileset"}
)
# Each of these could be a key of a task too (the host of a site, the path of a file). They go only
# when the line has surely come through a shipper, which always sets @timestamp or @version.
SHIPPED: Final = frozenset(
    {"host", "path", "tags", "message", "input", "offset", "source", "log", "agent", "event"}
)


class RemoveBuildinKeys(Own, frozen=True, kw_only=True):
    """Drop the keys that logstash and the beats add; the name is spelled as the seed spells it.

    ``type`` stays: the shippers' ``type`` is whatever somebody configured, and the seed's own item
    has a ``type`` that is the spider's (``tax_arrears_announcement``). Where it is only noise, say
    ``also: [type]``; where one of the usual keys is needed, say ``keep: [host]``.
    """

    adds: ClassVar[bool] = False

    also: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        both = set(self.also) & set(self.keep)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} cannot be in both also and keep")

    def convert(self, item: Item) -> Item:
        """The item as the spider wrote it."""
        shipped = "@timestamp" in item or "@version" in item
        gone = _gone(self.also, self.keep, shipped)
        return {key: value for key, value in item.items() if key not in gone}


@lru_cache(maxsize=256)
def _gone(also: tuple[str, ...], keep: tuple[str, ...], shipped: bool) -> frozenset[str]:
    """Made once for each converter, and not for each item."""
    gone = ALWAYS.union(also, SHIPPED if shipped else ())
    return gone.difference(keep)

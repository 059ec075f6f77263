"""Name of a shard."""

from __future__ import annotations

import msgspec


class Shard(msgspec.Struct, frozen=True, order=True):
    """Physical names, valid for every adapter: ``[a-z0-9_]{1,63}``."""

    database: str
    collection: str

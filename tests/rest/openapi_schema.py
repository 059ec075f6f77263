"""The schema of REST, made once for all who read it: that takes seconds."""

from __future__ import annotations

import functools
from typing import Any

from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator


@functools.cache
def published() -> dict[str, Any]:
    """As clients get it. Not to be changed."""
    with GENERATOR_STATS.silence():
        made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made

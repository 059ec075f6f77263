"""Bodies with requests: larger than others, since each request may have 15 MiB."""

from __future__ import annotations

from apps.access.api.parsers import StrictJSONParser
from apps.requeststore.engine.limits import MAX_BODY_BYTES


class RequestsJSONParser(StrictJSONParser):
    """As everywhere, but ``MAX_BODY_BYTES``."""

    max_bytes = MAX_BODY_BYTES

"""Parser for bodies with requests, larger than others: one request may have 15 MiB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, ClassVar

from rest_framework.parsers import BaseParser

from apps.access.api.parsers import StrictJSONParser
from apps.requeststore.engine.limits import MAX_BODY_BYTES


class _Strict(StrictJSONParser):
    max_bytes: ClassVar[int | None] = MAX_BODY_BYTES


class RequestsJSONParser(BaseParser):
    """JSON parser with the limit ``MAX_BODY_BYTES``.

    Not a subclass of ``JSONParser``: for those the framework reads the body itself, limited to
    ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the value. Raises ``ParseError`` or ``BodyTooLarge``."""
        return _Strict().parse(stream, media_type, parser_context)

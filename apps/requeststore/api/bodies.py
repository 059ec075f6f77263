"""Bodies with requests: larger than others, since each request may have 15 MiB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, ClassVar

from rest_framework.parsers import BaseParser

from apps.access.api.parsers import StrictJSONParser
from apps.requeststore.engine.limits import MAX_BODY_BYTES


class _Strict(StrictJSONParser):
    max_bytes: ClassVar[int | None] = MAX_BODY_BYTES


class RequestsJSONParser(BaseParser):
    """JSON as everywhere, up to ``MAX_BODY_BYTES``.

    No ``JSONParser`` by inheritance: of those the framework reads the body itself, and no more of
    it than ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The value. Raises ``ParseError`` or ``BodyTooLarge``."""
        return _Strict().parse(stream, media_type, parser_context)

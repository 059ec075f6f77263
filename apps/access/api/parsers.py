"""JSON parser with the limits that DRF's lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import IO, Any, ClassVar, Final

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser

from yardkit.nesting import NestedTooDeeply, check_json

# Lone surrogate, which no database stores.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class BodyTooLarge(APIException):
    """The body is larger than ``DATA_UPLOAD_MAX_MEMORY_SIZE``."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "body_too_large"
    default_detail = gettext_lazy("The body is too large.")


class StrictJSONParser(JSONParser):
    """Rejects invalid UTF-8, NaN, lone surrogates, and too large or too deeply nested bodies.

    A subclass may set ``max_bytes`` above ``DATA_UPLOAD_MAX_MEMORY_SIZE``.
    """

    max_bytes: ClassVar[int | None] = None

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Parse the body. Raises ``ParseError`` or ``BodyTooLarge``."""
        limit: int = self.max_bytes or settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
        raw: bytes = stream.read(limit + 1)
        if len(raw) > limit:
            raise BodyTooLarge
        try:
            check_json(raw)
            text = raw.decode("utf-8")
            value = json.loads(text, parse_constant=_refuse_constant)
            if _SURROGATE.search(text):
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (NestedTooDeeply, RecursionError) as error:
            raise ParseError(_("The JSON is nested too deep.")) from error
        except ValueError as error:
            raise ParseError(_("Not valid JSON: %(error)s") % {"error": error}) from error
        return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")

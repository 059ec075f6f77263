"""Bodies that the engine reads itself: it knows keys that are there twice, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.errors import error_body
from apps.access.api.parsers import BodyTooLarge
from apps.routing.engine.items import Item
from apps.routing.engine.submissions import MOST_BYTES, BadSubmission, read_submission
from apps.routing.errors import InvalidItems
from apps.routing.texts import ITEMS, translated


class RawJSONParser(BaseParser):
    """The bytes of a body of JSON.

    No other type is taken: a page of another site could else have a browser inside an open
    network send one, without being asked whether it may.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """As they are. Raises ``BodyTooLarge``."""
        raw: bytes = stream.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise BodyTooLarge
        return raw


def raw_body(request: Request) -> bytes:
    """What was sent; DRF gives an empty dict for nothing."""
    return request.data if isinstance(request.data, bytes) else b""


def items_of(request: Request) -> list[Item]:
    """The items of the body. Raises ``InvalidItems``."""
    try:
        return read_submission(raw_body(request))
    except BadSubmission as error:
        fields: dict[str, list[str]] = {}
        for each in error.faults:
            fields.setdefault(each.place, []).append(
                f"{each.code}: {translated(ITEMS, each.code, each.text)}"
            )
        raise InvalidItems(error.faults[0].code, fields) from None


def refusal(error: InvalidItems) -> Response:
    """422 with the code of the first mistake; ``fields`` say where each is."""
    fields = {name: [str(text) for text in texts] for name, texts in error.fields.items()}
    body = error_body(
        error.reason, _("Nothing was stored: not all values are valid tasks."), fields
    )
    return Response(body, status=status.HTTP_422_UNPROCESSABLE_ENTITY)

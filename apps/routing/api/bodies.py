"""Request bodies with items, parsed by the engine: it reports duplicate keys and positions."""

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
from apps.routing.engine.submissions import MOST_BYTES, InvalidSubmission, read_submission
from apps.routing.errors import InvalidItems
from apps.routing.texts import ITEMS, translated


class RawJSONParser(BaseParser):
    """Parser that returns the undecoded bytes of a JSON body.

    Only ``application/json`` is accepted. Other content types would let a page of another site make
    a browser inside an open network send a request without a CORS preflight.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body as bytes. Raises ``BodyTooLarge`` beyond ``MOST_BYTES``."""
        raw: bytes = stream.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise BodyTooLarge
        return raw


def raw_body(request: Request) -> bytes:
    """Return the body as bytes; DRF represents an empty body as an empty dict."""
    return request.data if isinstance(request.data, bytes) else b""


def items_of(request: Request) -> list[Item]:
    """Return the items of the body. Raises ``InvalidItems`` with all problems by position."""
    try:
        return read_submission(raw_body(request))
    except InvalidSubmission as error:
        fields: dict[str, list[str]] = {}
        for fault in error.faults:
            fields.setdefault(fault.place, []).append(
                f"{fault.code}: {translated(ITEMS, fault.code, fault.text)}"
            )
        raise InvalidItems(error.faults[0].code, fields) from None


def refusal(error: InvalidItems) -> Response:
    """Return status 422 with the code of the first problem; ``fields`` has all by position."""
    fields = {name: [str(text) for text in texts] for name, texts in error.fields.items()}
    body = error_body(
        error.reason, _("Nothing was stored: not all values are valid tasks."), fields
    )
    return Response(body, status=status.HTTP_422_UNPROCESSABLE_ENTITY)

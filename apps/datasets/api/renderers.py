"""Renderers that make streamed types acceptable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import JSONRenderer


class AnyContent(JSONRenderer):
    """Accepts any type: content is streamed, so errors alone are rendered, as JSON."""

    media_type = "*/*"
    format = "content"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return JSON, because programs read the code of an error."""
        return super().render(data, "application/json", renderer_context)

"""ETags of single objects: a cheaper second read, and no overwriting of what others changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model
from django.utils.http import parse_etags
from rest_framework.request import Request

from apps.access.api.errors import PreconditionFailed


def etag_of(obj: Model, shown: Any) -> str:
    """The strong ETag of ``obj``: by its ``version``, else ``updated_at``, else what is shown.

    The language is no part of it: answers vary by Accept-Language, and If-Match must not.
    """
    for name in ("version", "updated_at"):
        if hasattr(obj, name):
            state = str(getattr(obj, name))
            break
    else:
        state = json.dumps(shown, cls=DjangoJSONEncoder, sort_keys=True)
    text = f"{obj._meta.label_lower}:{obj.pk}:{state}"
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def not_modified(request: Request, etag: str) -> bool:
    """Whether If-None-Match names the current state (weak comparison)."""
    offered = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in offered or etag in [each.removeprefix("W/") for each in offered]


def require_match(request: Request, etag: str) -> None:
    """Raise ``PreconditionFailed`` if there is an If-Match that does not name this state."""
    header = request.headers.get("If-Match")
    if header is None:
        return
    offered = parse_etags(header)
    if "*" not in offered and etag not in offered:
        raise PreconditionFailed

"""ETags of single objects: conditional reads, and protection against lost updates."""

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
    """Strong ETag of ``obj`` from its ``version``, ``updated_at`` or serialized form.

    Independent of the language: responses vary by Accept-Language, but If-Match must not.
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
    """Whether If-None-Match matches the current state (weak comparison)."""
    offered = parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in offered or etag in [tag.removeprefix("W/") for tag in offered]


def require_match(request: Request, etag: str) -> None:
    """Raise ``PreconditionFailed`` if an If-Match header does not match this state."""
    header = request.headers.get("If-Match")
    if header is None:
        return
    offered = parse_etags(header)
    if "*" not in offered and etag not in offered:
        raise PreconditionFailed

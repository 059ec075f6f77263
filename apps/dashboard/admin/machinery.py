"""Base class of the admin of messages and daemons.

Messages may contain data of any project, so only users who see everything may read them.
"""

from __future__ import annotations

import json
from typing import Final

from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.access.admin.base import person_of
from apps.access.admin.lists import CarefulAdmin
from apps.access.admin.read_only import ReadOnly
from apps.runtime.engine.preview import printable

SHOWN_REASON: Final = 120
PRE: Final = '<pre class="overflow-auto whitespace-pre-wrap break-all max-h-[40rem]">{}</pre>'


class PlatformAdmin(ReadOnly, CarefulAdmin):
    """Read-only admin for users who see everything; superusers may act on rows."""

    show_full_result_count = False
    list_per_page = 50

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow superusers and auditors."""
        person = person_of(request)
        return person is not None and person.is_staff and person.sees_everything

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Allow the users who may view rows."""
        return self.has_view_permission(request)

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Allow superusers to act on rows; auditors only read."""
        person = person_of(request)
        return person is not None and person.is_staff and person.rules_everything


def as_json(value: object) -> SafeString:
    """Render a value as indented JSON in a scrollable box."""
    return format_html(PRE, printable(json.dumps(value, indent=2, ensure_ascii=False)))

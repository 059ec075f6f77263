"""Addresses that the live tail asks."""

from __future__ import annotations

from django import template
from django.urls import reverse

from apps.joblogs.engine.lines import owner_of

register = template.Library()


@register.filter
def log_address(stream: str) -> str:
    """``/api/v1/runs/7/logs`` of ``run:7``. Raises ``BadLines``: a mistake of the page."""
    kind, pk = owner_of(stream)
    return reverse(f"{kind}-logs", kwargs={kind: pk})

"""Filters of the pages of datasets."""

from __future__ import annotations

from django import template

from apps.datasets.texts import reason_text

register = template.Library()
register.filter("reason", reason_text)

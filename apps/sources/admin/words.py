"""Texts for durations, gaps and remarks of imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _


def lasting(seconds: float) -> str:
    """Format a duration in its two largest units."""
    whole = max(0, round(seconds))
    minutes, second = divmod(whole, 60)
    if minutes < 1:
        return _("%(count)d s") % {"count": second}
    hours, minute = divmod(minutes, 60)
    if hours < 1:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minute, "seconds": second}
    return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minute}


def gap_text(gap: Mapping[str, Any]) -> str:
    """``0–49: ...``"""
    why = {
        "seed_rule": _("skipped by the previous program"),
        "missing": _("not returned by the API"),
        "expired": _("too old, so the first import stopped here"),
    }.get(str(gap.get("why")), str(gap.get("why")))
    return f"{int(gap['from']):,}–{int(gap['to']):,}: {why}"


def note_text(note: Mapping[str, Any]) -> str:
    """Format a remark of an import."""
    code = note.get("code")
    if code == "shrunk":
        return _("The source has fewer records than before: %(from)s, now %(to)s.") % note
    if code == "replaced":
        text = _(
            "None of the %(records)s records read before was found again: the "
            "source was probably cleared and refilled."
        )
        return text % note
    if code == "other_records":
        return _("The settings now select other records, so all of them were imported.")
    return str(code)

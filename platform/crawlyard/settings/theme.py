"""Settings of the admin's theme, django-unfold."""

from __future__ import annotations

from typing import Any

from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def admin_theme(static: str) -> dict[str, Any]:
    """Return ``UNFOLD``; ``static`` is the base URL of static files."""
    return {
        "SITE_TITLE": "Crawlyard",
        "SITE_HEADER": "Crawlyard",
        "SITE_SUBHEADER": _("data collection, accounted for"),
        "SITE_SYMBOL": "conversion_path",
        "SITE_FAVICONS": [
            {"rel": "icon", "type": "image/svg+xml", "href": f"{static}crawlyard.svg"}
        ],
        "SHOW_LANGUAGES": True,
        "ACCOUNT": {
            "navigation": [
                {"title": _("My account"), "link": reverse_lazy("access:account")},
                {
                    "title": _("Two-factor authentication"),
                    "link": reverse_lazy("access:second-factor-add"),
                },
                {"title": _("Change password"), "link": reverse_lazy("password_change")},
            ]
        },
        # Link on the page of every object, for users who may read the audit trail.
        "SHOW_HISTORY": "apps.access.services.may_read_trail",
        "SHOW_VIEW_ON_SITE": False,
        "DASHBOARD_CALLBACK": "apps.dashboard.pages.home",
        # Time zone of displayed times, beside the title of every page.
        "ENVIRONMENT": "apps.dashboard.navigation.time_zone",
        "GLOBAL_CALLBACK": "apps.dashboard.navigation.global_context",
        "STYLES": [f"{static}dashboard/dashboard.css", f"{static}access/access.css"],
        "SCRIPTS": [f"{static}dashboard/shortcuts.js"],
        "COMMAND": {"show_history": True},
        "SIDEBAR": {
            "navigation": "apps.dashboard.navigation.sidebar",
            "show_search": True,
            "command_search": True,
        },
    }

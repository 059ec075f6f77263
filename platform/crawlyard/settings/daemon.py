"""Settings of daemons: base settings without the parts for pages.

Importing the admin, its theme and REST would take half of a daemon's start-up time.
"""

from __future__ import annotations

from crawlyard.settings.base import *  # noqa: F403
from crawlyard.settings.base import DATABASES
from crawlyard.settings.base import INSTALLED_APPS as ALL_APPS

# A few busy threads: each keeps its connection and tests it before use.
DATABASES["default"] |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}

_PAGES_ONLY = {
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "axes",
    # Its models import Celery, which only the worker and beat need.
    "django_celery_beat",
}
INSTALLED_APPS = [app for app in ALL_APPS if app not in _PAGES_ONLY]

"""Settings of the Celery worker and of beat: a daemon's settings plus beat's models."""

from __future__ import annotations

from crawlyard.settings.daemon import *  # noqa: F403
from crawlyard.settings.daemon import INSTALLED_APPS

INSTALLED_APPS = ["django_celery_beat", *INSTALLED_APPS]

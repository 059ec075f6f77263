"""The worker's settings, with no housekeeping of their own: a test adds a row that is quicker."""

from __future__ import annotations

from crawlyard.settings.worker import *  # noqa: F403

CELERY_BEAT_SCHEDULE: dict[str, object] = {}

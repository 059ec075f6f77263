"""The Celery application. Its processes are ``manage.py run_worker`` and ``run_beat``."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

import crawlyard.task_files  # noqa: F401 - its transport has a name from now on

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.worker")
# A worker would run the checks of every app; those of a start are made by our commands.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("crawlyard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect  # type: ignore[untyped-decorator]
def leave_logging_alone(**_kwargs: Any) -> None:
    """Django has set it up; a receiver of this signal keeps Celery from doing it again."""

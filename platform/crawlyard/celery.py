"""The Celery application. Its processes are ``manage.py run_worker`` and ``run_beat``."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

import crawlyard.task_files  # noqa: F401 - registers the transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.worker")
# Celery would run the checks of every app; our commands run those of a start.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("crawlyard")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect  # type: ignore[untyped-decorator]
def leave_logging_alone(**_kwargs: Any) -> None:
    """Do nothing: a receiver of this signal keeps Celery from configuring logging."""

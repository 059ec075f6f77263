"""The project as an app: it owns the commands of the whole."""

from django.apps import AppConfig

# Whatever sends a task by its name finds the application once this is imported.
from crawlyard.celery import app as celery_app

__all__ = ["CrawlyardConfig", "celery_app"]


class CrawlyardConfig(AppConfig):
    """up, demo, doctor, check_input, bench, and what else concerns every app."""

    name = "crawlyard"
    label = "crawlyard"

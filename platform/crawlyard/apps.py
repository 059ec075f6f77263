"""The project as an app: it owns the commands of the whole."""

from importlib import import_module

from django.apps import AppConfig


class CrawlyardConfig(AppConfig):
    """up, demo, doctor, check_input, bench, and what else concerns every app."""

    name = "crawlyard"
    label = "crawlyard"

    def ready(self) -> None:
        """Register the checks."""
        import_module("crawlyard.checks")

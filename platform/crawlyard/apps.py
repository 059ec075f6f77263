"""The project as an app, which owns the commands of the whole product."""

from importlib import import_module

from django.apps import AppConfig


class CrawlyardConfig(AppConfig):
    """App with up, demo, doctor, check_input, bench and other product-wide commands."""

    name = "crawlyard"
    label = "crawlyard"

    def ready(self) -> None:
        """Register the checks."""
        import_module("crawlyard.checks")

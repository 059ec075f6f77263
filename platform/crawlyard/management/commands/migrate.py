"""``manage.py migrate``, which creates the tables of an empty database at once."""

from __future__ import annotations

from typing import Any

from django.core.management.commands.migrate import Command as DjangoCommand
from django.db import connections

from crawlyard.schema import Autodetector, create_schema


class Command(DjangoCommand):
    """Django's command, quick on an empty database; a changed text needs no migration."""

    autodetector = Autodetector

    def handle(self, *args: Any, **options: Any) -> None:
        """Create everything if nothing is there, then apply what is missing."""
        options_given = ("app_label", "check_unapplied", "fake", "fake_initial", "plan")
        if not any(options[name] for name in options_given):
            create_schema(connections[options["database"]])
        super().handle(*args, **options)

"""``manage.py makemigrations``, which ignores changes that do not affect the database."""

from __future__ import annotations

from django.core.management.commands.makemigrations import Command as DjangoCommand

from crawlyard.schema import Autodetector


class Command(DjangoCommand):
    """Django's command; a changed text needs no migration."""

    autodetector = Autodetector

"""Parsing of project arguments of management commands."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from django.core.management.base import CommandError

from apps.projects.models import Project

_BAD_INPUT: Final = 2


def project_named(name: str) -> Project:
    """Return a project by slug or ID. Raises ``CommandError``."""
    # Try the slug first: it may consist of digits.
    project = Project.objects.filter(slug=name).first()
    if project is None and name.isascii() and name.isdigit() and len(name) < 19:
        project = Project.objects.filter(pk=int(name)).first()
    if project is None:
        near = get_close_matches(name, Project.objects.values_list("slug", flat=True), n=1)
        meant = f"; is {near[0]} meant?" if near else ""
        raise CommandError(f"there is no project {name!r}{meant}", returncode=_BAD_INPUT)
    return project

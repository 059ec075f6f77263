"""Refusals of this app."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class ProjectError(DomainError):
    """Base of this app's refusals."""


class DefaultProjectStays(ProjectError):
    """The default project is where everything without a choice goes, so it stays."""

    code = "default_project_stays"
    detail = _("The default project cannot be deleted.")


class ProjectInUse(ProjectError):
    """Other things still belong to the project."""

    code = "project_in_use"
    detail = _("Other things still belong to this project; delete them first.")

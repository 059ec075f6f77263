"""Errors of projects, builds, images and deliveries; each class has a stable code."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError, Text


class ProjectError(DomainError):
    """Base class of the errors of this app."""


class DefaultProjectStays(ProjectError):
    """The default project, used when no project is chosen, cannot be deleted."""

    code = "default_project_stays"
    detail = _("The default project cannot be deleted.")


class ProjectInUse(ProjectError):
    """A build or run of the project is active."""

    code = "project_in_use"
    detail = _("This project has active builds or runs: stop them first.")


class ProjectNameTaken(ProjectError):
    """The deleted project cannot be restored: another project has its name or slug."""

    code = "project_name_taken"
    detail = _("Another project has this name or slug by now: rename that one first.")


class BuildsDisabled(ProjectError):
    """The project does not build tags, or has no git URL."""

    code = "builds_disabled"
    detail = _("This project does not build tags.")


class AlreadyBuilt(ProjectError):
    """The tag is being built or was built, by ``build``."""

    code = "already_built"
    detail = _("This tag has been built already; ask for a rebuild to build it again.")

    def __init__(self, build: Any, detail: Text | None = None) -> None:
        super().__init__(detail)
        self.build = build


class BuildNotActive(ProjectError):
    """The build has already ended."""

    code = "build_not_active"
    detail = _("This build has already ended.")


class BuildStillActive(ProjectError):
    """The build to repeat has not ended."""

    code = "build_active"
    detail = _("This build has not ended yet.")


class BuildMoveRefused(ProjectError):
    """The build's state does not allow this action."""

    code = "build_move_refused"
    detail = _("This build is being cancelled already.")


class TagNotRead(ProjectError):
    """The tag does not match the template of the project."""

    code = "tag_not_read"
    status = 422
    detail = _("This tag does not fit the project's template.")


class GitRefused(ProjectError):
    """The git server is unreachable or refuses."""

    code = "git_refused"
    detail = _("The git server cannot be reached.")


class ImageKnown(ProjectError):
    """The image is already listed, as ``image``."""

    code = "image_known"
    detail = _("This image is listed already.")

    def __init__(self, image: Any) -> None:
        super().__init__()
        self.image = image


class RegistryRefused(ProjectError):
    """The registry is unreachable or refuses."""

    code = "registry_refused"
    detail = _("The registry cannot be reached.")


class RegistryAway(ProjectError):
    """The registry does not answer at the moment; the sender should retry."""

    code = "registry_away"
    detail = _("The registry does not answer.")


class DeliveryNotReplayable(ProjectError):
    """A refused delivery cannot be replayed: it was not authenticated, and its body not stored."""

    code = "delivery_not_replayable"
    detail = _("This delivery was refused, so its body was not kept; send it again.")

"""States and steps of builds; sources and verdicts of deliveries; sources of images."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class DeliverySource(TextChoices):
    """Kind of sender."""

    GITHUB = "github", "GitHub"
    GITLAB = "gitlab", "GitLab"
    GITEA = "gitea", "Gitea, Forgejo"
    SIGNED = "signed", _("signed form")
    REGISTRY = "registry", _("registry")


class DeliveryVerdict(TextChoices):
    """Result of a delivery. A refused delivery was not authenticated; its body is not stored."""

    BUILT = "built", _("build queued")
    LISTED = "listed", _("image listed")
    IGNORED = "ignored", _("ignored")
    REFUSED = "refused", _("refused")


class BuildState(TextChoices):
    """State of a build. The last four states are final."""

    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    CANCELLING = "cancelling", _("cancelling")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")
    LOST = "lost", _("lost")


class BuildStep(TextChoices):
    """Step of a build, in order of execution."""

    NONE = "", _("not started")
    CLONE = "clone", _("clone")
    PREPARE = "prepare", _("prepare")
    BUILD = "build", _("build")
    CHECK = "check", _("check")
    DESCRIBE = "describe", _("describe")
    STORE = "store", _("store")


class ImageSource(TextChoices):
    """Origin of an image."""

    BUILD = "build", _("built here")
    REGISTRY = "registry", _("pushed to the registry")


class SpiderKind(TextChoices):
    """Kind of a project's spiders."""

    YARDSPIDER = "yardspider", "yardspider"
    SCRAPY = "scrapy", "Scrapy"


B = BuildState

BUILD_FINAL: Final = frozenset({B.SUCCEEDED, B.FAILED, B.CANCELLED, B.LOST})
BUILD_ACTIVE: Final = frozenset(B) - BUILD_FINAL

# Allowed previous states by state. A final state is never left.
BUILD_MOVES: Final[dict[BuildState, frozenset[BuildState]]] = {
    B.QUEUED: frozenset(),
    B.RUNNING: frozenset({B.QUEUED}),
    B.CANCELLING: frozenset({B.RUNNING}),
    B.SUCCEEDED: frozenset({B.RUNNING}),
    B.FAILED: frozenset({B.RUNNING, B.CANCELLING}),
    B.CANCELLED: frozenset({B.QUEUED, B.RUNNING, B.CANCELLING}),
    B.LOST: frozenset({B.RUNNING, B.CANCELLING}),
}

# Colours of states, as names of the admin theme's labels.
BUILD_TONES: Final[dict[BuildState, str]] = {
    B.QUEUED: "default",
    B.RUNNING: "info",
    B.CANCELLING: "warning",
    B.SUCCEEDED: "success",
    B.FAILED: "danger",
    B.CANCELLED: "warning",
    B.LOST: "danger",
}
VERDICT_TONES: Final[dict[DeliveryVerdict, str]] = {
    DeliveryVerdict.BUILT: "success",
    DeliveryVerdict.LISTED: "success",
    DeliveryVerdict.IGNORED: "default",
    DeliveryVerdict.REFUSED: "danger",
}

"""Services of projects, builds, images and deliveries: all writes to the models of this app."""

from apps.projects.services.builds import build_tag, cancel_build, queue_build, rebuild
from apps.projects.services.connection import check_connection, preview_tag
from apps.projects.services.deletion import delete_project, purge_projects, restore_project
from apps.projects.services.deliveries import receive_delivery, replay_delivery
from apps.projects.services.images import list_image
from apps.projects.services.projects import (
    change_project,
    create_project,
    default_project,
    ensure_webhook_secret,
    refuse_default,
    reveal_webhook_secret,
    rotate_webhook_secret,
)
from apps.projects.services.registry import refresh_images

__all__ = [
    "build_tag",
    "cancel_build",
    "change_project",
    "check_connection",
    "create_project",
    "default_project",
    "delete_project",
    "ensure_webhook_secret",
    "list_image",
    "preview_tag",
    "purge_projects",
    "queue_build",
    "rebuild",
    "receive_delivery",
    "refresh_images",
    "refuse_default",
    "replay_delivery",
    "restore_project",
    "reveal_webhook_secret",
    "rotate_webhook_secret",
]

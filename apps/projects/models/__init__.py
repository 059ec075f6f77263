"""Models of projects, webhook deliveries, builds and images."""

from apps.projects.models.build import Build, Delivery, Image, ImageDescription
from apps.projects.models.project import (
    DEFAULT_SLUG,
    DEFAULT_TAG_TEMPLATE,
    DeletedProject,
    Project,
    validate_networks,
)

__all__ = [
    "DEFAULT_SLUG",
    "DEFAULT_TAG_TEMPLATE",
    "Build",
    "DeletedProject",
    "Delivery",
    "Image",
    "ImageDescription",
    "Project",
    "validate_networks",
]

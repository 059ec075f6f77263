"""Admin classes of projects, webhook deliveries, builds and images."""

from apps.projects.admin.builds import BuildAdmin
from apps.projects.admin.deleted import DeletedProjectAdmin
from apps.projects.admin.deliveries import DeliveryAdmin
from apps.projects.admin.images import ImageAdmin
from apps.projects.admin.projects import ProjectAdmin

__all__ = ["BuildAdmin", "DeletedProjectAdmin", "DeliveryAdmin", "ImageAdmin", "ProjectAdmin"]

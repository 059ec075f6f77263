"""Admin pages of frontiers, seeds and resource pools."""

from apps.seeds.admin.frontiers import FrontierAdmin
from apps.seeds.admin.pools import ResourcePoolAdmin
from apps.seeds.admin.resources import ResourceAdmin

__all__ = ["FrontierAdmin", "ResourceAdmin", "ResourcePoolAdmin"]

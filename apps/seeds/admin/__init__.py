"""The admin of this app."""

from apps.seeds.admin.frontiers import FrontierAdmin

__all__ = ["FrontierAdmin"]

"""The admin of this app."""

from apps.requeststore.admin.tester import SamplePageAdmin

__all__ = ["SamplePageAdmin"]

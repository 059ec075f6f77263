"""The admin of this app."""

from apps.requeststore.admin.bizzes import BizAdmin

__all__ = ["BizAdmin"]

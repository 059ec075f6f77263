"""The router's daemon."""

from apps.routing.daemon.router import RouterDaemon
from apps.routing.daemon.rule_sets import Environment

__all__ = ["Environment", "RouterDaemon"]

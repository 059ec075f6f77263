"""Event and condition sources of each app, for alert rules.

``register_sources`` runs at start-up; no source queries the database before the monitor polls it.
"""

from apps.alerts.engine.events import register
from apps.alerts.engine.rules import register_builtin
from apps.alerts.sources import (
    accounting,
    deliveries,
    infrastructure,
    items,
    logs,
    monitors,
    routing,
    runs,
    stores,
    work,
    yields,
)
from apps.alerts.sources.builtin import RULES


def register_sources() -> None:
    """Register all sources and built-in rules."""
    modules = (
        runs,
        work,
        logs,
        items,
        infrastructure,
        routing,
        stores,
        accounting,
        deliveries,
        yields,
        monitors,
    )
    for module in modules:
        for source in module.SOURCES:
            register(source)
    for rule in (*RULES, *yields.RULES):
        register_builtin(rule)

"""What can happen, and what can be so: each app's part that rules may watch.

``register_sources`` is called when the app is ready; nothing here asks the database before then.
"""

from apps.alerts.engine.events import register
from apps.alerts.engine.rules import register_builtin
from apps.alerts.sources import (
    books,
    logs,
    machinery,
    routing,
    runs,
    stores,
    watching,
    work,
    yields,
)
from apps.alerts.sources.builtin import RULES


def register_sources() -> None:
    """Make everything known to rules, and the rules that are built in."""
    for module in (runs, work, logs, machinery, routing, stores, books, yields, watching):
        for source in module.SOURCES:
            register(source)
    for rule in (*RULES, *yields.RULES):
        register_builtin(rule)

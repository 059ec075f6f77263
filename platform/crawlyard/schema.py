"""Tables of an empty database, and which changes of models need a migration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.apps import apps
from django.db import router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import RunPython
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from django.db.models import Field

# The hint of a data migration that also concerns a database without rows.
EMPTY: Final = "empty_database"
# What only forms and pages read.
_FIELD_TEXTS: Final = {"choices", "error_messages", "help_text", "validators", "verbose_name"}
_MODEL_TEXTS: Final = ("ordering", "verbose_name", "verbose_name_plural")


def create_schema(connection: BaseDatabaseWrapper) -> bool:
    """Create all tables at once and record all migrations as applied, if there is no table yet.

    The result is that of all migrations one after the other, which take twenty times as long:
    Django renders all models for each operation. One transaction; return whether it was done.
    """
    if connection.introspection.table_names():
        return False
    loader = MigrationLoader(connection)
    nodes = {key: loader.graph.nodes[key] for key in loader.disk_migrations}
    recorder = MigrationRecorder(connection)
    with connection.schema_editor() as editor:
        editor.create_model(recorder.Migration)
        for config in apps.get_app_configs():
            models = router.get_migratable_models(config, connection.alias)
            for model in models:
                if model._meta.can_migrate(connection):
                    editor.create_model(model)
        recorder.migration_qs.bulk_create(
            recorder.Migration(app=app, name=name) for app, name in nodes
        )
        for migration in nodes.values():
            for operation in migration.operations:
                if isinstance(operation, RunPython) and EMPTY in operation.hints:
                    change: Callable[..., None] = operation.code
                    change(apps, editor)
    return True


class Autodetector(MigrationAutodetector):
    """Ignores labels, help texts, choices and validators: the database does not know them."""

    def __init__(self, from_state: ProjectState, to_state: ProjectState, *args: Any) -> None:
        super().__init__(from_state, to_state, *args)
        for state in (from_state, to_state):
            for model in state.models.values():
                for name in _MODEL_TEXTS:
                    model.options.pop(name, None)

    def deep_deconstruct(self, obj: Any) -> Any:
        """Deconstruct as Django does, without attributes that the database does not store."""
        description = super().deep_deconstruct(obj)
        if isinstance(obj, Field):
            path, args, options = description
            return path, args, {k: v for k, v in options.items() if k not in _FIELD_TEXTS}
        return description

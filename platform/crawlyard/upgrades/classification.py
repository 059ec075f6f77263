"""Classification of migrations: can the previous version work with the migrated database?

A migration *expands* when it can: it only adds what older code need not know. Every other migration
*contracts* and declares it by a class attribute: ``contract = "why it is not read any more"``.
Operations that cannot be analysed, such as ``RunPython``, declare ``expand = "why the previous
version is not affected"`` (docs/upgrade.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import models
from django.db.migrations import operations as ops
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED

_HARMLESS: Final = (
    ops.CreateModel,
    ops.AddIndex,
    ops.RemoveIndex,
    ops.RenameIndex,
    ops.AlterModelOptions,
    ops.AlterModelManagers,
    ops.AlterOrderWithRespectTo,
    ops.AlterModelTableComment,
)
# Attributes of a field without effect on its column.
_NOT_OF_THE_COLUMN: Final = {
    "blank",
    "choices",
    "default",
    "editable",
    "error_messages",
    "help_text",
    "limit_choices_to",
    "related_name",
    "related_query_name",
    "validators",
    "verbose_name",
    "auto_now",
    "auto_now_add",
    "on_delete",
    "encoder",
    "decoder",
    "db_index",
    "db_default",
}


@dataclass(frozen=True, slots=True)
class MigrationVerdict:
    """Compatibility of a migration.

    ``problems``: changes that the previous version cannot work with; ``marked``: the declared
    reason.
    """

    name: str
    problems: tuple[str, ...] = ()
    marked: str = ""

    @property
    def contracts(self) -> bool:
        """Whether older processes have to be stopped first."""
        return bool(self.problems)


def classify(plan: Sequence[tuple[Migration, bool]], state: ProjectState) -> list[MigrationVerdict]:
    """Return a verdict for each migration of ``plan``; ``state`` is the one before, and changes."""
    # Tables unknown to older code.
    fresh: set[tuple[str, str]] = set()
    verdicts = []
    for migration, _backwards in plan:
        problems = tuple(_problems(migration, state, fresh))
        if vars(type(migration)).get("expand"):
            problems = tuple(problem for problem in problems if not problem.endswith(_UNKNOWN))
        why: str = vars(type(migration)).get("contract", "")
        verdicts.append(MigrationVerdict(f"{migration.app_label}.{migration.name}", problems, why))
    return verdicts


_UNKNOWN: Final = "cannot be judged from outside"


def _problems(
    migration: Migration, state: ProjectState, fresh: set[tuple[str, str]]
) -> Iterator[str]:
    label = migration.app_label
    for operation in migration.operations:
        meets = state.clone() if isinstance(operation, ops.SeparateDatabaseAndState) else state
        for inner_operation in _flat([operation]):
            if isinstance(inner_operation, ops.CreateModel):
                fresh.add((label, inner_operation.name_lower))
            model = getattr(
                inner_operation, "model_name_lower", getattr(inner_operation, "name_lower", "")
            )
            if (label, model) not in fresh:
                problem = _problem(inner_operation, label, meets)
                if problem:
                    yield problem
            inner_operation.state_forwards(label, meets)
        if meets is not state:
            # Database and state operations are separate, as in Django.
            operation.state_forwards(label, state)


def _flat(operations: Sequence[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, ops.SeparateDatabaseAndState):
            yield from _flat(operation.database_operations)
        else:
            yield operation


def _problem(operation: Operation, label: str, state: ProjectState) -> str:
    if isinstance(operation, _HARMLESS):
        return ""
    where = f"{label}.{getattr(operation, 'model_name', getattr(operation, 'name', ''))}"
    if isinstance(operation, ops.AddField):
        where = f"{where}.{operation.name}"
        return (
            "" if _may_be_left_out(operation.field) else f"{where}: added, NOT NULL, no db_default"
        )
    if isinstance(operation, ops.AlterField):
        old = state.models[label, operation.model_name_lower].fields[operation.name]
        narrowed = _narrower(old, operation.field)
        return f"{where}.{operation.name}: {narrowed}" if narrowed else ""
    if isinstance(operation, ops.AddConstraint):
        return (
            f"{where}: the constraint {operation.constraint.name} may refuse what older code writes"
        )
    if isinstance(operation, ops.RemoveConstraint):
        known = state.models[label, operation.model_name_lower].options.get("constraints", [])
        unique = any(
            constraint.name == operation.name and isinstance(constraint, models.UniqueConstraint)
            for constraint in known
        )
        return f"{where}: {operation.name} goes, which older code may name" if unique else ""
    if isinstance(operation, (ops.RunPython, ops.RunSQL)):
        return f"{type(operation).__name__} {_UNKNOWN}"
    return f"{where}: {operation.describe()}"


def _may_be_left_out(field: Any) -> bool:
    """Return whether an INSERT may omit the column."""
    return field.many_to_many or field.null or field.db_default is not NOT_PROVIDED


def _narrower(old: Any, new: Any) -> str:
    """Return how the new column rejects or changes values of older code; "" if it does not."""
    if old.null and not new.null:
        return "becomes NOT NULL"
    if new.unique and not old.unique:
        return "becomes unique"
    if not (_may_be_left_out(new) or old.db_default is NOT_PROVIDED):
        # Older code relies on the removed DEFAULT.
        return "loses its db_default"
    _name, old_path, old_arguments, old_options = old.deconstruct()
    _name, new_path, new_arguments, new_options = new.deconstruct()
    length, before = new_options.pop("max_length", None), old_options.pop("max_length", None)
    if length is not None and (before is None or length < before):
        return f"becomes shorter, {length}"
    for options in (old_options, new_options):
        for name in ("null", "unique", *_NOT_OF_THE_COLUMN):
            options.pop(name, None)
    same = (old_arguments, old_options) == (new_arguments, new_options)
    if old_path != new_path and not _same_column(old, new):
        return f"changes its type to {new_path.rpartition('.')[2]}"
    return "" if same else "changes its column"


def _same_column(old: Any, new: Any) -> bool:
    kinds = (old.get_internal_type(), new.get_internal_type())
    return bool(kinds[0] == kinds[1])

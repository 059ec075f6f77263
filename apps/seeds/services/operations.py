"""Operations on many seeds: created as rows, executed in slices, cancelled, resumed.

The row holds the progress, so that any process can resume it: a worker, the sweep after a
worker's death, or a terminal. A slice executed twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.runtime.deferral import defer
from apps.runtime.services import database_now
from apps.seeds.errors import MoveUnderWay, OperationEnded, OperationRunning
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.operation_steps import STEPS, OperationFailed, read_arguments, unfreeze
from apps.seeds.states import ACTIVE_OPERATIONS, OperationKind, OperationState
from yardkit import failpoints, topology
from yardkit.seeds import CallRefused, SeedServiceAway

OPERATION_TASK: Final = "seeds.work_on_operation"
# Time slice of one operation in a worker, in seconds.
SLOT_SECONDS: Final = 20.0
# Without a heartbeat for this time, a worker counts as dead.
STALE_SECONDS: Final = 30.0
# Seconds after which waiting operations wake the workers again.
WAKE_SECONDS: Final = 10.0
# Limit of worker deaths, after which the operation fails.
MAX_ATTEMPTS: Final = 5
_LOOK_SECONDS: Final = 0.5

# Called after each slice.
OnProgress = Callable[[Operation], None]


@transaction.atomic
def start_operation(
    frontier: Frontier,
    kind: str,
    arguments: Mapping[str, Any] | None = None,
    requested_by: str = "",
    *,
    actor: User | None = None,
) -> Operation:
    """Create an operation; a worker starts it after the commit.

    ``arguments``: ``reopen_failed`` takes ``source`` and ``target`` (None: the current segment),
    ``drop`` takes ``segment`` and ``leased_too``, ``wipe`` takes ``leased_too``. A ``move`` is
    started by ``granularity.change``, an ``import`` by ``portable.import_seeds``.

    Raises:
        BadArguments
        OperationRunning: the frontier is being moved or, for a move, has any other active
            operation.
    """
    now = database_now()
    # Lock: two concurrent starts must not both succeed.
    frontier = Frontier.objects.select_for_update().get(pk=frontier.pk)
    active = Operation.objects.filter(frontier=frontier, state__in=ACTIVE_OPERATIONS)
    if kind != OperationKind.MOVE:
        active = active.filter(kind=OperationKind.MOVE)
    if active.exists():
        raise OperationRunning
    operation = Operation(
        frontier=frontier,
        kind=kind,
        arguments=read_arguments(frontier, kind, arguments or {}, now),
        requested_by=(requested_by or (actor.get_username() if actor else ""))[:150],
        created_at=now,
    )
    try:
        with transaction.atomic():
            operation.save(force_insert=True)
    except IntegrityError:
        raise OperationRunning from None
    record(
        actor=actor,
        action=f"seeds.{kind}",
        obj=frontier,
        after=dict(arguments or {}),
        actor_label="" if actor else operation.requested_by,
    )
    defer(OPERATION_TASK, queue=topology.TASKS, operation=operation.pk)
    return operation


@transaction.atomic
def begin_import(
    frontier: Frontier, arguments: Mapping[str, Any], requested_by: str, actor: User | None
) -> Operation:
    """Create the row of an import that this process executes itself.

    Raises:
        OperationRunning: the frontier is being moved.
    """
    now = database_now()
    frontier = Frontier.objects.select_for_update().get(pk=frontier.pk)
    active = Operation.objects.filter(frontier=frontier, state__in=ACTIVE_OPERATIONS)
    if active.filter(kind=OperationKind.MOVE).exists():
        raise OperationRunning
    operation = Operation.objects.create(
        frontier=frontier,
        kind=OperationKind.IMPORT,
        arguments=dict(arguments),
        state=OperationState.RUNNING,
        requested_by=(requested_by or (actor.get_username() if actor else ""))[:150],
        created_at=now,
        started_at=now,
        beat_at=now,
    )
    record(
        actor=actor,
        action="seeds.import",
        obj=frontier,
        after=dict(arguments),
        actor_label="" if actor else operation.requested_by,
    )
    return operation


@transaction.atomic
def cancel_operation(operation: Operation, *, actor: User | None = None) -> Operation:
    """Cancel the operation after the current slice; completed slices stay.

    Raises:
        OperationEnded
        MoveUnderWay: seeds are between two places.
    """
    now = database_now()
    locked = Operation.objects.select_for_update().get(pk=operation.pk)
    if locked.state not in ACTIVE_OPERATIONS:
        raise OperationEnded
    if locked.kind == OperationKind.MOVE:
        if locked.arguments.get("phase") not in ("freeze", "leases"):
            raise MoveUnderWay
        unfreeze(locked.frontier_id)
    locked.state, locked.ended_at = OperationState.CANCELLED, max(now, locked.created_at)
    locked.save(update_fields=["state", "ended_at"])
    record(actor=actor, action="seeds.cancel_operation", obj=locked, project=_project(locked))
    return locked


def work_on_operation(
    operation_id: int, *, seconds: float = SLOT_SECONDS, on_progress: OnProgress | None = None
) -> str | None:
    """Work on a waiting operation for about ``seconds``; return its state, None if it was not
    claimed.

    An unfinished operation returns to waiting, and a worker is woken.
    """
    operation = _claim(operation_id)
    if operation is None:
        return None
    failpoints.hit("seeds.operation.claimed")
    end = time.monotonic() + seconds
    try:
        while not STEPS[OperationKind(operation.kind)](operation):
            failpoints.hit("seeds.operation.slice")
            if not beat_operation(operation):
                return None
            if on_progress is not None:
                on_progress(operation)
            if time.monotonic() > end:
                return _release(operation)
    except SeedServiceAway as error:
        # The sweep retries the operation.
        return _release(operation, error=str(error), wake=False)
    except CallRefused as error:
        if error.retry_seconds:
            return _release(operation, error=str(error), wake=False)
        return end_operation(operation, OperationState.FAILED, str(error))
    except OperationFailed as error:
        return end_operation(operation, OperationState.FAILED, str(error))
    ended = end_operation(operation, OperationState.DONE)
    if on_progress is not None:
        on_progress(operation)
    return ended


def follow_operation(operation: Operation, on_progress: OnProgress) -> Operation:
    """Execute the operation until it ends, or poll it while another process executes it."""
    while True:
        work_on_operation(operation.pk, on_progress=on_progress)
        operation.refresh_from_db()
        on_progress(operation)
        if operation.state not in ACTIVE_OPERATIONS:
            return operation
        if operation.state != OperationState.WAITING or operation.error:
            time.sleep(_LOOK_SECONDS)


def sweep_operations(*, now: datetime) -> int:
    """Return operations of dead workers to waiting, and wake workers for waiting ones; return how
    many.
    """
    stale = Operation.objects.filter(
        state=OperationState.RUNNING, beat_at__lt=now - timedelta(seconds=STALE_SECONDS)
    )
    for operation in stale:
        if operation.kind == OperationKind.IMPORT:
            # The lines of an import were lost with the process that read them.
            end_operation(operation, OperationState.FAILED, _("the process died"))
            continue
        attempts = int(operation.arguments.get("attempts", 0)) + 1
        if attempts >= MAX_ATTEMPTS:
            text = _("%(count)d workers died while executing it") % {"count": attempts}
            end_operation(operation, OperationState.FAILED, text)
            continue
        operation.arguments["attempts"] = attempts
        _mine(operation).update(state=OperationState.WAITING, arguments=operation.arguments)
    woken = 0
    for pk in Operation.objects.filter(
        state=OperationState.WAITING, created_at__lt=now - timedelta(seconds=WAKE_SECONDS)
    ).values_list("pk", flat=True):
        defer(OPERATION_TASK, queue=topology.TASKS, operation=pk)
        woken += 1
    return woken


def _claim(operation_id: int) -> Operation | None:
    now = database_now()
    operation = Operation.objects.select_related("frontier").filter(pk=operation_id).first()
    if operation is None or operation.state != OperationState.WAITING:
        return None
    started_at = operation.started_at or max(now, operation.created_at)
    claimed = Operation.objects.filter(
        pk=operation.pk, state=OperationState.WAITING, beat_at=operation.beat_at
    ).update(state=OperationState.RUNNING, beat_at=now, started_at=started_at, error="")
    if not claimed:
        return None
    operation.state, operation.beat_at = OperationState.RUNNING, now
    operation.started_at, operation.error = started_at, ""
    return operation


def beat_operation(operation: Operation) -> bool:
    """Save the progress and heartbeat. False if the operation is no longer claimed by this
    worker.
    """
    now = database_now()
    operation.arguments.pop("attempts", None)
    if not _mine(operation).update(beat_at=now, **_progress(operation)):
        return False
    operation.beat_at = now
    return True


def _release(operation: Operation, *, error: str = "", wake: bool = True) -> str:
    with transaction.atomic():
        _mine(operation).update(
            state=OperationState.WAITING, error=error[:1000], **_progress(operation)
        )
        if wake:
            defer(OPERATION_TASK, queue=topology.TASKS, operation=operation.pk)
    return OperationState.WAITING


def end_operation(operation: Operation, state: OperationState, error: str = "") -> str:
    """End the operation with ``state``, unless it is no longer claimed by this worker."""
    now = database_now()
    _mine(operation).update(
        state=state,
        error=error[:1000],
        ended_at=max(now, operation.created_at),
        **_progress(operation),
    )
    operation.state, operation.error, operation.ended_at = state, error[:1000], now
    return state


def _progress(operation: Operation) -> dict[str, Any]:
    names = ("done", "total", "result", "arguments")
    return {name: getattr(operation, name) for name in names}


def _mine(operation: Operation) -> Any:
    """Return the queryset of the operation, limited to claims of this process."""
    return Operation.objects.filter(
        pk=operation.pk, state=OperationState.RUNNING, beat_at=operation.beat_at
    )


def _project(operation: Operation) -> int:
    return operation.frontier.project_id

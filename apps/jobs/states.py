"""States of runs and their transitions; choices of schedules, hosts and links."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class RunState(TextChoices):
    """State of a run. The last four states are final."""

    QUEUED = "queued", _("queued")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    PAUSING = "pausing", _("pausing")
    PAUSED = "paused", _("paused")
    RESUMING = "resuming", _("resuming")
    STOPPING = "stopping", _("stopping")
    EXITED = "exited", _("exited")
    FAILED = "failed", _("failed")
    LOST = "lost", _("lost")
    CANCELLED = "cancelled", _("cancelled")


S = RunState

FINAL: Final = frozenset({S.EXITED, S.FAILED, S.LOST, S.CANCELLED})
ACTIVE: Final = frozenset(S) - FINAL
# States with a process or container on a host.
ON_A_HOST: Final = ACTIVE - {S.QUEUED}

# Allowed previous states by state. A final state is never left.
MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    S.QUEUED: frozenset(),
    # From stopping: a restart.
    S.STARTING: frozenset({S.QUEUED, S.STOPPING}),
    # From pausing: the run refused to pause. From paused: a frozen run was thawed.
    S.RUNNING: frozenset({S.STARTING, S.RESUMING, S.PAUSING, S.PAUSED}),
    S.PAUSING: frozenset({S.RUNNING, S.RESUMING}),
    # From running and resuming: frozen by its host, without an answer of the run.
    S.PAUSED: frozenset({S.PAUSING, S.RUNNING, S.RESUMING}),
    S.RESUMING: frozenset({S.PAUSED, S.PAUSING}),
    S.STOPPING: frozenset(ON_A_HOST - {S.STOPPING}),
    S.EXITED: frozenset(ON_A_HOST),
    S.FAILED: frozenset(ON_A_HOST),
    S.LOST: frozenset(ON_A_HOST),
    S.CANCELLED: frozenset(ACTIVE),
}

# States in which users may stop, pause, resume or restart a run.
STOPPABLE: Final = MOVES[S.STOPPING] | {S.QUEUED}
PAUSABLE: Final = MOVES[S.PAUSING]
RESUMABLE: Final = MOVES[S.RESUMING]
RESTARTABLE: Final = MOVES[S.STOPPING]
# States in which the host may freeze a run that does not answer.
FREEZABLE: Final = frozenset({S.RUNNING, S.PAUSING, S.RESUMING})
# States in which a run receives commands and may get other settings.
TUNABLE: Final = frozenset({S.RUNNING, S.PAUSING, S.PAUSED, S.RESUMING})

# Colours of states, as names of the admin theme's labels.
TONES: Final[dict[RunState, str]] = {
    S.QUEUED: "default",
    S.STARTING: "info",
    S.RUNNING: "info",
    S.PAUSING: "warning",
    S.PAUSED: "warning",
    S.RESUMING: "info",
    S.STOPPING: "warning",
    S.EXITED: "success",
    S.FAILED: "danger",
    S.LOST: "danger",
    S.CANCELLED: "warning",
}


class RunOutcome(TextChoices):
    """Outcome of a run, by its state, failed requests, exceptions, items and their checks."""

    SUCCEEDED = "succeeded", _("succeeded")
    FINISHED_WITH_ERRORS = "finished_with_errors", _("finished with errors")
    FAILED = "failed", _("failed")
    LOST = "lost", _("lost")
    CANCELLED = "cancelled", _("cancelled")


# Colours of states and outcomes.
STATUS_TONES: Final[dict[str, str]] = {
    **{state.value: tone for state, tone in TONES.items()},
    RunOutcome.SUCCEEDED.value: "success",
    RunOutcome.FINISHED_WITH_ERRORS.value: "warning",
}


def outcome_of(
    state: str,
    *,
    total: int | None,
    failed: int | None,
    allowed_percent: float,
    exceptions: int | None = None,
    allowed_exceptions: int | None = None,
    items: int | None = None,
    least_items: int | None = None,
    failed_checks: int = 0,
) -> RunOutcome | None:
    """Return the outcome of a run in ``state``; None while the run is active.

    ``total`` and ``failed`` are the numbers of its requests, ``exceptions`` and ``items`` those of
    its spider: None if not reported. A limit of None is not checked.
    """
    if state not in FINAL:
        return None
    if state != S.EXITED:
        return RunOutcome(state)
    if (
        failed_checks
        or (failed and 100 * failed > allowed_percent * max(total or 0, failed))
        or (allowed_exceptions is not None and (exceptions or 0) > allowed_exceptions)
        or (least_items is not None and items is not None and items < least_items)
    ):
        return RunOutcome.FINISHED_WITH_ERRORS
    return RunOutcome.SUCCEEDED


def may_move(from_state: str, to_state: RunState) -> bool:
    """Return whether a run in ``from_state`` may enter ``to_state``."""
    return from_state in MOVES[to_state]


def allowed_actions(
    state: str, *, restart_wanted: bool = False, freeze_wanted: bool = False, frozen: bool = False
) -> list[RunAsk]:
    """Return the actions that the state of a run allows, in the order of the buttons."""
    halted = freeze_wanted or frozen
    thawable = freeze_wanted or (frozen and state == S.PAUSED)
    allowed = {
        RunAsk.PAUSE: state in PAUSABLE,
        RunAsk.RESUME: state in RESUMABLE and (not halted or thawable),
        RunAsk.RESTART: state in RESTARTABLE,
        RunAsk.EXIT: state in STOPPABLE or (state == S.STOPPING and restart_wanted),
        RunAsk.FREEZE: state in FREEZABLE and not halted,
        RunAsk.THAW: thawable and state in ON_A_HOST and state != S.STOPPING,
        RunAsk.TUNE: state in TUNABLE and not halted,
    }
    return [action for action, may in allowed.items() if may]


class Trigger(TextChoices):
    """Cause for which a run was queued."""

    PERSON = "person", _("a person")
    CRON = "cron", _("its schedule")
    RETRY = "retry", _("a retry")
    LINK = "link", _("another job's end")
    ITEM = "item", _("a routed item")


class RunAsk(TextChoices):
    """Action on a run."""

    PAUSE = "pause", _("pause")
    RESUME = "resume", _("resume")
    EXIT = "exit", _("exit")
    RESTART = "restart", _("restart")
    FREEZE = "freeze", _("freeze")
    THAW = "thaw", _("thaw")
    # Change of window or speed of an active run.
    TUNE = "tune", pgettext_lazy("run", "tune")


class ReplayMissing(TextChoices):
    """What a run on kept pages does with requests whose page was not kept."""

    FAIL = "fail", _("fail")
    FETCH = "fetch", _("fetch from the site")


class TrialState(TextChoices):
    """State of the trial of an image."""

    RUNNING = "running", _("running")
    PASSED = "passed", pgettext_lazy("trial", "passed")
    FAILED = "failed", pgettext_lazy("trial", "not passed")
    ABORTED = "aborted", pgettext_lazy("trial", "not completed")


class OverlapPolicy(TextChoices):
    """Policy for a run that is due while an earlier run of its job is active."""

    SKIP = "skip", _("skip the new run")
    QUEUE = "queue", _("queue the new run")
    REPLACE = "replace", _("stop the active run, then start")
    ALLOW = "allow", _("run both")


class MisfirePolicy(TextChoices):
    """Policy for planned runs that could not be started on time."""

    SKIP = "skip", _("skip: list as missed")
    ONCE = "once", _("catch up the last, list the others as missed")
    ALL = "all", _("catch up all")


class PlanOutcome(TextChoices):
    """Outcome of a planned run."""

    STARTED = "started", _("started")
    LATE = "late", _("started late")
    CAUGHT_UP = "caught_up", _("caught up")
    SKIPPED = "skipped", _("skipped: an earlier run was active")
    MISSED = "missed", _("missed")


class LinkCondition(TextChoices):
    """Ends of a run after which the following jobs are run."""

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    ALWAYS = "always", _("ended")


class HostKind(TextChoices):
    """Kind of executions of a host."""

    PROCESS = "process", _("local processes")
    DOCKER = "docker", _("containers")


class HostMode(TextChoices):
    """Whether a host gets new runs."""

    ENABLED = "enabled", _("enabled")
    DRAINING = "draining", _("draining")
    DISABLED = "disabled", _("disabled")

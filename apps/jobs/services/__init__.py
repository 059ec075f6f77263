"""Services of jobs, runs and hosts: all writes to the models of this app."""

from apps.jobs.services.bulk import (
    RunActionRefusal,
    RunActionResult,
    act_on_run,
    act_on_runs,
    pause_job,
    resume_job,
    stop_job,
)
from apps.jobs.services.deletion import delete_job, purge_jobs, restore_job
from apps.jobs.services.hosts import beat_host, forget_host, register_host, switch_host
from apps.jobs.services.jobs import clone_job, create_job, update_job
from apps.jobs.services.lifecycle import (
    acknowledge,
    freeze_run,
    mark_frozen,
    pause_run,
    remind_runs,
    restart_here,
    restart_run,
    resume_run,
    thaw_run,
    tune_run,
)
from apps.jobs.services.links import add_link, change_link, remove_link
from apps.jobs.services.placement import explain_placement, explain_run_placement, place_runs
from apps.jobs.services.plans import plan_due
from apps.jobs.services.retries import retry_if_wanted
from apps.jobs.services.run_queue import queue_run
from apps.jobs.services.runs import (
    WATCH_LEASE_SECONDS,
    adopt_run,
    claim_runs,
    finish_run,
    mark_running,
    note_recovery,
    reap_lost_runs,
    reap_when_steady,
    start_run,
    time_out_run,
    watch_runs,
)
from apps.jobs.services.schedules import sync_schedule
from apps.jobs.services.stops import stop_run

__all__ = [
    "WATCH_LEASE_SECONDS",
    "RunActionRefusal",
    "RunActionResult",
    "acknowledge",
    "act_on_run",
    "act_on_runs",
    "add_link",
    "adopt_run",
    "beat_host",
    "change_link",
    "claim_runs",
    "clone_job",
    "create_job",
    "delete_job",
    "explain_placement",
    "explain_run_placement",
    "finish_run",
    "forget_host",
    "freeze_run",
    "mark_frozen",
    "mark_running",
    "note_recovery",
    "pause_job",
    "pause_run",
    "place_runs",
    "plan_due",
    "purge_jobs",
    "queue_run",
    "reap_lost_runs",
    "reap_when_steady",
    "register_host",
    "remind_runs",
    "remove_link",
    "restart_here",
    "restart_run",
    "restore_job",
    "resume_job",
    "resume_run",
    "retry_if_wanted",
    "start_run",
    "stop_job",
    "stop_run",
    "switch_host",
    "sync_schedule",
    "thaw_run",
    "time_out_run",
    "tune_run",
    "update_job",
    "watch_runs",
]

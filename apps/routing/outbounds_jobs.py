"""``jobs.StartRunOutbound``: start a run of a job of the project for each item.

An item counts as delivered when its run is queued. Sending is idempotent: a message that is sent
again for the same attempt starts no second run. The router waits for no result unless the rule says
so (see docs/outbounds.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.jobs.arguments import check_arguments
from apps.jobs.errors import JobDisabled, JobRunning, TooManyWaiting
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState, Trigger
from apps.routing.engine.messages import BUILT_IN, TASK_PARAMS
from apps.routing.engine.outbounds.base import (
    CLOSED,
    DELIVERED,
    Batch,
    Encoded,
    Outcome,
    Sent,
    Settings,
    away,
    refused,
)
from apps.routing.engine.outbounds.parameters import Parameter, name_of, read
from apps.routing.engine.rules import Outbound as Rule
from apps.runtime.errors import DATABASE_ERRORS

NAME: Final = "jobs.StartRunOutbound"
_DATABASE_AWAY: Final = away("database_away", "the database cannot be reached")


def _check_arguments(arguments: Mapping[Any, Any]) -> str:
    for name, key in arguments.items():
        if not isinstance(name, str) or not isinstance(key, str):
            return "names of arguments and the keys of the message must be texts"
    return ""


class StartRunOutbound:
    """Outbound that starts runs; see ``engine.outbounds.base.Outbound``.

    Needs ``Settings.project``.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "job": Parameter(str, required=True, check=name_of("the name of a job", 800)),
        # Argument of the run -> key of the message. Without it, all keys of the item are passed.
        "arguments": Parameter(dict, check=_check_arguments),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raise ``ValueError`` for parameters that ``registry.check`` reports."""
        values = read(rule.init, self.parameters)
        self._name = rule.name
        self._wrapped = rule.task_params_wrapped
        self._job: str = values["job"]
        self._arguments: Mapping[str, str] | None = values["arguments"]
        self._project = settings.project
        self._is_closed = False

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        if not self._project:
            text = "outbound built without a project: its job cannot be looked up"
            return work.finish(away("no_project", text))
        for message in work.ready:
            try:
                work.settle([message], self._start(message))
            except DATABASE_ERRORS:
                # Otherwise the thread would reuse the broken connection.
                connection.close_if_unusable_or_obsolete()
                break
        return work.finish(_DATABASE_AWAY)

    def depth(self) -> int | None:
        """Return the number of queued runs of the job."""
        if self._is_closed:
            return None
        waiting = Run.objects.filter(
            job__project=self._project, job__name=self._job, state=RunState.QUEUED
        )
        try:
            return waiting.count()
        except DATABASE_ERRORS:
            connection.close_if_unusable_or_obsolete()
            return None

    def close(self) -> None:
        """Refuse further batches; database connections belong to the threads."""
        self._is_closed = True

    def _start(self, message: Encoded) -> Outcome:
        # Imported here: every process loads this module at start, and few send to this outbound.
        from apps.jobs.services import start_run
        from apps.runtime.services import claim_message

        job = Job.objects.filter(project=self._project, name=self._job).first()
        if job is None:
            return refused(
                "unknown_job",
                f"the project has no job {self._job}; create it or change the parameter job",
            )
        payload = message.sent.message
        payload = payload[TASK_PARAMS] if self._wrapped else payload
        arguments = self._arguments_of(payload)
        try:
            check_arguments({**job.arguments, **arguments})
        except ValidationError as error:
            text = f"the job does not accept the arguments: {'; '.join(error.messages)}"
            return refused("bad_arguments", text)
        # A retry by the router is a new attempt, and starts a new run.
        attempt = f"{message.sent.task_uuid}:{payload.get('group_retry_times', 0)}"
        try:
            with transaction.atomic():
                if claim_message(consumer=f"start run {job.pk}", message_id=attempt):
                    words = {"uuid": message.sent.task_uuid, "outbound": self._name}
                    start_run(
                        job=job,
                        now=timezone.now(),
                        actor=None,
                        arguments=arguments,
                        trigger=Trigger.ITEM,
                        reason=_("routed task %(uuid)s, outbound %(outbound)s") % words,
                    )
        except (JobDisabled, JobRunning) as error:
            # JobRunning: the job is configured to skip runs while one is active.
            return refused(error.code, str(error))
        except TooManyWaiting as error:
            return away(error.code, str(error))
        return DELIVERED

    def _arguments_of(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            return {key: value for key, value in payload.items() if key not in BUILT_IN}
        return {name: payload[key] for name, key in self._arguments.items() if key in payload}

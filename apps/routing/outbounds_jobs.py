"""``jobs.StartRunOutbound``: an item starts a run of a job of its project.

Delivered means that the run is queued, and an item is delivered once: a message that is offered
again for the same attempt finds its run started. What the run makes of it is the run's affair, so
no result is waited for unless the rule says so (see docs/outbounds.md).
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
_DATABASE_AWAY: Final = away("database_away", "the database does not answer")


def _check_arguments(arguments: Mapping[Any, Any]) -> str:
    for name, key in arguments.items():
        if not isinstance(name, str) or not isinstance(key, str):
            return "the name of an argument and the key of the message it comes from are texts"
    return ""


class StartRunOutbound:
    """See ``engine.outbounds.base.Outbound``; needs ``Settings.project``."""

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "job": Parameter(str, required=True, check=name_of("the name of a job", 800)),
        # Argument of the run -> key of the message; without it, all that the item has.
        "arguments": Parameter(dict, check=_check_arguments),
    }
    default_expects_result: ClassVar[bool] = False

    def __init__(self, rule: Rule, settings: Settings) -> None:
        """Raises ``ValueError`` for parameters that ``registry.check`` refuses."""
        values = read(rule.init, self.parameters)
        self._name = rule.name
        self._wrapped = rule.task_params_wrapped
        self._job: str = values["job"]
        self._arguments: Mapping[str, str] | None = values["arguments"]
        self._project = settings.project
        self._is_closed = False

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """See ``Outbound``."""
        if self._is_closed:
            return [CLOSED] * len(batch)
        work = Batch(batch)
        if not self._project:
            return work.finish(away("no_project", "this process does not say whose jobs are meant"))
        for message in work.ready:
            try:
                work.settle([message], self._start(message))
            except DATABASE_ERRORS:
                # The next thread that asks gets a connection that works, if there is one.
                connection.close_if_unusable_or_obsolete()
                break
        return work.finish(_DATABASE_AWAY)

    def depth(self) -> int | None:
        """Runs of the job that wait for a host."""
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
        """See ``Outbound``; the connection to the database is the thread's."""
        self._is_closed = True

    def _start(self, message: Encoded) -> Outcome:
        # Not at the top: this module is loaded when Django starts.
        from apps.jobs.services import start_run
        from apps.runtime.services import claim_message

        job = Job.objects.filter(project=self._project, name=self._job).first()
        if job is None:
            return refused("unknown_job", f"the project has no job {self._job}")
        said = message.sent.message
        said = said[TASK_PARAMS] if self._wrapped else said
        arguments = self._arguments_of(said)
        try:
            check_arguments({**job.arguments, **arguments})
        except ValidationError as error:
            text = f"the arguments cannot be those of a run: {'; '.join(error.messages)}"
            return refused("bad_arguments", text)
        # A retry is another attempt, and another run.
        attempt = f"{message.sent.task_uuid}:{said.get('group_retry_times', 0)}"
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
                        reason=_("item %(uuid)s by outbound %(outbound)s") % words,
                    )
        except (JobDisabled, JobRunning) as error:
            # The second: whoever has set up the job wants later ones to be skipped.
            return refused(error.code, str(error))
        except TooManyWaiting as error:
            return away(error.code, str(error))
        return DELIVERED

    def _arguments_of(self, said: Mapping[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            return {key: value for key, value in said.items() if key not in BUILT_IN}
        return {name: said[key] for name, key in self._arguments.items() if key in said}

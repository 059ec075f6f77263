"""Links between jobs: "after B has succeeded, run A"."""

from __future__ import annotations

from django.db import connection, transaction
from django.utils.translation import gettext as _

from apps.access.errors import RoleRequired
from apps.access.models import User
from apps.access.services import has_role, record, snapshot
from apps.access.states import Role
from apps.jobs.engine.graph import find_path
from apps.jobs.errors import LinkCycle, LinkExists
from apps.jobs.models import Job, JobLink

# Of the advisory lock that adding links takes; any number nobody else uses.
_LOCK = 0x4C494E4B


@transaction.atomic
def add_link(*, job: Job, after: Job, condition: str, actor: User | None) -> JobLink:
    """Let a run of ``job`` follow each run of ``after`` that ends as ``condition`` says.

    Raises:
        LinkCycle: the jobs would follow each other for ever.
        LinkExists: there is a link between the two already.
        RoleRequired: ``after`` is of another project, and ``actor`` is no editor there.
    """
    require_roles(job=job, after=after, actor=actor)
    hold_links()
    refuse_cycle(job=job, after=after, actor=actor)
    if JobLink.objects.filter(job=job, after=after).exists():
        message = _("%(job)s follows %(after)s already.") % {"job": job.name, "after": after.name}
        raise LinkExists(message, fields={"after": [message]})
    link = JobLink.objects.create(job=job, after=after, condition=condition)
    record(actor=actor, action="jobs.add_joblink", obj=link, after=snapshot(link))
    return link


@transaction.atomic
def change_link(*, link: JobLink, condition: str, actor: User | None) -> JobLink:
    """Another condition, for the ends to come."""
    before = {"condition": link.condition}
    if condition != link.condition:
        JobLink.objects.filter(pk=link.pk).update(condition=condition)
        link.condition = condition
        record(
            actor=actor,
            action="jobs.change_joblink",
            obj=link,
            before=before,
            after={"condition": condition},
        )
    return link


@transaction.atomic
def remove_link(*, link: JobLink, actor: User | None) -> None:
    """End of the following; runs that were queued by it stay."""
    record(actor=actor, action="jobs.delete_joblink", obj=link, before=snapshot(link))
    link.delete()


def require_roles(*, job: Job, after: Job, actor: User | None) -> None:
    """Who links two projects must be an editor in both. Raises ``RoleRequired``."""
    if actor is not None and not all(
        has_role(actor, project, Role.EDITOR) for project in {job.project_id, after.project_id}
    ):
        raise RoleRequired


def hold_links() -> None:
    """Until the end of the transaction nobody else adds a link.

    Two links that are fine each by itself can be a circle together.
    """
    # SQLite's transactions take their turns anyway.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def refuse_cycle(*, job: Job, after: Job, actor: User | None) -> None:
    """Raise ``LinkCycle`` with the way round if ``after`` follows ``job`` already."""
    edges = JobLink.objects.values_list("after_id", "job_id")
    path = find_path(edges, job.pk, after.pk)
    if not path:
        return
    rows = Job.objects.filter(pk__in=path)
    visible = rows if actor is None else rows.visible_to(actor)
    names = dict(visible.values_list("pk", "name"))
    way = " → ".join(names.get(each, "…") for each in [*path, job.pk])
    message = _("These jobs would follow each other for ever: %(way)s.") % {"way": way}
    raise LinkCycle(message, fields={"after": [message]})

"""Services of links between jobs, such as "after B has succeeded, run A"."""

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

# Key of the advisory lock for adding links; arbitrary, but unique in the database.
_LOCK = 0x4C494E4B


@transaction.atomic
def add_link(*, job: Job, after: Job, condition: str, actor: User | None) -> JobLink:
    """Add a link: queue a run of ``job`` after each run of ``after`` that meets ``condition``.

    Raises:
        LinkCycle: the links would form a cycle.
        LinkExists: the two jobs are already linked.
        RoleRequired: ``after`` is in another project, and ``actor`` is not an editor there.
    """
    require_roles(job=job, after=after, actor=actor)
    hold_links()
    refuse_cycle(job=job, after=after, actor=actor)
    if JobLink.objects.filter(job=job, after=after).exists():
        message = _("%(job)s already runs after %(after)s.") % {
            "job": job.name,
            "after": after.name,
        }
        raise LinkExists(message, fields={"after": [message]})
    link = JobLink.objects.create(job=job, after=after, condition=condition)
    record(actor=actor, action="jobs.add_joblink", obj=link, after=snapshot(link))
    return link


@transaction.atomic
def change_link(*, link: JobLink, condition: str, actor: User | None) -> JobLink:
    """Change the condition of a link; applies to runs that end from now on."""
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
    """Remove a link; runs that it has queued are kept."""
    record(actor=actor, action="jobs.delete_joblink", obj=link, before=snapshot(link))
    link.delete()


def require_roles(*, job: Job, after: Job, actor: User | None) -> None:
    """Require that the actor is an editor in both projects. Raises ``RoleRequired``."""
    if actor is not None and not all(
        has_role(actor, project, Role.EDITOR) for project in {job.project_id, after.project_id}
    ):
        raise RoleRequired


def hold_links() -> None:
    """Lock the set of links until the end of the transaction.

    Two links that are added concurrently may form a cycle together, although neither does alone.
    """
    # SQLite serializes write transactions anyway.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def refuse_cycle(*, job: Job, after: Job, actor: User | None) -> None:
    """Raise ``LinkCycle`` with its path if ``after`` already follows ``job``."""
    edges = JobLink.objects.values_list("after_id", "job_id")
    path = find_path(edges, job.pk, after.pk)
    if not path:
        return
    rows = Job.objects.filter(pk__in=path)
    visible = rows if actor is None else rows.visible_to(actor)
    names = dict(visible.values_list("pk", "name"))
    way = " → ".join(names.get(pk, "…") for pk in [*path, job.pk])
    message = _("The links would form a cycle: %(way)s.") % {"way": way}
    raise LinkCycle(message, fields={"after": [message]})

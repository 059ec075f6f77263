"""People and channels that can be, or are, notified of failed runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db.models import Count, Q, QuerySet

from apps.access.models import Membership, User
from apps.alerts.engine.rules import Rule, ScopedRule, scoped_rules
from apps.alerts.models import Channel, RunSubscription
from apps.alerts.queries.rules import active_rulebooks
from apps.alerts.states import NoticeKind, NoticeState
from apps.jobs.models import Job
from apps.projects.models import Project

# Prefix of a user name in the recipients of a rule; names of channels begin with a letter.
PERSON: Final = "@"
MOST_CHOICES: Final = 300
MOST_PROJECTS: Final = 100
FAILED: Final = "run.failed"


def people_of(project_id: int | None) -> QuerySet[User, User]:
    """Return active users who see the project (None: the platform)."""
    condition = Q(is_superuser=True) | Q(is_auditor=True)
    if project_id is not None:
        members = Membership.objects.living().filter(project_id=project_id)
        condition |= Q(pk__in=members.values("user"))
    return User.objects.filter(condition, is_active=True)


def channels_of(project_id: int | None) -> QuerySet[Channel, Channel]:
    """Return the channels that rules of the project may name, without those of people."""
    own = Q(project=None) if project_id is None else Q(project=None) | Q(project=project_id)
    return Channel.objects.filter(own, person=None)


def recipient_choices(
    project_id: int | None,
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (name, text) of the channels and of the people that a rule of the project may name."""
    channels = channels_of(project_id).order_by("name")[:MOST_CHOICES]
    people = people_of(project_id).order_by("username")[:MOST_CHOICES]
    return (
        list(
            {
                row.name: (row.name, f"{row.name} · {row.get_kind_display()}") for row in channels
            }.values()
        ),
        [
            (PERSON + person.username, " · ".join(filter(None, (person.username, person.email))))
            for person in people
        ],
    )


def unnotified_projects(user: User) -> tuple[list[Project], int]:
    """Return the visible projects with jobs in which nobody is notified of a failed run, and the
    number of visible projects with jobs. At most five queries."""
    with_jobs = Project.objects.visible_to(user).filter(pk__in=Job.objects.values("project"))
    projects = list(with_jobs.order_by("name")[:MOST_PROJECTS])
    if not projects:
        return [], 0
    books = active_rulebooks()
    rules = [
        scoped
        for scoped in scoped_rules(books.platform, books.projects)
        if scoped.rule.event == FAILED and scoped.rule.tell
    ]
    names = {name for scoped in rules for name in scoped.rule.tell}
    channels = Channel.objects.filter(enabled=True, person=None, name__in=names)
    known: set[tuple[str, int | None]] = set(channels.values_list("name", "project_id"))
    people = User.objects.filter(
        is_active=True, username__in=[name[1:] for name in names if name.startswith(PERSON)]
    )
    known |= {(PERSON + name, None) for name in people.values_list("username", flat=True)}
    rows = RunSubscription.objects.filter(channel__enabled=True)
    subscribed = set(rows.order_by().values_list("project_id", flat=True).distinct())
    silent = [
        project
        for project in projects
        if not subscribed & {None, project.pk} and not _reaches(rules, project.pk, known)
    ]
    return silent, len(projects)


def failure_rules(project_id: int) -> list[Rule]:
    """Return the enabled rules about failed runs of a project that name recipients."""
    books = active_rulebooks()
    return [
        scoped.rule
        for scoped in scoped_rules(books.platform, books.projects)
        if scoped.rule.event == FAILED and scoped.rule.tell and scoped.holds_for(project_id)
    ]


def run_end_counts(channel: Channel) -> dict[str, int]:
    """Return how many notifications of ends of runs the channel has, in total and by state."""
    rows = channel.notices.filter(kind=NoticeKind.RUN_ENDED).order_by()
    counts = dict(rows.values_list("state").annotate(Count("pk")))
    return {"total": sum(counts.values()), **{state: counts.get(state, 0) for state in NoticeState}}


def _reaches(
    rules: Iterable[ScopedRule], project_id: int, known: set[tuple[str, int | None]]
) -> bool:
    return any(
        (name, None) in known or (name, project_id) in known
        for scoped in rules
        if scoped.holds_for(project_id)
        for name in scoped.rule.tell
    )

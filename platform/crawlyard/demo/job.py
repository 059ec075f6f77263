"""The demo's project and job, and what is reported of its run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.access.models import User
from apps.access.services.links import first_link, invite
from apps.agents.models import Agent
from apps.jobs.models import Job, Run
from apps.jobs.services import start_run
from apps.jobs.states import FINAL, RunState
from apps.projects.models import Project
from apps.queuestats.models import FailedRequest
from apps.queuestats.queries import RunBooks, books_of

SPIDER = "yardspider.spiders:SiteSpider"


def make_job(*, url: str, name: str) -> Job:
    """The job that crawls the site at ``url``; its project may reach this machine itself."""
    project, _ = Project.objects.update_or_create(
        slug="demo",
        defaults={
            "name": "Demo",
            "description": "The sample job of manage.py demo.",
            # Agents refuse private addresses; the demo's site is on this very machine.
            "allowed_networks": ["127.0.0.0/8"],
        },
    )
    job: Job
    job, _ = Job.objects.update_or_create(
        project=project,
        name=name,
        defaults={"spider": SPIDER, "arguments": {"url": url}, "speed": 0, "enabled": True},
    )
    return job


def admin_link(server: str, *, renew: bool) -> str | None:
    """A link for the admin to set a password, or None when the account is a person's own.

    ``renew``: in the demo's own folder, so that last week's password need not be remembered.
    """
    made = first_link()
    admin = _admin()
    if made is None and renew and admin is not None:
        made = invite(actor=None, username=admin.username, actor_label="manage.py demo")
    return None if made is None else made.address(server)


def _admin() -> User | None:
    return User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()


def agents_since(began: datetime) -> int:
    """How many agents have registered since ``began``."""
    return Agent.objects.filter(registered_at__gte=began).count()


def start(*, job: Job) -> Run:
    """Start the job as the demo's admin, once there is one."""
    # A demo that was killed may have left a run behind.
    return start_run(job=job, now=timezone.now(), actor=_admin(), overlap="allow")


@dataclass(frozen=True, slots=True)
class Progression:
    """A run and its books at one moment."""

    run: Run
    books: RunBooks

    @property
    def over(self) -> bool:
        """Ended, with the last report stored."""
        return self.run.state in FINAL and (self.books.final or not self.books.reported)

    @property
    def ended(self) -> bool:
        """In a final state; the last report may still be on its way."""
        return self.run.state in FINAL

    def succeeded(self) -> bool:
        """Ended by itself, everything accounted for."""
        return (
            self.run.state == RunState.EXITED
            and self.books.final
            and self.books.balanced
            and self.books.left == 0
        )

    def report(self) -> dict[str, Any]:
        """The JSON object the demo prints last."""
        seconds = 0.0
        if self.run.ended_at and self.run.started_at:
            seconds = (self.run.ended_at - self.run.started_at).total_seconds()
        failures = FailedRequest.objects.filter(owner=self.run.owner).order_by("id")
        report: dict[str, Any] = {
            "run": self.run.pk,
            "state": self.run.state,
            "pages": self.books.pages,
            "total": self.books.total,
            "success": self.books.success,
            "failed": self.books.failed,
            "left": self.books.left,
            "agents": sum(1 for count in self.books.agents.values() if count),
            "seconds": round(seconds, 2),
            "balanced": self.books.balanced,
        }
        if self.run.reason:
            report["reason"] = self.run.reason
        if self.books.failed:
            report["failures"] = list(failures.values("url", "status", "reason"))
        return report


def look(run_id: int) -> Progression:
    """The run and its books now. Two queries."""
    run = Run.objects.select_related("job").get(pk=run_id)
    return Progression(run=run, books=books_of([run.owner])[run.owner])

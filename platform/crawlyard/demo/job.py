"""The demo's project and job, and the report on its run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from apps.access.models import User
from apps.access.services.links import first_link, invite
from apps.agents.models import Agent
from apps.datasets.engine import keys
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import ItemAccounting, run_accounting
from apps.jobs.models import Job, Run
from apps.jobs.services import start_run
from apps.jobs.states import FINAL, RunState
from apps.projects.models import Project
from apps.queuestats.models import FailedRequest
from apps.queuestats.queries import RunTotals, run_totals
from apps.runtime.services.objects import shared_objects

SPIDER = "yardspider.spiders:SiteSpider"


def make_job(*, url: str, name: str) -> Job:
    """Create the job that crawls the site at ``url``; its project may reach this machine."""
    project, _ = Project.objects.update_or_create(
        slug="demo",
        defaults={
            "name": "Demo",
            "description": "The sample job of manage.py demo.",
            # Agents refuse private addresses unless the project allows them; the demo's site is
            # local.
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
    """Return a link for the admin to set a password, None when the account has one.

    ``renew``: also when it has one, in the demo's own folder.
    """
    made = first_link()
    admin = _admin()
    if made is None and renew and admin is not None:
        made = invite(actor=None, username=admin.username, actor_label="manage.py demo")
    return None if made is None else made.address(server)


def _admin() -> User | None:
    return User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()


def agents_since(began: datetime) -> int:
    """Return how many agents have registered since ``began``."""
    return Agent.objects.filter(registered_at__gte=began).count()


def start(*, job: Job) -> Run:
    """Start the job as the demo's admin, if there is one."""
    # A killed demo may have left an active run.
    return start_run(job=job, now=timezone.now(), actor=_admin(), overlap="allow")


@dataclass(frozen=True, slots=True)
class Progression:
    """A run and its counters at one moment."""

    run: Run
    books: RunTotals
    items: ItemAccounting
    # Data of the run in its job's dataset; None before the first item.
    data: DatasetRun | None

    @property
    def stored(self) -> bool:
        """Whether all items of the ended run are in the table."""
        if self.data is None:
            return not self.items.in_flight
        return self.data.settled_at is not None

    @property
    def over(self) -> bool:
        """Whether the run has ended and its last report is stored."""
        return self.run.state in FINAL and (self.books.final or not self.books.reported)

    @property
    def ended(self) -> bool:
        """Whether the run is in a final state; its last report may not be stored yet."""
        return self.run.state in FINAL

    def succeeded(self) -> bool:
        """Whether the run ended by itself with every request accounted for."""
        return (
            self.run.state == RunState.EXITED
            and self.books.final
            and self.books.balanced
            and self.books.left == 0
            and self.items.stored == self.items.yielded
        )

    def report(self) -> dict[str, Any]:
        """Return the JSON object that the demo prints last."""
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
            "items": self.items.yielded,
            "items_stored": self.items.stored,
            "dataset": "" if self.data is None else _location(self.data.dataset),
        }
        if self.run.reason:
            report["reason"] = self.run.reason
        if self.books.failed:
            report["failures"] = list(failures.values("url", "status", "reason"))
        return report


def look(run_id: int) -> Progression:
    """Return the run with its counters and its data. Five queries."""
    run = Run.objects.select_related("job").get(pk=run_id)
    return Progression(
        run=run,
        books=run_totals([run.owner])[run.owner],
        items=run_accounting(run.pk),
        data=DatasetRun.objects.of_items()
        .select_related("dataset")
        .filter(run_number=run.pk)
        .first(),
    )


def _location(dataset: Dataset) -> str:
    """Return the folder of a dataset, or its address in the bucket."""
    key = keys.folder(dataset.project_id, dataset.pk).rstrip("/")
    path = shared_objects().local_path(key)
    return str(path) if path is not None else shared_objects().location(key)

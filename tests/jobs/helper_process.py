"""A process with an installation's settings that starts and reads runs for a test, by JSON lines.

Starting Django for each question would take longer than most of the tests.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.helper_protocol import answer_questions


def start(*, command: list[str], image: str = "", count: int = 1, **fields: Any) -> list[int]:
    """Runs of one new job; their ids."""
    from django.utils import timezone

    from apps.jobs.models import Job
    from apps.jobs.services import start_run
    from apps.projects.models import Image, Project

    project = Project.objects.get_or_create(slug="kills", defaults={"name": "Kills"})[0]
    chosen = None
    if image:
        chosen = Image.objects.get_or_create(
            project=project,
            name="crawlyard/kills",
            tag="1",
            defaults={"digest": image, "created_at": timezone.now()},
        )[0]
    number = Job.objects.count() + 1
    values = {"command": command, "image": chosen, "overlap": "allow", **fields}
    job = Job.objects.create(project=project, name=f"job {number}", **values)
    return [start_run(job=job, now=timezone.now(), actor=None).pk for _ in range(count)]


def look(*, run: int) -> dict[str, Any]:
    """The run and its moves."""
    from apps.jobs.models import Run

    row = Run.objects.get(pk=run)
    return {
        "state": row.state,
        "reason": row.reason,
        "host": row.host,
        "boot": row.boot,
        "exit_code": row.exit_code,
        "frozen": row.frozen,
        "waits": row.waiting_reason,
        "moves": [[move.from_state, move.to_state, move.reason] for move in row.moves.all()],
    }


def times(*, runs: list[int]) -> list[tuple[str, float, float]]:
    """Host, start and end of each run, as the runners wrote them down."""
    from apps.jobs.models import Run

    rows = Run.objects.filter(pk__in=runs).order_by("pk")
    return [
        (row.host, row.started_at.timestamp(), row.ended_at.timestamp())
        for row in rows
        if row.started_at and row.ended_at
    ]


def ask(*, run: int, action: str) -> int:
    """What a person asks of a run; the id of the command."""
    from django.utils import timezone

    from apps.jobs import services
    from apps.jobs.models import Run

    row = Run.objects.select_related("job__project").get(pk=run)
    getattr(services, f"{action}_run")(run=row, now=timezone.now(), actor=None)
    command = row.commands.last()
    return command.pk if command else 0


def answer(*, run: int, command: int, action: str, times: int = 1) -> None:
    """What a run says that it has done, perhaps more than once."""
    from apps.jobs.models import Run
    from apps.runtime.services import shared_broker
    from yardkit import topology
    from yardkit.broker import Outgoing
    from yardkit.protocol import LifecycleAnswer, RunAction, encode

    message = LifecycleAnswer(
        run=run, boot=Run.objects.get(pk=run).boot, action=RunAction(action), command=command
    )
    sent = [Outgoing(body=encode(message), key=topology.LIFECYCLE_ANSWERS.name)] * times
    shared_broker().publish(sent).result(30)


def garble(*, body: str) -> None:
    """Something that no run says, in the queue of what runs say."""
    from apps.runtime.services import shared_broker
    from yardkit import topology
    from yardkit.broker import Outgoing

    message = Outgoing(body=body.encode(), key=topology.LIFECYCLE_ANSWERS.name)
    shared_broker().publish([message]).result(30)


def newest() -> int:
    """The id of the newest run."""
    from apps.jobs.models import Run

    return Run.objects.latest("pk").pk


def hosts() -> dict[str, dict[str, Any]]:
    """The hosts as they have described themselves."""
    from apps.jobs.models import Host

    return {host.name: {"kind": host.kind, "problem": host.problem} for host in Host.objects.all()}


def installation() -> str:
    """The label of its containers."""
    from apps.jobs.daemon.specs import installation

    return installation()


QUESTIONS = {
    one.__name__: one
    for one in (start, look, times, ask, answer, garble, newest, hosts, installation)
}


if __name__ == "__main__":
    answer_questions(lambda name, arguments: QUESTIONS[name](**arguments))

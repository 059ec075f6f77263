"""Builds the parts of the health page from texts, counts and probe results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext as _

from apps.dashboard.failures.impact import ImpactCounts, ProcessGroup
from apps.dashboard.failures.part import Fact, PartState, SystemPart
from apps.dashboard.failures.texts import PROCESSES, SERVERS, PartText
from apps.dashboard.probes import ProbeResult

# Messages in the broker's queues by name; None while the broker is unreachable.
Waiting = Mapping[str, int] | None


def process_parts(counts: ImpactCounts, waiting: Waiting) -> list[SystemPart]:
    """Return one part per kind of process."""
    return [_process(text, counts, waiting) for text in PROCESSES]


def server_parts(counts: ImpactCounts, answers: Mapping[str, ProbeResult]) -> list[SystemPart]:
    """Return one part per server of this installation; ``answers`` are those of ``probe``."""
    texts = {text.kind or text.key: text for text in SERVERS}
    return [
        _server(texts[key.partition(":")[0]], key, counts, answers[key])
        for key in sorted(answers, key=lambda key: list(texts).index(key.partition(":")[0]))
    ]


def _process(text: PartText, counts: ImpactCounts, waiting: Waiting) -> SystemPart:
    if text.key == "agents":
        group = ProcessGroup(
            counts.agents_alive, counts.agents_silent, heard_at=counts.agents_heard_at
        )
    else:
        group = counts.processes(text.kind or text.key)
    length = _length(text, waiting)
    needed = not (text.needed_by or text.needed_by_queue) or any(
        [*(getattr(counts, name) for name in text.needed_by), text.needed_by_queue and length]
    )
    state, detail = _process_state(group, needed=needed)
    command = text.runbook
    commands = text.commands or (f"manage.py {command} --status", f"manage.py {command}")
    return _part(text, state, detail, counts, since=group.since, commands=commands, waiting=length)


def _server(text: PartText, key: str, counts: ImpactCounts, answer: ProbeResult) -> SystemPart:
    state, detail = _server_state(answer)
    commands = ("manage.py doctor",)
    part = _part(text, state, detail, counts, since=answer.since, commands=commands)
    name = key.partition(":")[2]
    if not name:
        return part
    return replace(part, key=key.replace(":", "-"), title=part.title % {"name": name})


def _part(
    text: PartText,
    state: PartState,
    detail: str,
    counts: ImpactCounts,
    *,
    since: datetime | None,
    commands: Sequence[str],
    waiting: int | None = None,
) -> SystemPart:
    return SystemPart(
        key=text.key,
        title=str(text.title),
        icon=text.icon,
        state=state,
        detail=detail,
        facts=[
            Fact(name, str(title), waiting if name == "waiting" else getattr(counts, name))
            for name, title in text.figures
        ],
        happens=str(text.happens),
        lost=str(text.lost),
        back=str(text.back),
        since=since,
        noticed=str(text.noticed),
        commands=list(commands),
        runbook=text.runbook,
    )


def _length(text: PartText, waiting: Waiting) -> int | None:
    """Return the messages in the part's queue; 0 where it is not declared yet."""
    if waiting is None or text.queue is None:
        return None
    return waiting.get(text.queue.name, 0)


def _process_state(group: ProcessGroup, *, needed: bool) -> tuple[PartState, str]:
    detail = _("%(alive)d alive, %(silent)d silent") % {
        "alive": group.alive,
        "silent": group.silent,
    }
    if group.alive == 0:
        return (PartState.AWAY if needed or group.silent else PartState.UNUSED), detail
    if group.silent or group.error:
        return PartState.TROUBLE, f"{detail}. {group.error}" if group.error else detail
    return PartState.WELL, detail


def _server_state(answer: ProbeResult) -> tuple[PartState, str]:
    if answer.ok is None:
        return PartState.HANGS, _("no answer for %(seconds)d s") % {"seconds": answer.seconds}
    if not answer.ok:
        return PartState.AWAY, answer.detail
    if answer.slow:
        return PartState.SLOW, f"{answer.detail}, {answer.seconds:.1f} s"
    return PartState.WELL, answer.detail

"""Escalations, reminders and snoozes over hours of a manual clock, against a reference model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.alerts.models import Incident, Notice
from apps.alerts.services.delivery import MOST_SINGLY, MOST_TOGETHER, send_notices
from apps.alerts.services.incidents import acknowledge, snooze
from apps.alerts.states import ChannelKind, NoticeState
from tests.access.factories import make_user
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.alerts.monitor_harness import Conditions, Rig, use_rules, with_source
from tests.alerts.servers import serving, wecom

pytestmark = pytest.mark.django_db
TICK = 5
# (kind, seconds after it opened)
Told = list[tuple[str, int]]


@dataclass
class Case:
    """``snoozes``: (when, until), in seconds after it opened; ``taken`` and ``over``: when."""

    steps: list[int]
    repeat: int
    snooze: tuple[int, int]
    taken: int
    over: int

    def expected(self) -> Told:
        """Return the notifications that the documentation promises, pass by pass."""
        told: Told = [("opened", 0)]
        last, step, until = 0, 0, None
        for now in range(TICK, self.over, TICK):
            if now > self.taken:
                break
            if self.snooze[0] < now <= self.snooze[0] + TICK:
                until = self.snooze[1]
            if until is not None and now < until:
                continue
            if step < len(self.steps) and now >= self.steps[step]:
                told.append(("escalated", now))
                step, last, until = step + 1, now, None
            elif until is not None or now - last >= self.repeat:
                told.append(("repeated", now))
                last, until = now, None
        return [*told, ("recovered", self.over)]


def a_case(dice: random.Random) -> Case:
    steps = sorted(dice.sample(range(10, 600, 5), 3))
    begin = dice.randrange(5, 400, 5)
    over = dice.randrange(300, 900, 5)
    # The shortest snooze is a minute.
    snoozed = (begin, begin + dice.randrange(60, 400, 5))
    return Case(steps, dice.choice((60, 95, 300)), snoozed, dice.randrange(5, 1000, 5), over)


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("seed", range(4))
def test_escalations_repetitions_and_snoozes_come_when_they_are_due(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = a_case(random.Random(seed))
    source: Conditions = with_source(monkeypatch, Conditions())
    make_channel(name="ops")
    steps = [{"after_seconds": each, "tell": ["ops"]} for each in case.steps]
    use_rules(
        {
            "name": "so",
            "event": source.name,
            "tell": ["ops"],
            "escalate": steps,
            "repeat_seconds": case.repeat,
        }
    )
    rig, person = Rig(), make_user()
    source.add("a", rig.now())
    rig.run(TICK)
    opened = rig.now()
    for now in range(0, case.over, TICK):
        found = Incident.objects.get()
        if now == case.snooze[0] and now < case.taken:
            until = opened + timedelta(seconds=case.snooze[1])
            snooze(incident=found, until=until, actor=person, now=rig.now())
        if now == case.taken:
            acknowledge(incident=found, actor=person, now=rig.now())
        # A worker sends all waiting notifications.
        Notice.objects.filter(state=NoticeState.WAITING).update(state=NoticeState.SENT)
        if now + TICK == case.over:
            source.so = []
        rig.run(TICK)
    rig.run(40)
    rows = Notice.objects.order_by("pk").values_list("kind", "created_at")
    told = [(kind, _seconds(opened, at)) for kind, at in rows]
    # A condition recovers when absent for 30 s.
    assert told[-1][0] == "recovered"
    assert case.over <= told[-1][1] + TICK <= case.over + 40
    assert told[:-1] == case.expected()[:-1], case


def _seconds(opened: datetime, at: datetime) -> int:
    return round((at - opened).total_seconds())


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    "number", [1, MOST_SINGLY, MOST_SINGLY + 1, MOST_TOGETHER, MOST_TOGETHER + 1, 65]
)
def test_in_a_storm_each_is_told_once_in_as_few_messages(number: int, settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    with serving(wecom) as robot:
        channel: Any = make_channel(
            kind=ChannelKind.WECOM, secrets={"url": f"{robot.url}/send?key=k3y"}, settings={}
        )
        for each in range(number):
            make_notice(channel=channel, incident=make_incident(facts={"job": f"j{each}."}))
        assert send_notices(channel=channel.pk, now=NOW) == number
        said = [each.json["text"]["content"] for each in robot.heard]
    single = number if number <= MOST_SINGLY else 0
    assert len(said) == single or len(said) == -(-number // MOST_TOGETHER)
    assert all("/admin/alerts/incident/" in each for each in said)
    assert Notice.objects.filter(state=NoticeState.SENT).count() == number
    assert Notice.objects.values("message").distinct().count() == len(said)

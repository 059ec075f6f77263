"""Fault tests: a frozen leading monitor next to a standby; a worker killed while sending."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.faults.monitor_processes import (
    AS_DAEMON,
    BOTH,
    NEXT_LOOK,
    RULES,
    TOLD,
    TROUBLE,
    compared,
    done,
    place_on,
    seconds_unwatched,
)
from tests.alerts.servers import json_reply, serving
from tests.plugins.measurements import Measured
from tests.runtime.processes import Place, wait_for

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

# Longer than a lease.
FROZEN_SECONDS = 12.0
LEADS = """
import json
from apps.runtime.models import Daemon
print(json.dumps([d.name for d in Daemon.objects.filter(kind="monitor") if d.detail.get("leads")]))
"""
CALLED = """
from django.utils import timezone
from apps.alerts.models import Channel, Notice
made = Channel.objects.create(
    name="hook", kind="webhook", settings={{}},
    secrets='{{"url": "{url}", "key": "0123456789abcdef"}}')
Notice.objects.create(
    channel=made, channel_name="hook", kind="opened", incident=None,
    created_at=timezone.now(), next_try_at=timezone.now())
from apps.alerts.services.notices import wake_delivery_workers
wake_delivery_workers(now=timezone.now())
from apps.runtime.deferral import stop_deferring
stop_deferring(20)
"""
# Expire the claim of the killed worker.
LATER = """
from django.utils import timezone
from apps.alerts.models import Notice
from apps.alerts.services.notices import wake_delivery_workers
from apps.runtime.deferral import stop_deferring
assert Notice.objects.get().state == "waiting"
Notice.objects.update(next_try_at=timezone.now())
wake_delivery_workers(now=timezone.now())
stop_deferring(20)
"""
STATE = """
import json
from apps.alerts.models import Notice
row = Notice.objects.get()
print(json.dumps([row.state, row.attempts]))
"""


def said(place: Place, code: str) -> Any:
    return json.loads(done(place.python(code)).splitlines()[-1])


@pytest.fixture(params=BOTH)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return place_on(request.param, tmp_path, request)


# Between two passes, and in a transaction that locks the lease row.
@pytest.mark.long("a killed leader, tests/alerts/faults/test_kills.py")
@pytest.mark.parametrize("failpoint", ["", f"alerts.opened=stop:{FROZEN_SECONDS:g}@1"])
@pytest.mark.covers("S4.27")
def test_a_frozen_leader_and_another_tell_everything_once(
    place: Place, failpoint: str, measured: Measured
) -> None:
    done(place.python(RULES))
    done(place.python(NEXT_LOOK.replace('filter(purpose="monitor")', "all()"), **AS_DAEMON))
    done(place.python("from apps.runtime.models import WorkerLease as W; W.objects.all().delete()"))
    first = place.start("run_monitor", "--name", "first", FAILPOINTS=failpoint, **AS_DAEMON)
    second, unwatched = None, None
    try:
        wait_for(lambda: said(place, LEADS) == ["first"], "the first leads")
        second = place.start("run_monitor", "--name", "second", **AS_DAEMON)
        time.sleep(2)
        done(place.python(TROUBLE.format(number=0)))
        if not failpoint:
            os.kill(first.pid, signal.SIGSTOP)
            stopped_at = time.time()
            done(place.python(TROUBLE.format(number=1)))
            time.sleep(FROZEN_SECONDS)
            wait_for(lambda: len(said(place, TOLD)) == 4, "the second evaluates")
            unwatched = seconds_unwatched(place, stopped_at)
            os.kill(first.pid, signal.SIGCONT)
        else:
            time.sleep(FROZEN_SECONDS + 5)
        done(place.python(TROUBLE.format(number=2)))
        latest = "job:2" if failpoint else "job:3"
        wait_for(lambda: latest in str(said(place, TOLD)), "somebody evaluates")
        time.sleep(8)
        wait_for(lambda: len(said(place, LEADS)) == 1, "one leads")
        if not failpoint:
            assert said(place, LEADS) == ["second"]
    finally:
        for process in (first, second):
            if process is not None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.communicate()
    rows = said(place, TOLD)
    queues = [0, 2] if failpoint else [0, 1, 2]
    measured(**compared(rows, len(queues), queues), back_s=unwatched)
    failed = [row for row in rows if row[0] == "run failed"]
    assert [row[2:5] for row in failed] == [["open", 1, ["opened"]]] * len(failed)
    assert len(failed) == len(queues)
    held = [row for row in rows if row[0] == "dead letters held"]
    assert len({row[1] for row in held}) == len(held) == len(failed)
    assert all(row[4].count("opened") == 1 for row in held), held


def test_what_a_killed_worker_had_in_hand_goes_out(place: Place) -> None:
    near = {"ALERTS_ALLOWED_NETWORKS": "127.0.0.0/8"}
    worker = ("run_worker", "--queues", "celery.tasks")
    with serving(lambda _asked: json_reply()) as hook:
        killed = place.start(*worker, FAILPOINTS="alerts.notice_sent=kill@1", **near)
        try:
            done(place.python(CALLED.format(url=f"{hook.url}/hook")))
            wait_for(lambda: len(hook.heard) == 1, "it is sent")
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.communicate()
        assert said(place, STATE) == ["waiting", 1]
        again = place.start(*worker, **near)
        try:
            done(place.python(LATER))
            wait_for(lambda: said(place, STATE)[0] == "sent", "another worker sends it")
        finally:
            again.terminate()
            again.communicate(timeout=60)
        assert said(place, STATE) == ["sent", 2]
    ids = [each.headers["webhook-id"] for each in hook.heard]
    assert len(ids) == 2
    assert len(set(ids)) == 1, "receivers can tell the repetition"

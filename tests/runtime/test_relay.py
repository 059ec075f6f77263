"""The relay in processes of their own, killed where it hurts."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.plugins.measurements import Measured
from tests.runtime.processes import Place, wait_for
from yardkit import topology
from yardkit.broker import Broker, Delivery, connect

KEY = topology.RUNNERS.name

ENQUEUE_AND_RELAY = """
from apps.runtime.services import enqueue, relay_outbox, shared_broker, close_shared_broker
broker = shared_broker()
import apps.runtime.services.relay as relay
relay.wake_relay = lambda: None
import apps.runtime.services.outbox as outbox
outbox.wake_relay = lambda: None
ids = [enqueue(key="runners", body=str(number).encode()) for number in range(3)]
print(*ids, flush=True)
relay_outbox(broker)
close_shared_broker()
"""

RELAY_LATER = """
from datetime import timedelta
from apps.runtime.services import database_now, relay_outbox, shared_broker, close_shared_broker
from apps.runtime.models import OutboxMessage
print(relay_outbox(shared_broker(), now=database_now() + timedelta(minutes=1)))
print(OutboxMessage.objects.count())
close_shared_broker()
"""


def drain(place: Place) -> list[Delivery]:
    broker: Broker = connect(place.broker_url, name="test")
    subscription = broker.subscribe(KEY)
    found: list[Delivery] = []
    while batch := subscription.take(100, timeout=0.5):
        subscription.ack(batch)
        found += batch
    broker.close()
    return found


@pytest.mark.fault
@pytest.mark.parametrize(
    ("failpoint", "copies"),
    [("outbox.after_claim", 1), ("outbox.before_publish", 1), ("outbox.after_publish", 2)],
)
def test_killed_in_a_crash_window_nothing_is_lost_and_repeats_keep_their_id(
    place: Place, failpoint: str, copies: int, measured: Measured
) -> None:
    killed = place.python(ENQUEUE_AND_RELAY, FAILPOINTS=f"{failpoint}=kill@1")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ids = killed.stdout.split()

    after = place.python(RELAY_LATER)

    assert after.stdout.split() == ["3", "0"], after.stderr
    found = [delivery.message_id for delivery in drain(place)]
    measured(of=len(ids), lost=len({*ids} - {*found}), twice=len(found) - len({*found}))
    assert sorted(found) == sorted(ids * copies)


@pytest.mark.fault
def test_a_commit_wakes_the_relay_of_the_process(place: Place) -> None:
    done = place.python(
        """
from django.db import transaction
from apps.runtime.services import enqueue
with transaction.atomic():
    for number in range(20):
        enqueue(key="runners", body=str(number).encode())
"""
    )
    # The command is over at once; nobody had to wait for the relay or to close anything.
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [delivery.body for delivery in drain(place)] == [b"%d" % n for n in range(20)]


@pytest.mark.fault
def test_a_living_daemon_publishes_what_a_dead_process_left(place: Place) -> None:
    # Killed before its relay has even claimed: on commit nothing happens any more.
    left = place.python(
        """
import os, signal
import apps.runtime.services.outbox as outbox
outbox.wake_relay = lambda: os.kill(os.getpid(), signal.SIGKILL)
outbox.enqueue(key="sample", body=b"left behind", message_id="m1")
"""
    )
    assert left.returncode == -signal.SIGKILL, left.stderr
    daemon = place.start("run_sample")
    count = "from apps.runtime.models import *; print(ProcessedMessage.objects.count())"
    try:
        wait_for(lambda: place.python(count).stdout.split() == ["1"], "it is read")
    finally:
        daemon.send_signal(signal.SIGTERM)
        output, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, output


@pytest.mark.fault
def test_two_relays_at_once_share_the_work(place: Place) -> None:
    fill = """
from apps.runtime.models import OutboxMessage
OutboxMessage.objects.bulk_create(
    OutboxMessage(message_id=f"m{n}", key="runners", body=b"x") for n in range(2000)
)
"""
    assert place.python(fill).returncode == 0
    relay = """
from apps.runtime.services import relay_outbox, shared_broker, close_shared_broker
broker = shared_broker()
total = 0
while done := relay_outbox(broker, limit=50):
    total += done
print(total)
close_shared_broker()
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", f"import django; django.setup()\n{relay}"],
            env=place.environment(),
            cwd=place.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    totals = [int(process.communicate(timeout=90)[0]) for process in both]
    assert sum(totals) == 2000
    delivered = drain(place)
    assert len(delivered) == 2000
    assert len({delivery.message_id for delivery in delivered}) == 2000


STORE = """
from yardkit.broker import Outgoing, QueueSpec
from apps.runtime.models import DeadLetter
from apps.runtime.services import *
broker = shared_broker()
dead = subscribe_dead_letters(broker)
"""


@pytest.mark.fault
def test_killed_between_commit_and_ack_a_dead_letter_is_stored_once(place: Place) -> None:
    killed = place.python(
        STORE
        + """
broker.declare(QueueSpec("work"))
broker.publish([Outgoing(body=b"poison", key="work", message_id="m1")]).result(10)
work = broker.subscribe("work")
(delivery,) = work.take(1, timeout=30)
work.dead_letter(delivery, "no use")
while not store_dead_letters(dead, timeout=1):
    pass
""",
        FAILPOINTS="dead_letters.after_commit=kill",
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    after = place.python(
        STORE
        + """
print(DeadLetter.objects.count())
while not store_dead_letters(dead, timeout=1):
    pass
print(DeadLetter.objects.count(), broker.depth("dead").ready)
"""
    )
    assert after.stdout.split() == ["1", "1", "0"], after.stderr

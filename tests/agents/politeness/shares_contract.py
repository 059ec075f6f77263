"""What every store of shares must do, under a clock that cannot be turned: its own."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from django.db import connections

from apps.agents.center.politeness.shares import HostShares, ShareRequest


def new_host() -> str:
    return f"h{secrets.token_hex(6)}.test"


def at_once(work: Callable[[str], None], centers: int) -> None:
    """Each center in a thread of its own, with its own connections."""
    failed: list[BaseException] = []

    def alone(center: str) -> None:
        try:
            work(center)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's thread
            failed.append(error)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=alone, args=(f"c{n}",)) for n in range(centers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise failed[0]


def asks_are_answered_by_host(shares: HostShares) -> None:
    first, second = new_host(), new_host()
    answers = shares.exchange(
        "c1",
        [
            ShareRequest(host=first, rate=10, requests=5, concurrency=4, wanted=3),
            ShareRequest(host=second, rate=0, concurrency=0, wanted=7),
        ],
    )
    assert set(answers) == {first, second}
    one = answers[first]
    assert (one.requests, one.concurrency, one.centers) == (5, 3, 1)
    assert one.start_seconds == 0.0
    assert one.spacing_seconds == 0.1
    assert (answers[second].requests, answers[second].concurrency) == (0, 7)
    assert shares.exchange("c1", []) == {}


def moments_never_pass_the_rate(shares: HostShares, centers: int = 3) -> None:
    """Many centers at once; all moments in one row are ``1 / rate`` apart."""
    host, rate = new_host(), 500.0
    granted = []
    lock = threading.Lock()
    began = time.monotonic()

    def work(center: str) -> None:
        for _ in range(6):
            answer = shares.exchange(center, [ShareRequest(host=host, rate=rate, requests=40)])[
                host
            ]
            with lock:
                granted.append(answer)

    at_once(work, centers)
    total = sum(answer.requests for answer in granted)
    assert total == centers * 6 * 40
    last = max(answer.start_seconds + answer.requests / rate for answer in granted)
    # The last moment is as far off as all of them take, less what has passed since.
    assert last >= total / rate - (time.monotonic() - began) - 0.05


def slots_never_pass_the_limit(shares: HostShares) -> None:
    host = new_host()
    held = {"c1": 0, "c2": 0, "c3": 0}
    for turn in range(30):
        center = f"c{turn % 3 + 1}"
        ask = ShareRequest(
            host=host, concurrency=8, wanted=8, in_flight=min(held[center], turn % 5)
        )
        held[center] = shares.exchange(center, [ask])[host].concurrency
        assert sum(held.values()) <= 8
    # In the end nobody goes without: each has its part.
    assert min(held.values()) >= 2


def slots_never_pass_the_limit_at_once(shares: HostShares) -> None:
    host = new_host()
    held: dict[str, int] = {}
    lock = threading.Lock()

    def work(center: str) -> None:
        for _ in range(8):
            got = shares.exchange(center, [ShareRequest(host=host, concurrency=5, wanted=5)])[host]
            with lock:
                held[center] = got.concurrency

    at_once(work, 4)
    final = [
        shares.exchange(center, [ShareRequest(host=host, concurrency=5, wanted=5)])[
            host
        ].concurrency
        for center in held
    ]
    assert sum(final) <= 5


def one_slot_goes_round(shares: HostShares) -> None:
    host = new_host()
    got = {"c1": 0, "c2": 0}
    flying = {"c1": 0, "c2": 0}
    for _ in range(12):
        for center in got:
            ask = ShareRequest(host=host, concurrency=1, wanted=1, in_flight=flying[center])
            answer = shares.exchange(center, [ask])[host]
            # It sends where it may, and what it has sent is over by its next turn.
            flying[center] = 0 if flying[center] else answer.concurrency
            got[center] += answer.concurrency
            assert sum(flying.values()) <= 1
    assert min(got.values()) >= 2


def slots_come_back(shares: HostShares) -> None:
    host = new_host()
    ask = ShareRequest(host=host, concurrency=4, wanted=4)
    assert shares.exchange("c1", [ask])[host].concurrency == 4
    assert shares.exchange("c2", [ask])[host].concurrency == 0
    shares.leave("c1", [host, new_host()])
    assert shares.exchange("c2", [ask])[host].concurrency == 4


def pauses_are_everybodys(shares: HostShares) -> None:
    host = new_host()
    shares.exchange("c1", [ShareRequest(host=host, pause_seconds=60, strikes=3)])
    answer = shares.exchange("c2", [ShareRequest(host=host, wanted=1)])[host]
    assert 50 < answer.pause_seconds <= 60
    assert answer.strikes == 3
    shares.exchange("c2", [ShareRequest(host=host, pause_seconds=1e9, strikes=1)])
    assert shares.exchange("c1", [ShareRequest(host=host)])[host].pause_seconds <= 3600
    assert shares.exchange("c1", [ShareRequest(host=host, calm=True)])[host].strikes == 0
    assert shares.exchange("c2", [ShareRequest(host=host)])[host].strikes == 0


IN_TURN = (
    asks_are_answered_by_host,
    slots_never_pass_the_limit,
    one_slot_goes_round,
    slots_come_back,
    pauses_are_everybodys,
)
AT_ONCE = (moments_never_pass_the_rate, slots_never_pass_the_limit_at_once)
CONTRACT = (*IN_TURN, *AT_ONCE)

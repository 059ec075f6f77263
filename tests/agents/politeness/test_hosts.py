"""Rates, requests at once, fairness, pauses: the engine under a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest

from apps.agents.center.politeness.engine import HELD_SECONDS, NOTIFY_AGAIN_SECONDS
from apps.agents.center.politeness.host import HeldRequest, PoliteHost
from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules, is_own_machine
from tests.agents.politeness.engine_harness import HOST, EngineHarness, count, reasons, view
from yardkit.protocol import HostResult, RequestItem

UNLIMITED = Defaults(requests_per_second=0, concurrency=0)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("rate", [0.5, 3.0, 10.0, 250.0])
def test_a_host_is_asked_so_often_a_second_and_no_more(rate: float) -> None:
    harness = EngineHarness(Defaults(requests_per_second=rate, concurrency=0))
    harness.offer(4000)
    harness.run(10.0)
    times = [at for at, _one in harness.gone]
    assert rate * 10 * 0.9 - 1 <= len(times) <= rate * 10 + 1
    for start in range(len(times)):
        within = [at for at in times[start:] if at < times[start] + 1.0 - 1e-6]
        assert len(within) <= max(1, rate) * 1.02 + 1


def test_without_limits_everything_goes_at_once() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(500)
    assert len(harness.step().go) == 500


def test_a_second_of_silence_is_not_made_up_for() -> None:
    harness = EngineHarness(Defaults(requests_per_second=10, concurrency=0))
    harness.offer(5)
    harness.run(60.0, tick=0.1)
    assert len(harness.gone) == 5
    harness.offer(50)
    harness.run(1.0)
    assert len(harness.gone) <= 5 + 11


def test_the_store_is_asked_in_blocks_and_not_for_each_request() -> None:
    harness = EngineHarness(Defaults(requests_per_second=100, concurrency=0))
    harness.offer(1000)
    harness.run(5.0)
    assert len(harness.gone) >= 450
    assert harness.asks <= 15


def test_so_many_are_under_way_at_once_until_reports_come() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0, concurrency=3))
    harness.offer(10)
    harness.run(2.0)
    assert len(harness.gone) == 3
    harness.finish(2)
    harness.run(0.1)
    assert len(harness.gone) == 5
    # A late report of something that counts as finished already does no harm.
    harness.finish(50)
    harness.run(0.1)
    assert len(harness.gone) == 8


def test_what_is_never_reported_is_over_after_its_time_limit() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0, concurrency=2))
    harness.offer(4)
    harness.run(44.0, tick=0.5)
    assert len(harness.gone) == 2
    harness.run(2.0, tick=0.5)
    assert len(harness.gone) == 4


def test_runs_take_turns_and_keep_their_own_order() -> None:
    harness = EngineHarness(Defaults(requests_per_second=10, concurrency=0))
    harness.offer(200, run=1)
    harness.step()
    harness.offer(20, run=2)
    harness.offer(20, run=3)
    harness.run(3.0)
    counted = harness.by_run()
    assert min(counted[2], counted[3]) >= 9
    for run in (1, 2, 3):
        numbers = [one.item.id for _at, one in harness.gone if one.run == run]
        assert numbers == sorted(numbers)


def test_a_slow_host_does_not_hold_up_another() -> None:
    harness = EngineHarness(
        Defaults(requests_per_second=0, concurrency=0),
        HostRuleLimits("slow.test", requests_per_second=0.1),
    )
    harness.offer(100, host="slow.test")
    harness.offer(100, host="quick.test")
    harness.step()
    assert sum(one.item.host == "quick.test" for _at, one in harness.gone) == 100


def test_a_run_hears_of_what_is_held_and_again_in_time() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.01, concurrency=0))
    harness.offer(3)
    assert not harness.step().held
    harness.clock.advance(0.1)
    held = harness.step().held
    ((run, reply_to, reason), some) = next(iter(held.items()))
    assert (run, reply_to, len(some)) == (1, "run.1", 2)
    assert reason == f"{HOST} is asked at most 0.01 times a second"
    assert NOTIFY_AGAIN_SECONDS < HELD_SECONDS / 1.5
    heard = []
    for _ in range(70):
        harness.clock.advance(1.0)
        heard.append(count(harness.step().held))
    quiet = max(len(gap) for gap in "".join("x" if n else " " for n in heard).split("x"))
    assert quiet < HELD_SECONDS / 1.5
    assert set(heard) == {0, 2}


def test_what_goes_at_once_is_never_called_held() -> None:
    harness = EngineHarness()
    harness.offer(1)
    harness.run(40.0, tick=1.0)
    assert not harness.all.held
    assert not harness.gone[0][1].notified


def test_beyond_the_bound_requests_are_skipped_with_the_reason() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.001, held_limit=50))
    harness.offer(80, run=1)
    harness.offer(10, run=2)
    skipped = harness.step().skipped
    assert reasons(skipped) == ["the center holds 50 requests of the run already"]
    assert count(skipped) == 30
    assert {run for run, _reply_to, _reason in skipped} == {1}


def test_a_busy_host_is_left_alone_for_what_it_asks_and_by_all_runs() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1)
    harness.step()
    harness.finish(1, busy=1, after=7.0)
    harness.offer(1, run=1)
    harness.offer(1, run=2)
    harness.run(6.9, tick=0.1)
    assert len(harness.gone) == 1
    assert "too busy" in reasons(harness.all.held)[0]
    harness.run(0.3, tick=0.1)
    assert len(harness.gone) == 3


def pause(harness: EngineHarness) -> float:
    """How long the host is left alone from now on."""
    (host,) = harness.engine.views(harness.now)
    return host.blocked_seconds


def busy_again(harness: EngineHarness) -> float:
    harness.offer(1)
    harness.run(0.02)
    harness.finish(1, busy=1)
    harness.step()
    seconds = pause(harness)
    harness.clock.advance(seconds)
    return seconds


def test_pauses_double_up_to_five_minutes_and_end_with_good_answers() -> None:
    harness = EngineHarness(UNLIMITED)
    assert [busy_again(harness) for _ in range(10)] == pytest.approx(
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 300], abs=0.02
    )
    for _ in range(5):
        harness.offer(1)
        harness.step()
        harness.finish(1)
    assert busy_again(harness) == pytest.approx(1, abs=0.02)


def test_several_that_were_under_way_are_one_offence_and_retry_after_is_bounded() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(5)
    harness.step()
    for _ in range(5):
        harness.finish(1, busy=1)
    harness.step()
    assert pause(harness) == pytest.approx(1, abs=0.02)
    harness.clock.advance(1)
    harness.offer(1)
    harness.step()
    harness.finish(1, busy=1, after=1e9)
    harness.step()
    assert pause(harness) == pytest.approx(3600)


def test_a_stopped_host_gets_nothing_until_it_is_resumed() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.engine.set_rules(HostRules.of(UNLIMITED, [HostRuleLimits(f"*.{HOST}", stopped=True)]))
    harness.offer(3, host=f"www.{HOST}")
    harness.offer(3, host=HOST)
    harness.run(2.0, tick=0.1)
    assert [one.item.host for _at, one in harness.gone] == [HOST] * 3
    assert reasons(harness.all.held) == [f"www.{HOST} is stopped: everything for it is held"]
    harness.engine.set_rules(HostRules(UNLIMITED))
    harness.step()
    assert len(harness.gone) == 6


def test_a_changed_rule_holds_for_what_waits_already() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.1, concurrency=0))
    harness.offer(30)
    harness.run(0.5)
    assert len(harness.gone) == 1
    harness.engine.set_rules(
        HostRules.of(harness.defaults, [HostRuleLimits(HOST, requests_per_second=0)])
    )
    harness.run(0.1)
    assert len(harness.gone) == 30


def test_an_ended_run_leaves_and_others_stay() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.001, concurrency=0))
    harness.offer(5, run=1)
    harness.engine.offer(view(1, reply_to="new"), [], harness.now)
    harness.offer(5, run=2, obey=True)
    harness.run(0.2)
    harness.engine.drop(1, "the run has ended")
    harness.engine.drop(2, "the run has ended")
    skipped = harness.step().skipped
    assert reasons(skipped) == ["the run has ended"] * 2
    assert count(skipped) == 9
    assert not [one for one in harness.engine.views(harness.now) if one.held]


def test_a_run_that_was_started_anew_keeps_what_it_asked_for_itself() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.001, concurrency=0))
    harness.offer(1, run=9)
    harness.step()
    some: list[RequestItem] = []
    for name in ("old", "new"):
        batch = [RequestItem(n, 1, HOST, "", some_raw()) for n in range(4)]
        some += batch
        harness.engine.offer(view(1, reply_to=name), batch, harness.now)
    harness.engine.drop(1, "the run has ended", keep_reply_to="new")
    assert [key[1] for key in harness.step().skipped] == ["old"]
    harness.engine.drop_queues({"new"}, "the run has ended")
    assert [key[1] for key in harness.step().skipped] == ["new"]


def some_raw() -> object:
    from tests.agents.politeness.engine_harness import items

    return items(1)[0].request


def test_an_engine_forgets_hosts_nobody_asks_for() -> None:
    harness = EngineHarness(Defaults(requests_per_second=1000, concurrency=8))
    for number in range(50):
        harness.offer(1, host=f"h{number}.test")
        harness.run(0.02)
    harness.run(700.0, tick=5.0)
    assert not harness.engine._hosts
    assert not harness.engine._of_runs
    assert not harness.engine._views


@pytest.mark.parametrize(
    ("host", "networks", "own"),
    [
        ("127.0.0.1", ["127.0.0.0/8"], True),
        ("127.9.9.9", ["127.0.0.0/8"], True),
        ("::1", ["::1/128"], True),
        ("localhost", ["127.0.0.0/8"], True),
        ("127.0.0.1", [], False),
        ("127.0.0.1", ["10.0.0.0/8"], False),
        ("127.0.0.1", ["rubbish"], False),
        ("10.1.1.1", ["10.0.0.0/8"], False),
        ("example.com", ["0.0.0.0/0"], False),
        ("127.0.0.1.example.com", ["127.0.0.0/8"], False),
    ],
)
def test_only_this_machine_itself_where_it_is_opened_is_nobodys_business(
    host: str, networks: list[str], own: bool
) -> None:
    assert is_own_machine(host, networks) == own
    assert HostRules().passes(host, networks) == own
    ruled = HostRules.of(Defaults(), [HostRuleLimits(host, requests_per_second=1)])
    assert not ruled.passes(host, networks)


def test_the_nearest_rule_holds() -> None:
    rules = HostRules.of(
        Defaults(requests_per_second=10, concurrency=8),
        [
            HostRuleLimits("*.example.com", requests_per_second=1),
            HostRuleLimits("*.slow.example.com", requests_per_second=0.1, obey_robots=False),
            HostRuleLimits("www.example.com", concurrency=2, obey_robots=True),
        ],
    )
    assert rules.limits("a.example.com").requests_per_second == 1
    assert rules.limits("b.slow.example.com").requests_per_second == 0.1
    assert rules.limits("b.slow.example.com").obey_robots is False
    own = rules.limits("www.example.com")
    assert (own.requests_per_second, own.concurrency, own.obey_robots) == (10, 2, True)
    assert not rules.limits("example.com").explicit
    assert not rules.limits("notexample.com").explicit


def test_hosts_without_limits_ask_seldom_and_hear_of_others_pauses() -> None:
    harness = EngineHarness(UNLIMITED)
    other = EngineHarness(UNLIMITED, clock=harness.clock, shares=harness.shares, center="c2")
    harness.offer(1)
    harness.run(40.0, tick=0.1)
    assert len(harness.gone) == 1
    assert 9 <= harness.asks <= 12
    other.offer(1)
    other.step()
    other.finish(1, busy=1, after=100.0)
    other.step()
    harness.run(5.1, tick=0.1)
    assert pause(harness) == pytest.approx(95, abs=0.2)


def test_only_hosts_for_which_something_is_due_are_looked_at_and_renewals_are_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = EngineHarness(Defaults(requests_per_second=0, concurrency=1))
    for number in range(400):
        harness.offer(2, host=f"h{number}.test")
    harness.run(3.0, tick=0.05)
    looks, take = [], PoliteHost.take

    def counted(host: PoliteHost, now: float) -> HeldRequest | None:
        looks.append(now)
        return take(host, now)

    monkeypatch.setattr(PoliteHost, "take", counted)
    asks = harness.asks
    harness.run(2.0, tick=0.05)
    assert 700 <= harness.asks - asks <= 900
    # Each when its renewal is due and when that is answered.
    assert len(looks) <= 2 * 900
    assert max(Counter(looks).values()) < 200


def test_a_step_where_nothing_is_due_looks_at_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(UNLIMITED)
    for number in range(50):
        harness.offer(1, host=f"h{number}.test")
    harness.run(0.2)
    looks: list[str] = []
    monkeypatch.setattr(PoliteHost, "take", lambda host, _now: looks.append(host.name))
    harness.run(2.5, tick=0.1)
    assert not looks


def test_only_the_longest_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.agents.center.politeness.engine.MAX_SHOWN", 3)
    harness = EngineHarness(Defaults(requests_per_second=0.001, concurrency=0))
    for number in range(20):
        harness.offer(number + 2, host=f"h{number}.test")
    harness.step()
    made: list[str] = []
    why = PoliteHost.why
    monkeypatch.setattr(
        PoliteHost, "why", lambda host, now: made.append(host.name) or why(host, now)
    )
    views = harness.engine.views(harness.now)
    assert [(view.host, view.held) for view in views] == [
        ("h19.test", 20),
        ("h18.test", 19),
        ("h17.test", 18),
    ]
    assert made == [view.host for view in views]


def test_an_idle_host_is_forgotten_in_a_minute_unless_it_was_too_busy() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1, host="calm.test")
    harness.offer(1)
    harness.step()
    harness.engine.finished(1, [HostResult("calm.test", 1)], harness.now)
    harness.finish(1, busy=1)
    harness.run(80.0, tick=1.0)
    assert list(harness.engine._hosts) == [HOST]
    harness.offer(1)
    harness.step()
    harness.finish(1, busy=1)
    harness.step()
    assert pause(harness) == pytest.approx(2, abs=0.02)

"""Rates, requests at once, fairness, pauses: the engine under a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest

from apps.agents.center.politeness.engine import HELD_SECONDS, NOTIFY_AGAIN_SECONDS
from apps.agents.center.politeness.host import HeldRequest, PoliteHost
from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules, is_own_machine
from tests.agents.politeness.world import HOST, World, count, reasons, view
from yardkit.protocol import HostResult, RequestItem

UNLIMITED = Defaults(requests_per_second=0, concurrency=0)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("rate", [0.5, 3.0, 10.0, 250.0])
def test_a_host_is_asked_so_often_a_second_and_no_more(rate: float) -> None:
    world = World(Defaults(requests_per_second=rate, concurrency=0))
    world.offer(4000)
    world.run(10.0)
    times = [at for at, _one in world.gone]
    assert rate * 10 * 0.9 - 1 <= len(times) <= rate * 10 + 1
    for start in range(len(times)):
        within = [at for at in times[start:] if at < times[start] + 1.0 - 1e-6]
        assert len(within) <= max(1, rate) * 1.02 + 1


def test_without_limits_everything_goes_at_once() -> None:
    world = World(UNLIMITED)
    world.offer(500)
    assert len(world.step().go) == 500


def test_a_second_of_silence_is_not_made_up_for() -> None:
    world = World(Defaults(requests_per_second=10, concurrency=0))
    world.offer(5)
    world.run(60.0, tick=0.1)
    assert len(world.gone) == 5
    world.offer(50)
    world.run(1.0)
    assert len(world.gone) <= 5 + 11


def test_the_store_is_asked_in_blocks_and_not_for_each_request() -> None:
    world = World(Defaults(requests_per_second=100, concurrency=0))
    world.offer(1000)
    world.run(5.0)
    assert len(world.gone) >= 450
    assert world.asks <= 15


def test_so_many_are_under_way_at_once_until_reports_come() -> None:
    world = World(Defaults(requests_per_second=0, concurrency=3))
    world.offer(10)
    world.run(2.0)
    assert len(world.gone) == 3
    world.finish(2)
    world.run(0.1)
    assert len(world.gone) == 5
    # A late report of something that counts as finished already does no harm.
    world.finish(50)
    world.run(0.1)
    assert len(world.gone) == 8


def test_what_is_never_reported_is_over_after_its_time_limit() -> None:
    world = World(Defaults(requests_per_second=0, concurrency=2))
    world.offer(4)
    world.run(44.0, tick=0.5)
    assert len(world.gone) == 2
    world.run(2.0, tick=0.5)
    assert len(world.gone) == 4


def test_runs_take_turns_and_keep_their_own_order() -> None:
    world = World(Defaults(requests_per_second=10, concurrency=0))
    world.offer(200, run=1)
    world.step()
    world.offer(20, run=2)
    world.offer(20, run=3)
    world.run(3.0)
    counted = world.by_run()
    assert min(counted[2], counted[3]) >= 9
    for run in (1, 2, 3):
        numbers = [one.item.id for _at, one in world.gone if one.run == run]
        assert numbers == sorted(numbers)


def test_a_slow_host_does_not_hold_up_another() -> None:
    world = World(
        Defaults(requests_per_second=0, concurrency=0),
        HostRuleLimits("slow.test", requests_per_second=0.1),
    )
    world.offer(100, host="slow.test")
    world.offer(100, host="quick.test")
    world.step()
    assert sum(one.item.host == "quick.test" for _at, one in world.gone) == 100


def test_a_run_hears_of_what_is_held_and_again_in_time() -> None:
    world = World(Defaults(requests_per_second=0.01, concurrency=0))
    world.offer(3)
    assert not world.step().held
    world.clock.advance(0.1)
    held = world.step().held
    ((run, reply_to, reason), some) = next(iter(held.items()))
    assert (run, reply_to, len(some)) == (1, "run.1", 2)
    assert reason == f"{HOST} is asked at most 0.01 times a second"
    assert NOTIFY_AGAIN_SECONDS < HELD_SECONDS / 1.5
    heard = []
    for _ in range(70):
        world.clock.advance(1.0)
        heard.append(count(world.step().held))
    quiet = max(len(gap) for gap in "".join("x" if n else " " for n in heard).split("x"))
    assert quiet < HELD_SECONDS / 1.5
    assert set(heard) == {0, 2}


def test_what_goes_at_once_is_never_called_held() -> None:
    world = World()
    world.offer(1)
    world.run(40.0, tick=1.0)
    assert not world.all.held
    assert not world.gone[0][1].notified


def test_beyond_the_bound_requests_are_skipped_with_the_reason() -> None:
    world = World(Defaults(requests_per_second=0.001, held_limit=50))
    world.offer(80, run=1)
    world.offer(10, run=2)
    skipped = world.step().skipped
    assert reasons(skipped) == ["the center holds 50 requests of the run already"]
    assert count(skipped) == 30
    assert {run for run, _reply_to, _reason in skipped} == {1}


def test_a_busy_host_is_left_alone_for_what_it_asks_and_by_all_runs() -> None:
    world = World(UNLIMITED)
    world.offer(1)
    world.step()
    world.finish(1, busy=1, after=7.0)
    world.offer(1, run=1)
    world.offer(1, run=2)
    world.run(6.9, tick=0.1)
    assert len(world.gone) == 1
    assert "too busy" in reasons(world.all.held)[0]
    world.run(0.3, tick=0.1)
    assert len(world.gone) == 3


def pause(world: World) -> float:
    """How long the host is left alone from now on."""
    (host,) = world.engine.views(world.now)
    return host.blocked_seconds


def busy_again(world: World) -> float:
    world.offer(1)
    world.run(0.02)
    world.finish(1, busy=1)
    world.step()
    seconds = pause(world)
    world.clock.advance(seconds)
    return seconds


def test_pauses_double_up_to_five_minutes_and_end_with_good_answers() -> None:
    world = World(UNLIMITED)
    assert [busy_again(world) for _ in range(10)] == pytest.approx(
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 300], abs=0.02
    )
    for _ in range(5):
        world.offer(1)
        world.step()
        world.finish(1)
    assert busy_again(world) == pytest.approx(1, abs=0.02)


def test_several_that_were_under_way_are_one_offence_and_retry_after_is_bounded() -> None:
    world = World(UNLIMITED)
    world.offer(5)
    world.step()
    for _ in range(5):
        world.finish(1, busy=1)
    world.step()
    assert pause(world) == pytest.approx(1, abs=0.02)
    world.clock.advance(1)
    world.offer(1)
    world.step()
    world.finish(1, busy=1, after=1e9)
    world.step()
    assert pause(world) == pytest.approx(3600)


def test_a_stopped_host_gets_nothing_until_it_is_resumed() -> None:
    world = World(UNLIMITED)
    world.engine.set_rules(HostRules.of(UNLIMITED, [HostRuleLimits(f"*.{HOST}", stopped=True)]))
    world.offer(3, host=f"www.{HOST}")
    world.offer(3, host=HOST)
    world.run(2.0, tick=0.1)
    assert [one.item.host for _at, one in world.gone] == [HOST] * 3
    assert reasons(world.all.held) == [f"www.{HOST} is stopped: everything for it is held"]
    world.engine.set_rules(HostRules(UNLIMITED))
    world.step()
    assert len(world.gone) == 6


def test_a_changed_rule_holds_for_what_waits_already() -> None:
    world = World(Defaults(requests_per_second=0.1, concurrency=0))
    world.offer(30)
    world.run(0.5)
    assert len(world.gone) == 1
    world.engine.set_rules(
        HostRules.of(world.defaults, [HostRuleLimits(HOST, requests_per_second=0)])
    )
    world.run(0.1)
    assert len(world.gone) == 30


def test_an_ended_run_leaves_and_others_stay() -> None:
    world = World(Defaults(requests_per_second=0.001, concurrency=0))
    world.offer(5, run=1)
    world.engine.offer(view(1, reply_to="new"), [], world.now)
    world.offer(5, run=2, obey=True)
    world.run(0.2)
    world.engine.drop(1, "the run has ended")
    world.engine.drop(2, "the run has ended")
    skipped = world.step().skipped
    assert reasons(skipped) == ["the run has ended"] * 2
    assert count(skipped) == 9
    assert not [one for one in world.engine.views(world.now) if one.held]


def test_a_run_that_was_started_anew_keeps_what_it_asked_for_itself() -> None:
    world = World(Defaults(requests_per_second=0.001, concurrency=0))
    world.offer(1, run=9)
    world.step()
    some: list[RequestItem] = []
    for name in ("old", "new"):
        batch = [RequestItem(n, 1, HOST, "", some_raw()) for n in range(4)]
        some += batch
        world.engine.offer(view(1, reply_to=name), batch, world.now)
    world.engine.drop(1, "the run has ended", keep_reply_to="new")
    assert [key[1] for key in world.step().skipped] == ["old"]
    world.engine.drop_queues({"new"}, "the run has ended")
    assert [key[1] for key in world.step().skipped] == ["new"]


def some_raw() -> object:
    from tests.agents.politeness.world import items

    return items(1)[0].request


def test_an_engine_forgets_hosts_nobody_asks_for() -> None:
    world = World(Defaults(requests_per_second=1000, concurrency=8))
    for number in range(50):
        world.offer(1, host=f"h{number}.test")
        world.run(0.02)
    world.run(700.0, tick=5.0)
    assert not world.engine._hosts
    assert not world.engine._of_runs
    assert not world.engine._views


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
    world = World(UNLIMITED)
    other = World(UNLIMITED, clock=world.clock, shares=world.shares, center="c2")
    world.offer(1)
    world.run(40.0, tick=0.1)
    assert len(world.gone) == 1
    assert 9 <= world.asks <= 12
    other.offer(1)
    other.step()
    other.finish(1, busy=1, after=100.0)
    other.step()
    world.run(5.1, tick=0.1)
    assert pause(world) == pytest.approx(95, abs=0.2)


def test_only_hosts_for_which_something_is_due_are_looked_at_and_renewals_are_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(Defaults(requests_per_second=0, concurrency=1))
    for number in range(400):
        world.offer(2, host=f"h{number}.test")
    world.run(3.0, tick=0.05)
    looks, take = [], PoliteHost.take

    def counted(host: PoliteHost, now: float) -> HeldRequest | None:
        looks.append(now)
        return take(host, now)

    monkeypatch.setattr(PoliteHost, "take", counted)
    asks = world.asks
    world.run(2.0, tick=0.05)
    assert 700 <= world.asks - asks <= 900
    # Each when its renewal is due and when that is answered.
    assert len(looks) <= 2 * 900
    assert max(Counter(looks).values()) < 200


def test_a_step_where_nothing_is_due_looks_at_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(UNLIMITED)
    for number in range(50):
        world.offer(1, host=f"h{number}.test")
    world.run(0.2)
    looks: list[str] = []
    monkeypatch.setattr(PoliteHost, "take", lambda host, _now: looks.append(host.name))
    world.run(2.5, tick=0.1)
    assert not looks


def test_only_the_longest_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.agents.center.politeness.engine.MAX_SHOWN", 3)
    world = World(Defaults(requests_per_second=0.001, concurrency=0))
    for number in range(20):
        world.offer(number + 2, host=f"h{number}.test")
    world.step()
    made: list[str] = []
    why = PoliteHost.why
    monkeypatch.setattr(
        PoliteHost, "why", lambda host, now: made.append(host.name) or why(host, now)
    )
    views = world.engine.views(world.now)
    assert [(view.host, view.held) for view in views] == [
        ("h19.test", 20),
        ("h18.test", 19),
        ("h17.test", 18),
    ]
    assert made == [view.host for view in views]


def test_an_idle_host_is_forgotten_in_a_minute_unless_it_was_too_busy() -> None:
    world = World(UNLIMITED)
    world.offer(1, host="calm.test")
    world.offer(1)
    world.step()
    world.engine.finished(1, [HostResult("calm.test", 1)], world.now)
    world.finish(1, busy=1)
    world.run(80.0, tick=1.0)
    assert list(world.engine._hosts) == [HOST]
    world.offer(1)
    world.step()
    world.finish(1, busy=1)
    world.step()
    assert pause(world) == pytest.approx(2, abs=0.02)

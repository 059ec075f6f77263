"""Rules are changed while a router runs, without an interruption."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apps.configcenter.models import RunningVersion
from apps.configcenter.services import activate, deactivate, revert
from apps.routing.engine.outbounds.base import away
from apps.runtime.services import database_now, register_daemon
from tests.configcenter.factories import fresh
from tests.routing.daemon.routers import Router, inbound, outbound


def numbers(router: Router, name: str) -> list[int]:
    return [message["n"] for message in router.target(name).messages]


def test_a_new_version_is_used_for_what_comes_then_and_the_old_one_again(router: Router) -> None:
    first = router.use([inbound("in.jsonl")], [outbound("o", "True")])
    router.put({"n": 1})
    router.until(lambda: router.states() == {"dispatched": 1}, "the first")
    router.use([inbound("in.jsonl")], [outbound("p", "n > 1"), outbound("o", "True")])
    router.put({"n": 2}, {"n": 0})
    router.until(lambda: router.states() == {"dispatched": 3}, "the second")
    assert (numbers(router, "o"), numbers(router, "p")) == ([1, 0], [2])
    # Unchanged channels are reused: nothing was reconnected.
    assert (router.target("o").made, router.target("o").closed) == (1, 0)
    revert(configuration=fresh(first), actor=None, now=router.clock.now())
    router.daemon.rules.wake()
    router.put({"n": 3})
    router.until(lambda: router.states() == {"dispatched": 4}, "the third")
    assert numbers(router, "o") == [1, 0, 3]
    assert router.target("p").closed == 1


def test_an_outbound_whose_rule_has_changed_is_made_anew(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    target = router.target("o")
    target.answer = lambda sent: away("x", "away")
    router.put({"n": 1})
    router.until(lambda: router.states() == {"parked": 1}, "the first")
    target.answer = lambda sent: None
    router.use([inbound("in.jsonl")], [outbound("o", "True", priority=7)])
    assert (target.made, target.closed) == (2, 1)
    router.until(lambda: router.states() == {"dispatched": 1}, "delivery")
    assert target.messages[0]["priority"] == 7


def test_rules_that_cannot_run_leave_the_version_before_and_are_told(router: Router) -> None:
    me = router.daemon.rules._identity
    assert me is not None
    register_daemon(kind=me.kind, name=me.name, boot=me.boot, host=me.host, pid=me.pid, version="")
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    made = router.target("o").made
    router.use(
        [inbound("in.jsonl"), inbound("{nobody_says}.jsonl", name="other")],
        [outbound("o", "True", priority=7)],
    )
    assert "nobody_says" in next(iter(router.daemon.rules.problems.values()))
    router.put({"n": 1})
    router.until(lambda: router.states() == {"dispatched": 1}, "the item")
    assert router.target("o").made - router.target("o").closed == made
    said = RunningVersion.objects.get()
    assert said.number == 1
    assert "nobody_says" in said.problem


def test_without_active_rules_nothing_is_taken(router: Router) -> None:
    version = router.use([inbound("in.jsonl")], [outbound("o", "True")])
    deactivate(configuration=fresh(version), actor=None, now=router.clock.now())
    router.daemon.rules.wake()
    router.daemon.step()
    assert router.daemon.rule_sets.projects() == []
    router.put({"n": 1})
    router.run_dry()
    assert router.states() == {}
    activate(version=version, actor=None, now=router.clock.now())
    router.daemon.rules.wake()
    router.until(lambda: router.states() == {"dispatched": 1}, "the item")


def test_a_disabled_inbound_brings_nothing_and_a_disabled_outbound_gets_nothing(
    router: Router,
) -> None:
    router.use(
        [inbound("in.jsonl"), inbound("off.jsonl", name="off", disable=True)],
        [outbound("o", "True", disable=True), outbound("p", "True")],
    )
    router.put({"n": 1})
    router.put({"n": 2}, file="off.jsonl")
    router.until(lambda: router.states() == {"dispatched": 1}, "the item")
    router.run_dry()
    assert numbers(router, "p") == [1]
    assert "o" not in router.daemon.rule_sets._current[router.project.pk].outbounds


@pytest.mark.slow("3 s")
@pytest.mark.covers("S4.10")
def test_a_thousand_outbounds_are_in_force_at_once(router: Router, record_property: Any) -> None:
    def rules(first: int) -> list[dict[str, Any]]:
        return [
            outbound(
                f"o{number}",
                f"data_type == 'type{number}' and (company_name or credit_no)",
                **{
                    "class": "redis_queue.RedisListOutbound",
                    "init": {"url": "redis://127.0.0.1:1/0", "key": f"queue{number}"},
                },
            )
            for number in range(first, first + 1000)
        ]

    router.use([inbound("in.jsonl")], rules(0))
    version = router.use([inbound("in.jsonl")], rules(500))
    revert(configuration=fresh(version), actor=None, now=database_now())
    router.daemon.rules.wake()
    begun = time.perf_counter()
    assert router.daemon.rules.poll()
    seconds = time.perf_counter() - begun
    record_property("seconds", round(seconds, 3))
    assert len(router.daemon.rule_sets._current[router.project.pk].outbounds) == 1000
    # Generous: one second is promised, but the machine may be busy.
    assert seconds < 10

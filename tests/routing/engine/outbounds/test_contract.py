"""Contract of all outbounds, on every target."""

from __future__ import annotations

import time

import pytest

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, MOST_BYTES, Outbound, SendStatus, Settings
from tests.routing.engine.outbounds.targets import PATIENCE_SECONDS, Target, sent

# Of outbounds whose targets do not answer; where one should, it is asked again until it does.
SHORT_SECONDS = 1.0


def until_delivered(outbound: Outbound, number: int) -> None:
    """Send one message until it is delivered, as the router does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (outcome := outbound.send([sent(number)])[0]) != DELIVERED:
        assert outcome.verdict is SendStatus.AWAY
        assert time.monotonic() < deadline, outcome
        time.sleep(0.05)


@pytest.mark.slow("5 s")
@pytest.mark.covers("S2.2", "S2.3")
def test_a_batch_arrives_whole_and_in_order(target: Target) -> None:
    outbound = target.make()
    assert isinstance(outbound, Outbound)
    batch = [sent(number) for number in range(600)]
    assert outbound.send(batch) == [DELIVERED] * 600
    assert outbound.depth() == (600 if target.has_depth else None)
    assert target.take_all(600) == [one.message for one in batch]
    assert target.take() is None


def test_an_empty_batch_is_nothing(target: Target) -> None:
    assert target.make().send([]) == []


@pytest.mark.slow("2 s")
def test_any_text_arrives_as_it_was(target: Target) -> None:
    texts = ["宁乡县老粮仓镇楚江冻库", "破码 \U0001f600\u2028", '"\\\n\x7f', ""]
    batch = [sent(number, company_name=text) for number, text in enumerate(texts)]
    assert target.make().send(batch) == [DELIVERED] * len(texts)
    assert [item["company_name"] for item in target.take_all(len(texts))] == texts


@pytest.mark.slow("1 s")
def test_equal_messages_are_both_kept(target: Target) -> None:
    outbound = target.make()
    assert outbound.send([sent(1), sent(1)]) == [DELIVERED, DELIVERED]
    assert outbound.send([sent(1)]) == [DELIVERED]
    kept = 3 if target.keeps_twins else 1
    assert target.take_all(kept) == [sent(1).message] * kept
    assert target.take() is None


def test_a_big_message_arrives(target: Target) -> None:
    big = "大" * 300_000
    assert target.make().send([sent(1, text=big)]) == [DELIVERED]
    assert target.take_all(1)[0]["text"] == big


def test_a_bad_message_fails_alone(target: Target) -> None:
    outbound = target.make()
    bad = [sent(1, text="x" * MOST_BYTES), sent(2, value=float("nan")), sent(3, text=object())]
    outcomes = outbound.send([sent(0), *bad, sent(4)])
    assert [one.verdict for one in outcomes] == ["delivered", *["refused"] * 3, "delivered"]
    assert [one.code for one in outcomes[1:4]] == ["too_large", "no_json", "no_json"]
    assert all(one.reason for one in outcomes[1:4])
    assert [item["number"] for item in target.take_all(2)] == [0, 4]


@pytest.mark.slow("3 s")
def test_a_target_that_goes_and_comes_back(target: Target) -> None:
    outbound = target.make(timeout=SHORT_SECONDS)
    until_delivered(outbound, 1)
    target.gone()
    outcomes = outbound.send([sent(2), sent(3, value=float("nan"))])
    assert [one.verdict for one in outcomes] == ["away", "refused"]
    assert outcomes[0].reason
    assert outbound.depth() is None
    target.back()
    until_delivered(outbound, 4)
    # The second was called away, and may be there all the same.
    numbers = [target.take_all(1)[0]["number"] for _ in range(2)]
    assert 4 in numbers or target.take_all(1)[0]["number"] == 4


@pytest.mark.slow("3 s")
def test_a_target_that_is_not_there_at_first(target: Target) -> None:
    target.gone()
    outbound = target.make(timeout=SHORT_SECONDS)
    assert outbound.send([sent(1)])[0].verdict is SendStatus.AWAY
    target.back()
    until_delivered(outbound, 2)


@pytest.mark.slow("4 s")
def test_a_target_that_hangs_is_waited_for_no_longer_than_allowed(target: Target) -> None:
    outbound = target.make(timeout=SHORT_SECONDS)
    until_delivered(outbound, 1)
    target.hung()
    for call in (lambda: outbound.send([sent(2), sent(3)]), outbound.depth, outbound.close):
        began = time.monotonic()
        call()
        # Far above the time-out for the sake of a busy machine, far below "for ever".
        assert time.monotonic() - began < SHORT_SECONDS + 15


@pytest.mark.slow("1 s")
def test_a_closed_outbound_takes_nothing(target: Target) -> None:
    outbound = target.make()
    assert outbound.send([sent(1)]) == [DELIVERED]
    outbound.close()
    outbound.close()
    assert [one.code for one in outbound.send([sent(2)])] == ["closed"]
    assert outbound.depth() is None
    assert target.take_all(1)[0]["number"] == 1


def test_bad_parameters_are_refused_when_it_is_made(target: Target) -> None:
    rule = rules.Outbound("bad", target.cls, init={**target.init(), "nonsense": 1})
    with pytest.raises(ValueError, match=r"init\.nonsense is no parameter"):
        registry.build(rule, Settings())

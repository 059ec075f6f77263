"""Compiled rules, and rules that cannot be compiled."""

from __future__ import annotations

import pytest

from apps.routing.engine.outcomes import Action
from apps.routing.engine.rules import Convert, Inbound, Outbound, RuleSet
from apps.routing.engine.track import InvalidRules, Malformed, compile_track

LOGS = Inbound(
    name="logs",
    cls="file.FileInbound",
    selector=("province in ['GD', 'JS']",),
    convert=(Convert("common.ExtractTaskParams"),),
)
RULES = RuleSet(
    project="ic",
    inbounds=(LOGS,),
    outbounds=(
        Outbound(name="north", cls="x", selector=("province == 'JS'",)),
        Outbound(name="south", cls="x", selector=("province == 'GD'",)),
    ),
)


@pytest.mark.covers("S2.22")
def test_an_item_is_converted_before_it_is_accepted_and_goes_on_converted():
    track = compile_track(RULES, 7)
    logs = track.entrances["logs"]

    item = logs.read(b'{"task_params": {"province": "GD"}}')

    assert logs.accepts(item)
    assert not logs.accepts(logs.read(b'{"province": "BJ"}'))
    decision = track.life().decide(item, None)
    assert (decision.action, decision.outbound) == (Action.DISPATCH, "south")
    assert track.version == 7


def test_an_inbound_without_conditions_takes_every_item():
    track = compile_track(RuleSet(project="ic", inbounds=(Inbound(name="all", cls="x"),)))

    assert track.entrances["all"].accepts({})


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"{", "not_json"), (b"[]", "not_a_dict"), (b'{"a": 1, "a": 2}', "duplicate_key")],
)
def test_what_is_no_item_is_poison_with_a_reason(raw, code):
    with pytest.raises(Malformed) as caught:
        compile_track(RULES).entrances["logs"].read(raw)
    assert caught.value.code == code


def test_an_item_that_a_converter_refuses_is_poison_that_names_the_converter():
    parse = Convert("common.ParseJson", {"keys": ["more"], "wrong": "refuse"})
    track = compile_track(
        RuleSet(project="ic", inbounds=(Inbound(name="all", cls="x", convert=(parse,)),))
    )

    with pytest.raises(Malformed, match=r"common\.ParseJson"):
        track.entrances["all"].convert({"more": "{"})


def test_rules_that_cannot_be_run_are_refused_with_every_place():
    rules = RuleSet(
        project="ic",
        inbounds=(Inbound(name="in", cls="x", selector=("a ==",), convert=(Convert("no.Such"),)),),
        outbounds=(Outbound(name="out", cls="x", selector=("b == 1", "()")),),
    )

    with pytest.raises(InvalidRules) as caught:
        compile_track(rules)
    places = [each.place for each in caught.value.problems]
    assert len(places) == 3
    assert "inbound in: selector 1" in places
    assert "outbound out: selector 2" in places

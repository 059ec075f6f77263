"""What an outbound sends of an item, to the last key (seed S2.26 to S2.30).

Where the keys of the hub itself stand: beside the task's own, on the same level. In a message that
is wrapped this is inside ``task_params``, as the seed has it ("attached to the task parameters";
its wrapped example holds ``rt`` inside and nothing outside). There a spider finds all that it was
told in one place, whichever way its queue is set; and it logs ``task_params`` as a whole, so that
``task_uuid`` and the counters come back without its doing. ``told`` reads them from either level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from apps.routing.engine.items import MAX_BYTES, Item, NoItem, check_item, write_item
from apps.routing.engine.rules import Outbound, Problem

SUBMITTER: Final = "taskhub"
TASK_PARAMS: Final = "task_params"
TASK_RESULT: Final = "task_result"
TASK_UUID: Final = "task_uuid"

# Reserved for spiders (seed S2.28), in the order of the seed.
BUILT_IN: Final = (
    "outbound",
    "routed_count",
    "retry_times",
    "submitter",
    "submit_time",
    "retry_limits",
    "rt",
    "priority",
    TASK_UUID,
    "group_retry_times",
    "token_scope",
)
# Every key that the router itself puts into items or reads from them.
KEYS: Final = (*BUILT_IN, TASK_PARAMS, TASK_RESULT)
# Keys that the submitter of an item may set; the others are the hub's own.
_SUBMITTED: Final = frozenset({"rt", "priority"})
_ADDED: Final = frozenset({*BUILT_IN, TASK_RESULT}) - _SUBMITTED
_TRUE: Final = frozenset({"true", "1", "yes"})
# What a signed 64-bit score holds exactly, also where scores are floating (a sorted set's).
_MOST_PRIORITY: Final = 2**53


# Not frozen: each item makes one, and that would take three times as long.
@dataclass(slots=True)
class Counters:
    """How far an item has come. ``group_retry_times`` numbers its attempts: each has its own."""

    # How often it was given to an outbound by a rule or as a failback.
    routed_count: int = 0
    # How often it was sent again to the outbound where it is now.
    retry_times: int = 0
    # How often it was sent again at all, wherever.
    group_retry_times: int = 0


def message(
    outbound: Outbound, item: Item, *, uuid: str, counters: Counters, submit_time: datetime
) -> Item:
    """The message for one attempt.

    Later ones win: what is taken from the item, the constants of the outbound, the keys of the
    hub. ``submit_time`` is aware, and goes out in UTC with milliseconds.
    """
    params = taken(outbound, item)
    params.update(outbound.constants)
    for name in BUILT_IN:
        # They stand at the end, even where the item has one of that name.
        params.pop(name, None)
    params |= {
        "outbound": outbound.name,
        "routed_count": counters.routed_count,
        "retry_times": counters.retry_times,
        "submitter": SUBMITTER,
        "submit_time": submit_time.astimezone(UTC).isoformat(timespec="milliseconds"),
        "retry_limits": outbound.retry_limits,
        "rt": is_rt(item),
        "priority": priority(outbound, item),
        TASK_UUID: uuid,
        "group_retry_times": counters.group_retry_times,
        "token_scope": outbound.token_scope,
    }
    return {TASK_PARAMS: params} if outbound.task_params_wrapped else params


def taken(outbound: Outbound, item: Mapping[str, Any]) -> Item:
    """Return the keys of the item that its message carries: those named that the item has.

    Without a list all of them, except what the last result says of an earlier attempt: its
    ``task_result``, and the ``task_params`` of its message. A spider that returned these as its own
    would report an old ``group_retry_times``, and its result would be ignored as stale.
    """
    if outbound.task_params is None:
        params = {key: value for key, value in item.items() if key != TASK_RESULT}
        sent = params.get(TASK_PARAMS)
        if isinstance(sent, Mapping) and sent.get("submitter") == SUBMITTER:
            del params[TASK_PARAMS]
        return params
    return {key: item[key] for key in outbound.task_params if key in item}


def is_rt(item: Mapping[str, Any]) -> bool:
    """Whether the item is a real-time one; logs say so in texts and numbers too."""
    value = item.get("rt")
    if isinstance(value, str):
        return value.strip().lower() in _TRUE
    return value is True or (type(value) is int and value == 1)


def priority(outbound: Outbound, item: Mapping[str, Any]) -> int:
    """The priority of the message: the item's own, else that of its kind at this outbound.

    The outbound's two are defaults (seed S2.25, S2.29), so a whole number that whoever submitted
    the item has set goes before them; ``accepted`` sees to it that it is that one's word.
    """
    own = item.get("priority")
    if type(own) is int and abs(own) <= _MOST_PRIORITY:
        return own
    return outbound.rt_priority if is_rt(item) else outbound.priority


def told(item: Mapping[str, Any], name: str) -> Any:
    """What an item carries of a key of the hub: at its top level, else inside ``task_params``."""
    value = item.get(name)
    if value is None:
        inside = item.get(TASK_PARAMS)
        if isinstance(inside, Mapping):
            value = inside.get(name)
    return value


def accepted(item: Item) -> Item:
    """What is kept of an item that is new.

    All of it, but for the priority in the log of a spider, where a hub had put it for another
    outbound: it is no word of whoever submitted the item. An item without one comes back itself.
    """
    if "priority" not in item or told(item, "submitter") != SUBMITTER:
        return item
    return {key: value for key, value in item.items() if key != "priority"}


def anew(item: Mapping[str, Any]) -> Item:
    """The item as it may be submitted again: without what the hub and its last result put there.

    With them it would go on where it has ended: routed as often as an item may be, or failed by
    the status that somebody has just seen to.
    """
    begun = {key: value for key, value in item.items() if key not in _ADDED}
    inside = begun.get(TASK_PARAMS)
    if isinstance(inside, Mapping):
        begun[TASK_PARAMS] = {key: value for key, value in inside.items() if key not in _ADDED}
    return begun


def after_result(
    item: Item, result: Mapping[str, Any], *, uuid: str, outbound: str, counters: Counters
) -> Item:
    """The item that goes on after an attempt: what is kept of it, and what came back, above it.

    A spider hands back less than the item had (``detail_url`` is gone when it was no parameter) and
    more (``task_result``, a new address), and rules may ask for both. They may ask for the keys of
    the hub too (``outbound == 'a' and retry_times > 2``): these say what the ledger knows, however
    the spider has handed them back. ``rt`` and ``priority`` are what the item said at first.

    Of a result that would make the item larger than an item may be only ``task_result`` is taken:
    an item that goes round must not grow with each turn.
    """
    told_back = {key: value for key, value in result.items() if key not in BUILT_IN}
    if told_back and not _is_small({**item, **told_back}):
        told_back = {key: told_back[key] for key in (TASK_RESULT,) if key in told_back}
    return {
        **item,
        **told_back,
        "outbound": outbound,
        "routed_count": counters.routed_count,
        "retry_times": counters.retry_times,
        "submitter": SUBMITTER,
        TASK_UUID: uuid,
        "group_retry_times": counters.group_retry_times,
    }


def _is_small(item: Item) -> bool:
    try:
        return len(write_item(item)) <= MAX_BYTES
    except NoItem:
        return False


def problems(outbound: Outbound) -> list[Problem]:
    """What is wrong with the message that an outbound would make.

    Names that the hub uses itself are a warning: the seed's own example takes ``outbound``.
    """
    place = outbound.place or f"outbound {outbound.name}"
    found: list[Problem] = []
    for where, names in (("task_params", outbound.task_params or ()), ("", outbound.constants)):
        for name in names:
            if name in BUILT_IN:
                text = f"{name!r} is a key of the router, whose value goes before this one"
                found.append(Problem(place, "reserved_name", text, warning=True))
            elif where and name in outbound.constants:
                text = f"{name!r} is taken from the item and a constant; the constant counts"
                found.append(Problem(place, "shadowed_name", text, warning=True))
    if TASK_RESULT in outbound.constants or TASK_RESULT in (outbound.task_params or ()):
        text = "'task_result' in a message may come back as the result of the attempt"
        found.append(Problem(place, "reserved_name", text, warning=True))
    try:
        check_item(outbound.constants)
    except NoItem as error:
        found.append(Problem(place, "bad_constant", f"a constant is nothing for JSON: {error}"))
    return found

"""Message format of outbounds: which keys of an item are sent, and the keys that the router adds.

The router's keys are on the same level as the keys of the task. In a wrapped message this is inside
``task_params``, as in the seed (S2.26 to S2.30: "attached to the task parameters"; its wrapped
example has ``rt`` inside and nothing outside). A spider thus finds all parameters in one place,
however its queue is configured. It logs ``task_params`` as a whole, so ``task_uuid`` and the
counters are returned without extra code. ``value_of`` reads them from either level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from apps.routing.engine.items import MAX_BYTES, Item, ItemError, check_item, write_item
from apps.routing.engine.rules import Outbound, Problem

SUBMITTER: Final = "taskhub"
TASK_PARAMS: Final = "task_params"
TASK_RESULT: Final = "task_result"
TASK_UUID: Final = "task_uuid"

# Keys of a message that are set by the router, in the order of the seed.
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
# All keys that the router writes into items or reads from them.
KEYS: Final = (*BUILT_IN, TASK_PARAMS, TASK_RESULT)
# Keys that the submitter of an item may set; only the router sets the others.
_SUBMITTED: Final = frozenset({"rt", "priority"})
_ADDED: Final = frozenset({*BUILT_IN, TASK_RESULT}) - _SUBMITTED
_TRUE: Final = frozenset({"true", "1", "yes"})
# Largest integer that a double-precision score (of a Redis sorted set) represents exactly.
_MOST_PRIORITY: Final = 2**53


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Counters:
    """Routing and retry counters of an item; ``group_retry_times`` identifies an attempt."""

    # Number of assignments to an outbound, by a rule or as a failback.
    routed_count: int = 0
    # Number of retries at the current outbound.
    retry_times: int = 0
    # Number of times that the item was sent again, to any outbound.
    group_retry_times: int = 0


def message(
    outbound: Outbound, item: Item, *, uuid: str, counters: Counters, submit_time: datetime
) -> Item:
    """Build the message for one attempt.

    Sources in ascending precedence: the keys taken from the item, the constants of the outbound,
    the keys of the router. ``submit_time`` must be time-zone aware; it is written in ISO 8601 as
    UTC with milliseconds.
    """
    params = taken(outbound, item)
    params.update(outbound.constants)
    for name in BUILT_IN:
        # Remove first, so that the router's keys are always at the end of the message.
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
    """Return the part of the item that its message carries: the keys in ``task_params``.

    Without such a list all keys are taken, except those that stem from the result of an earlier
    attempt: ``task_result``, and the ``task_params`` of the earlier message. If a spider returned
    the latter, the result would have an old ``group_retry_times`` and be ignored as stale.
    """
    if outbound.task_params is None:
        params = {key: value for key, value in item.items() if key != TASK_RESULT}
        sent = params.get(TASK_PARAMS)
        if isinstance(sent, Mapping) and sent.get("submitter") == SUBMITTER:
            del params[TASK_PARAMS]
        return params
    return {key: item[key] for key in outbound.task_params if key in item}


def is_rt(item: Mapping[str, Any]) -> bool:
    """Return whether the item is real-time; ``rt`` may be a boolean, a text or the number 1."""
    value = item.get("rt")
    if isinstance(value, str):
        return value.strip().lower() in _TRUE
    return value is True or (type(value) is int and value == 1)


def priority(outbound: Outbound, item: Mapping[str, Any]) -> int:
    """Return the priority of the message: the item's own, else the default of the outbound.

    ``priority`` and ``rt_priority`` of an outbound are defaults, so an integer
    set by the submitter takes precedence. ``accepted`` drops a priority that a router has set.
    """
    own = item.get("priority")
    if type(own) is int and abs(own) <= _MOST_PRIORITY:
        return own
    return outbound.rt_priority if is_rt(item) else outbound.priority


def value_of(item: Mapping[str, Any], name: str) -> Any:
    """Return the value of one of the router's keys: top level first, then ``task_params``."""
    value = item.get(name)
    if value is None:
        inside = item.get(TASK_PARAMS)
        if isinstance(inside, Mapping):
            value = inside.get(name)
    return value


def accepted(item: Item) -> Item:
    """Return a new item as it is stored: without a ``priority`` that a router has set.

    The log of a spider carries the priority that the router chose for another outbound, not one
    that a submitter chose. An item that needs no change is returned itself, not a copy.
    """
    if "priority" not in item or value_of(item, "submitter") != SUBMITTER:
        return item
    return {key: value for key, value in item.items() if key != "priority"}


def resubmittable(item: Mapping[str, Any]) -> Item:
    """Return a copy of the item for resubmission: without ``task_result`` and the router's keys.

    With these keys the item would continue where it ended: with its routing limit exhausted, or
    failing again by its old status.
    """
    begun = {key: value for key, value in item.items() if key not in _ADDED}
    inside = begun.get(TASK_PARAMS)
    if isinstance(inside, Mapping):
        begun[TASK_PARAMS] = {key: value for key, value in inside.items() if key not in _ADDED}
    return begun


def after_result(
    item: Item, result: Mapping[str, Any], *, uuid: str, outbound: str, counters: Counters
) -> Item:
    """Merge a result into the stored item; values of the result take precedence.

    A result lacks keys of the item that were not sent (such as ``detail_url``) and has new ones
    (``task_result``, a new URL); rules may use both. Rules may also use the router's keys
    (``outbound == 'a' and retry_times > 2``), which are set from the arguments, whatever the
    result contains. ``rt`` and ``priority`` keep the values of the stored item.

    If the merged item would exceed ``MAX_BYTES`` or be invalid, only ``task_result`` is taken from
    the result, so that an item does not grow with each attempt.
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
    except ItemError:
        return False


def problems(outbound: Outbound) -> list[Problem]:
    """Return the problems of the message configuration of an outbound.

    A reserved name is only a warning, because the seed's own example takes ``outbound``.
    """
    place = outbound.place or f"outbound {outbound.name}"
    result: list[Problem] = []
    for where, names in (("task_params", outbound.task_params or ()), ("", outbound.constants)):
        for name in names:
            if name in BUILT_IN:
                text = f"{name!r} is a key of the router, whose value goes before this one"
                result.append(Problem(place, "reserved_name", text, warning=True))
            elif where and name in outbound.constants:
                text = f"{name!r} is taken from the item and a constant; the constant counts"
                result.append(Problem(place, "shadowed_name", text, warning=True))
    if TASK_RESULT in outbound.constants or TASK_RESULT in (outbound.task_params or ()):
        text = "'task_result' in a message may come back as the result of the attempt"
        result.append(Problem(place, "reserved_name", text, warning=True))
    try:
        check_item(outbound.constants)
    except ItemError as error:
        result.append(Problem(place, "bad_constant", f"a constant is nothing for JSON: {error}"))
    return result

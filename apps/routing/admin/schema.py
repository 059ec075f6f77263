"""Fields of the rules editor: names, input types, labels and help texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.routing.engine.converters.registry import BUILT_IN, known_classes
from apps.routing.engine.inbounds import registry as inbounds
from apps.routing.engine.outbounds import registry as outbounds
from apps.routing.engine.rules import Overflow

Text = str | Promise

# Input types of fields, drawn by static/routing/rule_form.js.
TEXT: Final = "text"
LONG: Final = "long"
NUMBER: Final = "number"
TRUTH: Final = "truth"
# True, false or empty; empty leaves the value to the class.
MAYBE: Final = "maybe"
CHOICE: Final = "choice"
# One value per line.
LINES: Final = "lines"
# One ``name: value`` per line.
MAPPING: Final = "mapping"
SELECTORS: Final = "selectors"
CONVERTS: Final = "converts"
CLASS: Final = "class"
# Placeholder for the parameters of the chosen class.
PARAMETERS: Final = "parameters"
OUTBOUND: Final = "outbound"


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a form; ``name`` is the key in the data, dotted for a nested key."""

    name: str
    kind: str
    label: Text
    help: Text = ""
    choices: tuple[tuple[str, Text], ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Group of fields; ``open`` groups are expanded initially."""

    title: Text
    fields: tuple[Field, ...]
    open: bool = True


_NAME = Field("name", TEXT, _("Name"), _("Unique among its kind; shown everywhere."), required=True)
_NOTE = Field("note", LONG, _("Note"), _("What it is for; for people alone."))
_CLASS = Field("class", CLASS, _("Class"), required=True)
_PARAMETERS = Field("init", PARAMETERS, _("Parameters"))
_PLACEHOLDER: Final = _("Write {redis_url} and the like for what is secret: it is filled in later.")

INBOUND: Final = (
    Group(_("What it is"), (_NAME, _CLASS, _PARAMETERS, _NOTE)),
    Group(
        _("What it takes"),
        (
            Field(
                "convert",
                CONVERTS,
                _("Converters"),
                _("Applied in this order, before the conditions; the converted item goes on."),
            ),
            Field(
                "selector",
                SELECTORS,
                _("Conditions"),
                _("An item is taken when any of them holds. Without one, every item is taken."),
            ),
        ),
    ),
    Group(
        _("How it works"),
        (
            Field("weight", NUMBER, _("Weight"), _("Its share of polling beside the others; 10.")),
            Field(
                "threads",
                NUMBER,
                _("Threads"),
                _("How many take items at once; 8. With Kafka not more than partitions."),
            ),
        ),
        open=False,
    ),
)
OUTBOUND_GROUPS: Final = (
    Group(_("What it is"), (_NAME, _CLASS, _PARAMETERS, _NOTE)),
    Group(
        _("What it takes"),
        (
            Field(
                "selector",
                SELECTORS,
                _("Conditions"),
                _(
                    "The first outbound of which any condition holds takes an item. Without one "
                    "it takes none by itself: it is a failback only."
                ),
            ),
        ),
    ),
    Group(
        _("The message"),
        (
            Field(
                "task_params",
                LINES,
                _("Task parameters"),
                _("Keys of the item that are sent, one a line. Empty: all of them."),
            ),
            Field(
                "task_params_wrapped",
                TRUTH,
                _("Wrapped"),
                _("Send them inside a key task_params instead of flat."),
            ),
            Field(
                "constants",
                MAPPING,
                _("Constants"),
                _("Set on every item, one a line, such as task_src: 3"),
            ),
            Field("priority", NUMBER, _("Priority"), _("Of ordinary items; 1000.")),
            Field("rt_priority", NUMBER, _("Priority, real time"), _("Of items with rt; 2000.")),
        ),
        open=False,
    ),
    Group(
        _("When it fails"),
        (
            Field("retry_limits", NUMBER, _("Retries"), _("At most so many in this outbound; 0.")),
            Field(
                "dont_retry_status",
                LINES,
                _("Statuses without retry"),
                _("The rules are tried again without this outbound. One a line."),
            ),
            Field(
                "direct_failback_status",
                LINES,
                _("Statuses that go to the failback"),
                _("At once, without a retry. One a line."),
            ),
            Field("failback", OUTBOUND, _("Failback"), _("The outbound that takes over.")),
            Field(
                "reset_retry_times",
                TRUTH,
                _("Count anew"),
                _("Retries begin at 0 for an item that comes from another outbound."),
            ),
        ),
        open=False,
    ),
    Group(
        _("Rate and room"),
        (
            Field("token_per_second", NUMBER, _("Items per second"), _("At most; 0 is unlimited.")),
            Field(
                "token_scope",
                TEXT,
                _("Rate counted by"),
                _("* is the whole outbound; else a key of items, whose values count apart."),
            ),
            Field("max_lag", NUMBER, _("Backlog"), _("Most items in its queue; -1 is unlimited.")),
            Field(
                "overflow",
                CHOICE,
                _("When the queue is full"),
                choices=(
                    (Overflow.HOLD.value, _("hold: park the item until there is room")),
                    (Overflow.NEXT.value, _("next: try the next outbound that matches")),
                    (Overflow.FAIL.value, _("fail: end the item as failed")),
                ),
            ),
        ),
        open=False,
    ),
    Group(
        _("Its result"),
        (
            Field(
                "expects_result",
                MAYBE,
                _("Wait for a result"),
                _("Else delivery is the end. Empty: as the class has it."),
            ),
            Field(
                "result_timeout_seconds",
                NUMBER,
                _("Wait at most, seconds"),
                _("Then the item is sent again, and expires when no retry is left; a day."),
            ),
        ),
        open=False,
    ),
)
RULES: Final = (
    Group(
        _("The whole set"),
        (
            Field(
                "routing.limits",
                NUMBER,
                _("Most routings of an item"),
                _("-1 is unlimited, up to 100 that end every circle."),
            ),
            Field(
                "routing.terminal_codes",
                LINES,
                _("Statuses that end an item well"),
                _("Values of task_result, one a line, such as 1000."),
            ),
            Field(
                "failure.path", TEXT, _("Failure file"), _("Such as {failure_path}; may be empty.")
            ),
            Field("failure.compress", TRUTH, _("Compress the failure file")),
            Field(
                "server.bind", TEXT, _("Own address"), _("Of taskHUB's HTTP server; may be empty.")
            ),
            Field("server.port", NUMBER, _("Own port")),
            Field("project", TEXT, _("Name of the set"), _("As the file says it."), required=True),
            Field("logging", MAPPING, _("Logging"), _("Kept as the file says it.")),
        ),
    ),
)
GROUPS: Final = {"inbound": INBOUND, "outbound": OUTBOUND_GROUPS, "rules": RULES}

_KINDS: Final = {str: TEXT, int: NUMBER, float: NUMBER, bool: MAYBE, list: LINES, dict: MAPPING}
_HELP: Final[dict[str, Text]] = {
    "url": _PLACEHOLDER,
    "key": _("The key in Redis, or of the messages in Kafka."),
    "queue": _("The name of the queue."),
    "declare": _("Make the queue, a durable one, where it is missing."),
    "max_priority": _("x-max-priority of the queue; 0 is a queue without priorities."),
    "lease_seconds": _("So long a router may work on what it has taken."),
    "topic": _("The topic."),
    "topics": _("The topics, one a line."),
    "producer_settings": _("librdkafka's settings, one a line, such as bootstrap.servers: host"),
    "consumer_settings": _(
        "librdkafka's settings, one a line; bootstrap.servers and a group.id of its own are needed."
    ),
    "consumer_group": _("Whose lag is the depth of this outbound; may be empty."),
    "headers": _("HTTP headers, one a line."),
    "batch": _("So many messages a request, as a JSON list; 0 is one, as an object."),
    "concurrency": _("Requests at once; more than one keeps no order."),
    "job": _("The name of a job of this project; each item starts a run of it."),
    "arguments": _("Argument of the run: key of the message, one a line. Empty: all it has."),
    "frontier": _("The name of a frontier of this project."),
    "data": _("The key of the message that has the URL, or whatever is to be crawled."),
    "active_at": _("The key of the message that says when; empty: at once."),
    "ext": _("Keys of the message that go along with the seed, one a line."),
    "biz": _("The name of a biz of this project; each item becomes one of its stored requests."),
    "rule": _("The extraction rule, by name or number; may be empty."),
    "rule_key": _("The key of the message that names the extraction rule; before the one above."),
    "method": _("GET unless said otherwise."),
    "params": _("Parameter of the address: key of the message, one a line."),
    "body": _("The key of the message whose text is sent as the body."),
    "meta": _("Keys of the message that go into each record, one a line."),
    "urgent": _("Before all other seeds; empty: real-time items are."),
    "path": _("Below the folder for such files."),
    "follow": _("Wait for more lines; else the file is complete."),
}


def fields_of(of: str) -> dict[str, Field]:
    """Return the fields of an inbound, an outbound or the whole rule set, by name."""
    return {field.name: field for group in GROUPS[of] for field in group.fields}


def parameters_of(of: str, cls: str) -> dict[str, Field] | None:
    """Return the fields of a class's own parameters, by name without the prefix ``init.``.

    None if the class is not installed or its parameters are unknown.
    """
    try:
        if of == "inbound":
            found = inbounds.parameters(cls)
            return {
                each.name: _parameter(each.name, each.type, each.required, each.text)
                for each in found
            }
        taken = outbounds.find(cls).parameters
    except (LookupError, RuntimeError):
        return None
    return {name: _parameter(name, each.kind, each.required) for name, each in taken.items()}


def _parameter(name: str, kind: type, required: bool, text: str = "") -> Field:
    return Field(name, _KINDS.get(kind, TEXT), name, _HELP.get(name, text), required=required)


def as_json() -> dict[str, Any]:
    """Return all groups, classes and converters as data for the page's script."""
    return {
        "groups": {
            of: [_plain(asdict(group)) for group in groups] for of, groups in GROUPS.items()
        },
        "classes": {
            "inbound": _classes("inbound", inbounds.names()),
            "outbound": _classes("outbound", outbounds.names()),
        },
        "converters": {name: _converter_hint(name) for name in known_classes()},
    }


def _classes(of: str, names: Iterable[str]) -> dict[str, list[Any]]:
    return {
        name: [_plain(asdict(field)) for field in (parameters_of(of, name) or {}).values()]
        for name in names
    }


def _converter_hint(name: str) -> list[str]:
    """Return the names of a built-in converter's parameters; empty for other classes."""
    cls = BUILT_IN.get(name)
    return [] if cls is None else [each.name for each in msgspec.structs.fields(cls)]


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value

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


_NAME = Field(
    "name",
    TEXT,
    _("Name"),
    _("Unique among the inbounds or outbounds of the rules."),
    required=True,
)
_NOTE = Field("note", LONG, _("Note"), _("Purpose of this entry; routers ignore it."))
_CLASS = Field("class", CLASS, _("Class"), required=True)
_PARAMETERS = Field("init", PARAMETERS, _("Parameters"))
_PLACEHOLDER: Final = _(
    "Use placeholders such as {redis_url} for secrets; each process fills them in."
)

INBOUND: Final = (
    Group(_("Basics"), (_NAME, _CLASS, _PARAMETERS, _NOTE)),
    Group(
        _("Accepted tasks"),
        (
            Field(
                "convert",
                CONVERTS,
                _("Converters"),
                _(
                    "Applied in this order before the conditions; routing continues with the "
                    "converted task."
                ),
            ),
            Field(
                "selector",
                SELECTORS,
                _("Conditions"),
                _(
                    "A task is accepted if any condition matches. Without conditions, every "
                    "task is accepted."
                ),
            ),
        ),
    ),
    Group(
        _("Performance"),
        (
            Field(
                "weight",
                NUMBER,
                _("Weight"),
                _("Share of polling relative to the other inbounds; 10 by default."),
            ),
            Field(
                "threads",
                NUMBER,
                _("Threads"),
                _(
                    "Batches processed at once; 8 by default. With Kafka, at most the number "
                    "of partitions."
                ),
            ),
        ),
        open=False,
    ),
)
OUTBOUND_GROUPS: Final = (
    Group(_("Basics"), (_NAME, _CLASS, _PARAMETERS, _NOTE)),
    Group(
        _("Accepted tasks"),
        (
            Field(
                "selector",
                SELECTORS,
                _("Conditions"),
                _(
                    "A task goes to the first outbound with a matching condition. An "
                    "outbound without conditions is used only as a failback."
                ),
            ),
        ),
    ),
    Group(
        _("Message"),
        (
            Field(
                "task_params",
                LINES,
                _("Task parameters"),
                _("Task keys to send, one per line. Leave empty to send all."),
            ),
            Field(
                "task_params_wrapped",
                TRUTH,
                _("Wrapped"),
                _("Send the parameters inside the key task_params instead of at the top level."),
            ),
            Field(
                "constants",
                MAPPING,
                _("Constants"),
                _("Values set on every task, one per line, such as task_src: 3"),
            ),
            Field(
                "priority", NUMBER, _("Priority"), _("Priority of ordinary tasks; 1000 by default.")
            ),
            Field(
                "rt_priority",
                NUMBER,
                _("Real-time priority"),
                _("Priority of tasks with rt; 2000 by default."),
            ),
        ),
        open=False,
    ),
    Group(
        _("Failures"),
        (
            Field(
                "retry_limits",
                NUMBER,
                _("Retries"),
                _("Maximum number of retries at this outbound; 0 by default."),
            ),
            Field(
                "dont_retry_status",
                LINES,
                _("Statuses without retry"),
                _("The task is routed again without this outbound. One status per line."),
            ),
            Field(
                "direct_failback_status",
                LINES,
                _("Failback statuses"),
                _("The task goes to the failback at once, without a retry. One status per line."),
            ),
            Field(
                "failback",
                OUTBOUND,
                _("Failback"),
                _("Outbound that receives the task when no retries are left."),
            ),
            Field(
                "reset_retry_times",
                TRUTH,
                _("Reset retries"),
                _("Retries start at 0 for a task that comes from another outbound."),
            ),
        ),
        open=False,
    ),
    Group(
        _("Rate and backlog limits"),
        (
            Field(
                "token_per_second",
                NUMBER,
                _("Tasks per second"),
                _("Maximum rate; 0 means unlimited."),
            ),
            Field(
                "token_scope",
                TEXT,
                _("Rate limit scope"),
                _("* limits the whole outbound; a task key limits each of its values separately."),
            ),
            Field(
                "max_lag",
                NUMBER,
                _("Backlog"),
                _("Maximum number of messages in the queue; -1 means unlimited."),
            ),
            Field(
                "overflow",
                CHOICE,
                _("When the queue is full"),
                choices=(
                    (Overflow.HOLD.value, _("hold: park the task until there is room")),
                    (Overflow.NEXT.value, _("next: try the next outbound that matches")),
                    (Overflow.FAIL.value, _("fail: end the task as failed")),
                ),
            ),
        ),
        open=False,
    ),
    Group(
        _("Result"),
        (
            Field(
                "expects_result",
                MAYBE,
                _("Wait for a result"),
                _(
                    "If no, the task ends when it is delivered. Leave empty for the default "
                    "of the class."
                ),
            ),
            Field(
                "result_timeout_seconds",
                NUMBER,
                _("Result timeout (seconds)"),
                _(
                    "After this time the task is sent again, or expires if no retries are "
                    "left; one day by default."
                ),
            ),
        ),
        open=False,
    ),
)
RULES: Final = (
    Group(
        _("Rule set"),
        (
            Field(
                "routing.limits",
                NUMBER,
                _("Maximum routings"),
                _("How often a task may be routed; -1 means 100, so that every cycle ends."),
            ),
            Field(
                "routing.terminal_codes",
                LINES,
                _("Success statuses"),
                _(
                    "Values of task_result that end a task successfully, one per line, such "
                    "as 1000."
                ),
            ),
            Field(
                "failure.path",
                TEXT,
                _("Failure file"),
                _("Path of the file, such as {failure_path}; optional."),
            ),
            Field("failure.compress", TRUTH, _("Compress the failure file")),
            Field(
                "server.bind",
                TEXT,
                _("Listen address"),
                _("Address of the HTTP server that these rules open; optional."),
            ),
            Field("server.port", NUMBER, _("Listen port")),
            Field(
                "project",
                TEXT,
                _("Rule set name"),
                _("Value of the key project in the YAML file."),
                required=True,
            ),
            Field("logging", MAPPING, _("Logging"), _("Stored with the rules; has no effect.")),
        ),
    ),
)
GROUPS: Final = {"inbound": INBOUND, "outbound": OUTBOUND_GROUPS, "rules": RULES}

_KINDS: Final = {str: TEXT, int: NUMBER, float: NUMBER, bool: MAYBE, list: LINES, dict: MAPPING}
_HELP: Final[dict[str, Text]] = {
    "url": _PLACEHOLDER,
    "key": _("Key in Redis, or key of the messages in Kafka."),
    "queue": _("Name of the queue."),
    "declare": _("Create a durable queue if it does not exist."),
    "max_priority": _("x-max-priority of the queue; 0 disables priorities."),
    "lease_seconds": _("Seconds until tasks taken by a router are given to another one."),
    "topic": _("Name of the topic."),
    "topics": _("Names of the topics, one per line."),
    "producer_settings": _("Settings of librdkafka, one per line, such as bootstrap.servers: host"),
    "consumer_settings": _(
        "Settings of librdkafka, one per line; bootstrap.servers and a group.id "
        "that no other inbound uses are required."
    ),
    "consumer_group": _("Consumer group whose lag is the queue length of this outbound; optional."),
    "headers": _("HTTP headers, one per line."),
    "batch": _("Messages per request, sent as a JSON list; 0 sends one message as an object."),
    "concurrency": _("Concurrent requests; with more than one, the order is not kept."),
    "job": _("Name of a job of this project; each routed task starts a run of it."),
    "arguments": _(
        "Run arguments as argument: message key, one per line. Leave empty to "
        "pass all message keys."
    ),
    "frontier": _("Name of a URL queue (frontier) of this project."),
    "data": _("Message key with the URL or other data to crawl."),
    "active_at": _("Message key with the time of the crawl; leave empty to crawl at once."),
    "ext": _("Message keys to store with the seed, one per line."),
    "biz": _(
        "Name of a request group (biz) of this project; each task becomes one of "
        "its stored requests."
    ),
    "rule": _("Name or number of the extraction rule; optional."),
    "rule_key": _("Message key with the extraction rule; takes precedence over the fixed one."),
    "method": _("HTTP method; GET by default."),
    "params": _("Query parameters as parameter: message key, one per line."),
    "body": _("Message key whose text is sent as the request body."),
    "meta": _("Message keys to copy to each record, one per line."),
    "urgent": _("Crawl before all other seeds; leave empty to do so for real-time tasks only."),
    "path": _("Path of the file below the folder for inbound files."),
    "follow": _("Wait for more lines at the end of the file; otherwise the file is complete."),
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
            parameters = inbounds.parameters(cls)
            return {
                parameter.name: _parameter(
                    parameter.name, parameter.type, parameter.required, parameter.text
                )
                for parameter in parameters
            }
        taken = outbounds.find(cls).parameters
    except (LookupError, RuntimeError):
        return None
    return {
        name: _parameter(name, parameter.kind, parameter.required)
        for name, parameter in taken.items()
    }


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
    return [] if cls is None else [field.name for field in msgspec.structs.fields(cls)]


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value

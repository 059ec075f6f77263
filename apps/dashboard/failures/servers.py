"""The servers behind the installation: how they are, and what their absence means now."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _

from apps.dashboard.failures.counting import Counts
from apps.dashboard.failures.part import Fact, Part, State
from apps.dashboard.probes import Answer


def server_parts(counts: Counts, answers: Mapping[str, Answer]) -> list[Part]:
    """The servers that this installation names."""
    parts = [_database(counts, answers["database"]), _broker(counts, answers["broker"])]
    if "redis" in answers:
        parts.append(_redis(counts, answers["redis"]))
    nodes = {key: each for key, each in answers.items() if key.startswith("requests:")}
    parts += [_request_node(counts, key, answer) for key, answer in nodes.items()]
    if "logs" in answers:
        parts.append(_log_store(counts, answers["logs"]))
    return parts


def _probed(answer: Answer) -> tuple[State, str]:
    if answer.ok is None:
        return State.HANGS, _("no answer for %(seconds)d s") % {"seconds": answer.seconds}
    if not answer.ok:
        return State.AWAY, answer.detail
    if answer.slow:
        return State.SLOW, f"{answer.detail}, {answer.seconds:.1f} s"
    return State.WELL, answer.detail


def _database(counts: Counts, answer: Answer) -> Part:
    state, detail = _probed(answer)
    return Part(
        "database",
        _("Database"),
        "database",
        state,
        detail,
        [
            Fact("runs", _("active runs"), counts.runs),
            Fact("outbox", _("messages still to be sent"), counts.outbox),
        ],
        _(
            "Pages and REST answer 503. Nothing new is started, routed or counted. Runs that have "
            "their agents go on downloading; what they report waits in the broker."
        ),
        _("Nothing: what was answered is committed, and messages are acknowledged after that."),
        _("All processes connect again by themselves, within 30 s."),
        since=answer.since,
        noticed=_("/readyz answers 503 at once."),
        commands=["manage.py doctor"],
        runbook="When something is wrong",
    )


def _broker(counts: Counts, answer: Answer) -> Part:
    state, detail = _probed(answer)
    return Part(
        "broker",
        _("Broker"),
        "swap_horiz",
        state,
        detail,
        [
            Fact("runs", _("active runs"), counts.runs),
            Fact("left", _("requests left in them"), counts.left),
            Fact("out", _("of these with agents"), counts.out),
            Fact("outbox", _("messages still to be sent"), counts.outbox),
        ],
        _(
            "Requests, log lines and counters are not carried. Runs wait and send again; what the "
            "web and other processes have to say waits in the database."
        ),
        _("Nothing: a request that got lost on its way is sent again after its time-out."),
        _("All processes connect again by themselves, with pauses of up to 30 s."),
        since=answer.since,
        noticed=_("The home page says so at once."),
        commands=["manage.py doctor"],
        runbook="The broker",
    )


def _redis(counts: Counts, answer: Answer) -> Part:
    state, detail = _probed(answer)
    return Part(
        "redis",
        "Redis",
        "bolt",
        state,
        detail,
        [
            Fact("request_entries", _("queued stored requests"), counts.request_entries),
            Fact("parked", _("parked items"), counts.parked),
            Fact("runs", _("active runs"), counts.runs),
        ],
        _(
            "Stored requests wait in their store. Routed items for Redis lists are parked. Centers "
            "keep the limits of hosts each by itself."
        ),
        _("Nothing: the stores have every request, and queues are filled again from there."),
        _("By itself, within seconds. An emptied Redis is filled again."),
        since=answer.since,
        noticed=_("/readyz answers 503 at once."),
        commands=["manage.py doctor"],
        runbook="When something is wrong",
    )


def _request_node(counts: Counts, key: str, answer: Answer) -> Part:
    state, detail = _probed(answer)
    name = key.partition(":")[2]
    return Part(
        key.replace(":", "-"),
        _("Request store %(name)s") % {"name": name},
        "inventory_2",
        state,
        detail,
        [
            Fact("stored_new", _("new requests, on all nodes"), counts.stored_new),
            Fact("stored_taken", _("taken by fetchers"), counts.stored_taken),
        ],
        _(
            "New requests of its bizzes are refused with 503, so that their senders keep them. "
            "Fetchers hold what they have fetched and take nothing more."
        ),
        _("Nothing: what a fetcher cannot end in time is taken again."),
        _("By itself, with pauses that grow to half a minute."),
        since=answer.since,
        noticed=_("On the page of the pace after a minute."),
        commands=["manage.py doctor"],
        runbook="run_fetcher",
    )


def _log_store(counts: Counts, answer: Answer) -> Part:
    state, detail = _probed(answer)
    return Part(
        "log-store",
        _("Log store"),
        "notes",
        state,
        detail,
        [Fact("runs", _("active runs"), counts.runs)],
        _(
            "No log can be read or searched. Lines that runs write are not acknowledged and wait "
            "in the broker; the runs go on."
        ),
        _("Lines beyond what a host keeps; they are counted and shown as dropped."),
        _("By itself; what waits is stored, and every line comes once."),
        since=answer.since,
        noticed=_("The log ingester says so in its state."),
        commands=["manage.py doctor"],
        runbook="run_log_ingester",
    )

"""Routing rules as a kind of configuration: files of taskHUB in, versions kept, files out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.configcenter.engine.diffs import DataChange, What
from apps.configcenter.services import ConfigKind, Unreadable
from apps.routing import placeholders
from apps.routing.engine import messages
from apps.routing.engine.converters.registry import build_chain
from apps.routing.engine.files import diff
from apps.routing.engine.files.data import Data, from_data, to_data
from apps.routing.engine.files.placeholders import holds_any
from apps.routing.engine.files.reading import read_rules
from apps.routing.engine.files.writing import write_rules
from apps.routing.engine.inbounds import groups
from apps.routing.engine.inbounds import registry as inbounds
from apps.routing.engine.outbounds import registry as outbounds
from apps.routing.engine.rules import Inbound, Outbound, Problem, RuleSet
from apps.routing.engine.selecting import SelectorError, compile_selector
from apps.routing.engine.selecting.misspelled import misspelled
from apps.routing.engine.servers import refusal
from apps.routing.texts import told_problem

_ON = {diff.Kind.ENABLED: ("disabled", "enabled"), diff.Kind.DISABLED: ("enabled", "disabled")}


class RoutingKind(ConfigKind):
    """One rule set a project (seed S2.10). ``{placeholders}`` are kept, so no password is."""

    name = "routing"
    title = _("Routing rules")
    suffix: ClassVar[str] = "yaml"
    media_type: ClassVar[str] = "application/yaml"

    def check(self, data: Data) -> Iterable[Problem]:
        """Of the data, the selectors, placeholders, and what every class says of its parameters."""
        yield from map(told_problem, _problems(data))

    def diff(self, old: Data, new: Data) -> list[DataChange]:
        """Entry by entry, in the effective order; passwords are not shown."""
        after = from_data(new)[0]
        before = from_data(old)[0]
        if after is not None and not old:
            before = RuleSet(project=after.project)
        if before is None or after is None:
            # Written by a release with other rules: the plain comparison still holds.
            return super().diff(old, new)
        return [_change(each) for each in diff.diff_rules(before, after)]

    def public(self, data: Data) -> Data:
        """Without passwords."""
        return diff.public_data(data)

    def summary(self, data: Data) -> str:
        """How many inbounds and outbounds."""
        counts = [len(data.get(key) or ()) for key in ("inbound", "outbound")]
        return ", ".join(
            (
                ngettext("%(count)d inbound", "%(count)d inbounds", counts[0])
                % {"count": counts[0]},
                ngettext("%(count)d outbound", "%(count)d outbounds", counts[1])
                % {"count": counts[1]},
            )
        )

    def read(self, raw: bytes, name: str = "") -> Data:
        """One file of YAML; it can include no other. Raises ``Unreadable``."""
        return _read(raw, name or "main.yaml")

    def read_file(self, path: Path) -> Data:
        """A file with those it includes. Raises ``Unreadable`` and ``OSError``."""
        # Of a file that is not there an error of its own is told.
        path.stat()
        return _read(path, path.name)

    def places(self, path: Path) -> dict[str, str]:
        """Return file and line of each entry: ``outbound[3]`` -> ``sub/b.yaml:12``."""
        rules = read_rules(path, None, class_parameters=_parameters)[0]
        if rules is None:
            return {}
        entries: list[tuple[str, Sequence[Inbound | Outbound]]] = [
            ("inbound", rules.inbounds),
            ("outbound", rules.outbounds),
        ]
        return {
            f"{kind}[{number}]": entry.place
            for kind, placed in entries
            for number, entry in enumerate(placed)
        }

    def write(self, data: Data) -> str:
        """taskHUB's YAML, which ``read`` reads back."""
        rules, problems = from_data(data)
        if rules is None:
            raise Unreadable([told_problem(each) for each in problems if not each.warning])
        return write_rules(rules, with_placeholders=True)


def _problems(data: Data) -> Iterator[Problem]:
    rules, problems = from_data(data, check_selector=_selector_problem)
    yield from problems
    yield from placeholders.problems(data)
    if rules is not None:
        yield from problems_of_classes(rules)
        yield from _misspelled_keys(rules)
        yield from _problems_of_server(rules)


def _problems_of_server(rules: RuleSet) -> Iterator[Problem]:
    """A warning: the rules run all the same, and another installation may allow it."""
    server = rules.server
    if server is None or holds_any(server.bind):
        return
    if text := refusal(server, settings.ROUTING_SERVERS):
        yield Problem("server", "server_not_allowed", text, warning=True)


def _misspelled_keys(rules: RuleSet) -> Iterator[Problem]:
    """A warning: an item may have such a key, but no item has it by the router's doing."""
    used = {key for outbound in rules.outbounds for key in outbound.task_params or ()}
    used |= {key for outbound in rules.outbounds for key in outbound.constants}
    entries: list[Inbound | Outbound] = [*rules.inbounds, *rules.outbounds]
    for entry in entries:
        for number, key, meant in misspelled(entry.selector, {*messages.KEYS, *used}):
            text = f"items have no key {key} by the router; is {meant} meant?"
            place = f"{entry.place}.selector[{number}]"
            yield Problem(place, "unknown_key", text, warning=True)


def problems_of_classes(rules: RuleSet) -> Iterator[Problem]:
    """What converters, inbounds and outbounds say of what they are given."""
    for inbound in rules.inbounds:
        yield from inbounds.check(inbound)
        yield from build_chain(inbound.convert)[1]
    yield from groups.check(rules.inbounds)
    for outbound in rules.outbounds:
        yield from outbounds.check(outbound, filled=False)
        yield from messages.problems(outbound)


def _read(source: Path | bytes, name: str) -> Data:
    rules, problems = read_rules(
        source,
        None,
        name=name,
        class_parameters=_parameters,
        check_selector=_selector_problem,
    )
    if rules is not None:
        # Here they still know their lines.
        problems = list(problems_of_classes(rules))
    errors = [told_problem(each) for each in problems if not each.warning]
    if rules is None or errors:
        raise Unreadable(errors)
    return to_data(without_places(rules))


def without_places(rules: RuleSet) -> RuleSet:
    """The same rules are the same version, whichever file they come from."""
    return replace(
        rules,
        inbounds=tuple(
            replace(
                inbound,
                place="",
                convert=tuple(replace(convert, place="") for convert in inbound.convert),
            )
            for inbound in rules.inbounds
        ),
        outbounds=tuple(replace(outbound, place="") for outbound in rules.outbounds),
    )


def _parameters(cls: str) -> frozenset[str] | None:
    try:
        return outbounds.parameters(cls)
    except outbounds.UnknownOutbound:
        return None


def _selector_problem(text: str) -> tuple[str, str, int] | None:
    try:
        compile_selector(text)
    except SelectorError as error:
        return error.code, error.text, error.offset
    return None


def _change(each: diff.Change) -> DataChange:
    where = f"{each.of} {each.name}".strip()
    if each.kind is diff.Kind.CHANGED:
        place = f"{where}: {each.field}" if each.name else each.field
        return DataChange(place, What.CHANGED, each.old, each.new)
    if each.kind is diff.Kind.MOVED:
        return DataChange(where, What.MOVED, each.old, each.new)
    if each.kind is diff.Kind.ADDED:
        return DataChange(where, What.ADDED, after=each.new)
    if each.kind is diff.Kind.REMOVED:
        return DataChange(where, What.REMOVED, before=each.old)
    return DataChange(where, What.CHANGED, *_ON[each.kind])

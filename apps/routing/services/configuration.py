"""Routing rules as a kind of configuration: import and export taskHUB's YAML, keep versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from apps.configcenter.engine.diffs import ChangeKind, DataChange
from apps.configcenter.services import ConfigKind, Unreadable
from apps.routing import placeholders
from apps.routing.engine import messages
from apps.routing.engine.converters.registry import build_chain
from apps.routing.engine.files import diff
from apps.routing.engine.files.data import Data, from_data, to_data
from apps.routing.engine.files.placeholders import holds_any
from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.files.writer import write_rules
from apps.routing.engine.inbounds import groups
from apps.routing.engine.inbounds import registry as inbounds
from apps.routing.engine.outbounds import registry as outbounds
from apps.routing.engine.rules import Inbound, Outbound, Problem, RuleSet
from apps.routing.engine.selector import SelectorError, compile_selector
from apps.routing.engine.selector.misspelled import misspelled
from apps.routing.engine.servers import refusal
from apps.routing.texts import translated_problem

_ON = {diff.Kind.ENABLED: ("disabled", "enabled"), diff.Kind.DISABLED: ("enabled", "disabled")}


class RoutingKind(ConfigKind):
    """Rule set of a project, one each.

    ``{placeholders}`` are stored unresolved, so that no version holds a password.
    """

    name = "routing"
    title = _("Routing rules")
    suffix: ClassVar[str] = "yaml"
    media_type: ClassVar[str] = "application/yaml"

    def check(self, data: Data) -> Iterable[Problem]:
        """Return the problems of the data, selectors, placeholders, and parameters of classes."""
        yield from map(translated_problem, _problems(data))

    def diff(self, old: Data, new: Data) -> list[DataChange]:
        """Compare two versions entry by entry, in the order of evaluation; passwords are masked."""
        after = from_data(new)[0]
        before = from_data(old)[0]
        if after is not None and not old:
            before = RuleSet(project=after.project)
        if before is None or after is None:
            # Saved by a release whose rules this one cannot read: compare the data key by key.
            return super().diff(old, new)
        return [_change(change) for change in diff.diff_rules(before, after)]

    def public(self, data: Data) -> Data:
        """Return the data with passwords masked."""
        return diff.public_data(data)

    def summary(self, data: Data) -> str:
        """Return a text such as "2 inbounds, 5 outbounds"."""
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
        """Parse one YAML file, which cannot include others. Raises ``Unreadable``."""
        return _read(raw, name or "main.yaml")

    def read_file(self, path: Path) -> Data:
        """Parse a file and the files it includes. Raises ``Unreadable`` and ``OSError``."""
        # Raises FileNotFoundError for a missing file, instead of a problem of the rules.
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
        """Return the rules as taskHUB's YAML; ``read`` is the inverse."""
        rules, problems = from_data(data)
        if rules is None:
            raise Unreadable(
                [translated_problem(problem) for problem in problems if not problem.warning]
            )
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
    """Warn about a server that this installation does not allow.

    Not an error: the rules run without it, and another installation may allow it.
    """
    server = rules.server
    if server is None or holds_any(server.bind):
        return
    if text := refusal(server, settings.ROUTING_SERVERS):
        yield Problem("server", "server_not_allowed", text, warning=True)


def _misspelled_keys(rules: RuleSet) -> Iterator[Problem]:
    """Warn about keys in selectors that look like a misspelled key of the router.

    Not an error: items may carry any key of their own.
    """
    used = {key for outbound in rules.outbounds for key in outbound.task_params or ()}
    used |= {key for outbound in rules.outbounds for key in outbound.constants}
    entries: list[Inbound | Outbound] = [*rules.inbounds, *rules.outbounds]
    for entry in entries:
        for number, key, meant in misspelled(entry.selector, {*messages.KEYS, *used}):
            text = f"the router sets no key {key}; is {meant} meant?"
            place = f"{entry.place}.selector[{number}]"
            yield Problem(place, "unknown_key", text, warning=True)


def problems_of_classes(rules: RuleSet) -> Iterator[Problem]:
    """Return the problems that converters, inbounds and outbounds find in their parameters."""
    for inbound in rules.inbounds:
        yield from inbounds.check(inbound)
        yield from build_chain(inbound.convert)[1]
    yield from groups.check(rules.inbounds)
    for outbound in rules.outbounds:
        yield from outbounds.check(outbound, filled=False)
        yield from messages.problems(outbound)


def _read(source: Path | bytes, name: str) -> Data:
    rules, problems = read_rules(
        source, None, name=name, class_parameters=_parameters, check_selector=_selector_problem
    )
    if rules is not None:
        # Checked before ``to_data``, which drops the line numbers.
        problems = list(problems_of_classes(rules))
    errors = [translated_problem(problem) for problem in problems if not problem.warning]
    if rules is None or errors:
        raise Unreadable(errors)
    return to_data(without_places(rules))


def without_places(rules: RuleSet) -> RuleSet:
    """Drop file names and line numbers, so that equal rules of different files are one version."""
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


def _change(change: diff.Change) -> DataChange:
    where = f"{change.of} {change.name}".strip()
    if change.kind is diff.Kind.CHANGED:
        place = f"{where}: {change.field}" if change.name else change.field
        return DataChange(place, ChangeKind.CHANGED, change.old, change.new)
    if change.kind is diff.Kind.MOVED:
        return DataChange(where, ChangeKind.MOVED, change.old, change.new)
    if change.kind is diff.Kind.ADDED:
        return DataChange(where, ChangeKind.ADDED, after=change.new)
    if change.kind is diff.Kind.REMOVED:
        return DataChange(where, ChangeKind.REMOVED, before=change.old)
    return DataChange(where, ChangeKind.CHANGED, *_ON[change.kind])

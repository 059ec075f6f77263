"""Builder of a rule set from stored data, or from a main file and its includes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from apps.routing.engine.files.classes import ClassParameters
from apps.routing.engine.files.entries import read_inbound, read_outbound
from apps.routing.engine.files.fields import Fields, shown
from apps.routing.engine.rules import Failure, Inbound, Outbound, RuleSet, Server
from yardkit.yaml_reader import Path

MAX_ENTRIES: Final = 10_000
MAX_PORT: Final = 65_535
MAX_LIMIT: Final = 2**31 - 1
INCLUDE: Final = "include"
ENTRIES: Final = ("inbound", "outbound")
MAIN_KEYS: Final = ("project", "server", "routing", "failure", *ENTRIES, "logging")


@dataclass(slots=True)
class _Placed:
    """Entry with its origin and path, for reporting problems."""

    entry: Any
    fields: Fields
    path: Path

    def problem(self, key: str, code: str, text: str, *, warning: bool = False) -> None:
        self.fields.problem((*self.path, key), code, text, warning=warning)


@dataclass(slots=True)
class Builder:
    """Collects entries in their effective order, then builds the rule set."""

    classes: ClassParameters | None
    inbounds: list[_Placed] = field(default_factory=list)
    outbounds: list[_Placed] = field(default_factory=list)

    def add_entries(self, fields: Fields, root: Mapping[str, Any]) -> None:
        """Add the inbounds and outbounds of one file."""
        for key, into in (("inbound", self.inbounds), ("outbound", self.outbounds)):
            for value, path in fields.items(root.get(key), (key,)):
                if len(into) >= MAX_ENTRIES:
                    text = f"more than {MAX_ENTRIES} entries"
                    fields.problem(path, "too_many_entries", text)
                    break
                entry = self._read(fields, key, value, path)
                if entry is not None:
                    into.append(_Placed(entry, fields, path))

    def _read(self, fields: Fields, key: str, value: Any, path: Path) -> Inbound | Outbound | None:
        if key == "inbound":
            return read_inbound(fields, value, path, self.classes or (lambda cls: None))
        return read_outbound(fields, value, path, self.classes)

    def build(self, fields: Fields, root: Mapping[str, Any]) -> RuleSet:
        """Build the rule set with the settings of the main file; report invalid references."""
        _check_names(self.inbounds)
        _check_names(self.outbounds)
        _check_failbacks(self.outbounds)
        values: dict[str, Any] = {}
        if root.get("project") is None:
            fields.problem(
                ("project",) if "project" in root else (), "missing", "project is missing"
            )
        else:
            values["project"] = fields.name(root["project"], ("project",))
        values |= _routing(fields, root)
        log = fields.mapping(root.get("logging"), ("logging",))
        # Log formats may contain braces that are not placeholders.
        log = fields.plain(log, ("logging",), keep_unknown=True)
        if log:
            # Not applied: dictConfig can load any class, and a router serves several projects.
            text = "kept, and not gone by: LOG_LEVEL of the installation says what routers log"
            fields.problem(("logging",), "not_applied", text, warning=True)
        return RuleSet(
            project=values.pop("project", None) or "",
            inbounds=tuple(placed.entry for placed in self.inbounds),
            outbounds=tuple(placed.entry for placed in self.outbounds),
            server=_server(fields, root),
            failure=_failure(fields, root),
            logging=log,
            **values,
        )


def _routing(fields: Fields, root: Mapping[str, Any]) -> dict[str, Any]:
    routing = _section(fields, root, "routing", ("limits", "terminal_codes"))
    values: dict[str, Any] = {}
    if routing.get("limits") is not None:
        path: Path = ("routing", "limits")
        limits = fields.whole(routing["limits"], path, least=-1, most=MAX_LIMIT)
        if limits == 0:
            fields.problem(path, "out_of_range", "with 0 nothing is routed; -1 is unlimited")
        values["limits"] = limits
    if routing.get("terminal_codes") is not None:
        codes = fields.statuses(routing["terminal_codes"], ("routing", "terminal_codes"))
        values["terminal_codes"] = codes
    return values


def _server(fields: Fields, root: Mapping[str, Any]) -> Server | None:
    if root.get("server") is None:
        return None
    server = _section(fields, root, "server", ("bind", "port"))
    bind, port = server.get("bind"), server.get("port")
    for key, value in (("bind", bind), ("port", port)):
        if value is None:
            fields.problem(("server", key), "missing", f"{key} is missing")
    read_bind = None if bind is None else fields.name(bind, ("server", "bind"))
    if port is None:
        return None
    read_port = fields.whole(port, ("server", "port"), least=1, most=MAX_PORT)
    return Server(read_bind, read_port) if read_bind and read_port else None


def _failure(fields: Fields, root: Mapping[str, Any]) -> Failure | None:
    if root.get("failure") is None:
        return None
    failure = _section(fields, root, "failure", ("path", "compress"))
    if failure.get("path") is None:
        fields.problem(("failure", "path"), "missing", "path is missing")
        return None
    path = fields.text(failure["path"], ("failure", "path"))
    if path == "":
        fields.problem(("failure", "path"), "missing", "the path of a file is needed")
    compress = failure.get("compress")
    packed = False if compress is None else fields.truth(compress, ("failure", "compress"))
    return Failure(path=path, compress=bool(packed)) if path else None


def _section(
    fields: Fields, root: Mapping[str, Any], key: str, known: Sequence[str]
) -> dict[str, Any]:
    section = fields.mapping(root.get(key), (key,))
    fields.known(section, known, (key,))
    return section


def _check_names(entries: Sequence[_Placed]) -> None:
    first: dict[str, _Placed] = {}
    for placed in entries:
        name = placed.entry.name
        if name in first:
            where = first[name].fields.origin.place(first[name].path)
            text = f"the name {shown(name)} is taken by {where}"
            placed.problem("name", "duplicate_name", text)
        first.setdefault(name, placed)


def _check_failbacks(entries: Sequence[_Placed]) -> None:
    known = {placed.entry.name: placed for placed in entries}
    names = tuple(known)
    for placed in entries:
        outbound: Outbound = placed.entry
        if not outbound.failback:
            if outbound.direct_failback_status:
                text = "without a failback these states go nowhere else"
                placed.problem("direct_failback_status", "no_failback", text, warning=True)
        elif outbound.failback == outbound.name:
            text = "an outbound cannot be its own failback"
            placed.problem("failback", "own_failback", text)
        elif outbound.failback not in known:
            near = placed.fields.report.nearest(outbound.failback, names)
            text = f"there is no outbound {shown(outbound.failback)}"
            text += f"; is {near} meant?" if near else ""
            placed.problem("failback", "unknown_failback", text)
        elif known[outbound.failback].entry.disable:
            text = f"the outbound {shown(outbound.failback)} is disabled"
            placed.problem("failback", "disabled_failback", text, warning=True)
    _check_circles(known)


def _check_circles(known: Mapping[str, _Placed]) -> None:
    """Report each cycle of failbacks once, at the outbound where it is first reached."""
    done: set[str] = set()
    for start in known:
        way: dict[str, None] = {}
        name = start
        while name in known and name not in done and name not in way:
            way[name] = None
            name = known[name].entry.failback
        if name in way:
            steps = [*way]
            circle = steps[steps.index(name) :]
            if len(circle) > 1:
                path = " -> ".join(shown(step) for step in (*circle[:8], name))
                text = f"failbacks lead in a circle: {path}"
                known[name].problem("failback", "failback_circle", text)
        done |= way.keys()

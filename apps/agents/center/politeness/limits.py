"""Limits of hosts: the defaults, and the rules for some hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from yardkit.addresses import is_blocked_ip, is_localhost


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings such as ``HOST_REQUESTS_PER_SECOND``. 0 is unlimited for the first two."""

    requests_per_second: float = 10.0
    concurrency: int = 8
    robots_cache_seconds: float = 3600.0
    held_limit: int = 10_000


@dataclass(frozen=True, slots=True)
class HostRuleLimits:
    """Limits of one rule for ``host``: a name, or ``*.example.com`` for all names below it.

    None leaves a limit to the defaults or, for ``obey_robots``, to the run.
    """

    host: str
    requests_per_second: float | None = None
    concurrency: int | None = None
    stopped: bool = False
    obey_robots: bool | None = None


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Limits in force for one host. ``explicit``: a rule exists for it."""

    requests_per_second: float
    concurrency: int
    stopped: bool = False
    obey_robots: bool | None = None
    explicit: bool = False


@dataclass(frozen=True, eq=False)
class HostRules:
    """Immutable set of rules; a change makes another object."""

    defaults: Defaults = field(default_factory=Defaults)
    exact: dict[str, HostRuleLimits] = field(default_factory=dict)
    below: dict[str, HostRuleLimits] = field(default_factory=dict)

    @classmethod
    def of(cls, defaults: Defaults, rules: Iterable[HostRuleLimits]) -> HostRules:
        """Index rules for looking up."""
        made = cls(defaults)
        for rule in rules:
            if rule.host.startswith("*."):
                made.below[rule.host[2:]] = rule
            else:
                made.exact[rule.host] = rule
        return made

    def find(self, host: str) -> HostRuleLimits | None:
        """Return the rule for ``host``: its own, else that of the nearest name above it."""
        found = self.exact.get(host)
        rest = host
        while found is None and "." in rest and self.below:
            rest = rest.partition(".")[2]
            found = self.below.get(rest)
        return found

    def limits(self, host: str) -> HostLimits:
        """Return the limits in force for ``host``."""
        rule = self.find(host)
        rate, concurrency = self.defaults.requests_per_second, self.defaults.concurrency
        if rule is None:
            return HostLimits(rate, concurrency)
        return HostLimits(
            rate if rule.requests_per_second is None else rule.requests_per_second,
            concurrency if rule.concurrency is None else rule.concurrency,
            rule.stopped,
            rule.obey_robots,
            explicit=True,
        )

    def passes(self, host: str, networks: Sequence[str]) -> bool:
        """Return whether requests to ``host`` need no limits at all.

        True for this machine itself, if the project of the run has opened it and no rule exists: a
        test or a service of one's own needs no politeness.
        """
        return not host or (is_own_machine(host, networks) and self.find(host) is None)


def is_own_machine(host: str, networks: Sequence[str]) -> bool:
    """Return whether ``host`` is a loopback address, or localhost, in one of ``networks``."""
    if is_localhost(host):
        addresses = ["127.0.0.1", "::1"]
    else:
        try:
            if not ipaddress.ip_address(host).is_loopback:
                return False
        except ValueError:
            return False
        addresses = [host]
    return any(is_blocked_ip(address, _parsed(networks)) is None for address in addresses)


def _parsed(networks: Sequence[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    parsed = []
    for text in networks:
        try:
            parsed.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            # The agents refuse it by name; here it only opens nothing.
            continue
    return parsed

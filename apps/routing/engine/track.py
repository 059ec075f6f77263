"""Compiled rule set: converters and selectors of the inbounds, and the matcher of the outbounds.

Routers and the web application use the same compiled form, so explanations agree with the actual
routing. It has no connections: the router creates inbounds and outbounds from ``rules``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.converters.chain import Chain
from apps.routing.engine.converters.registry import build_chain
from apps.routing.engine.items import Item, ItemError, read_item
from apps.routing.engine.life import Life
from apps.routing.engine.rules import Inbound, Outbound, Problem, RuleSet
from apps.routing.engine.selector import CompiledRules, SelectorError, compile_rules


class InvalidRules(ValueError):
    """Raised when rules cannot be compiled; ``problems`` has the errors with their positions."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems[:5]))
        self.problems = problems


class Malformed(ValueError):
    """Raised for a malformed message that can never be routed; ``code`` is machine-readable."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class CompiledInbound:
    """Compiled inbound: its converters, and the selectors for their output."""

    rule: Inbound
    chain: Chain
    selectors: CompiledRules

    def read(self, raw: bytes | str) -> Item:
        """Parse and convert an item. Raises ``Malformed`` if either fails."""
        try:
            item = read_item(raw)
        except ItemError as error:
            raise Malformed(error.code, str(error)) from None
        return self.convert(item)

    def convert(self, item: Item) -> Item:
        """Return a converted copy of the item. Raises ``Malformed``."""
        try:
            return self.chain.convert(item)
        except ConvertError as error:
            raise Malformed(error.code, f"{error.cls}: {error}") from None

    def accepts(self, item: Item) -> bool:
        """Return whether a converted item matches any selector, or there is no selector."""
        return not self.rule.selector or self.selectors.first(item) is not None


class Track:
    """Compiled version of a project's rules. Immutable and thread-safe."""

    def __init__(
        self,
        rules: RuleSet,
        version: int,
        entrances: dict[str, CompiledInbound],
        ways: CompiledRules,
    ) -> None:
        self.rules: Final = rules
        self.version: Final = version
        # By name, in the order of the rules, including disabled inbounds.
        self.entrances: Final = entrances
        self.ways: Final = ways
        self.outbounds: Final[dict[str, Outbound]] = {
            outbound.name: outbound for outbound in rules.outbounds
        }

    def life(self, full: Callable[[Outbound], bool] = lambda outbound: False) -> Life:
        """Create the decision logic; ``full`` returns whether an outbound is at its limit."""
        return Life(self.rules, self.ways.first, full)


def compile_track(rules: RuleSet, version: int = 0) -> Track:
    """Compile a rule set, keeping its order. Raises ``InvalidRules``."""
    problems: list[Problem] = []
    entrances = {}
    for inbound in rules.inbounds:
        chain, chain_problems = build_chain(inbound.convert)
        problems += [
            replace(problem, place=f"inbound {inbound.name}: {problem.place}")
            for problem in chain_problems
            if not problem.warning
        ]
        selectors = _compile("inbound", [(inbound.name, inbound.selector)], problems)
        if selectors is not None:
            entrances[inbound.name] = CompiledInbound(inbound, chain, selectors)
    ways = _compile(
        "outbound", [(outbound.name, outbound.selector) for outbound in rules.outbounds], problems
    )
    if problems or ways is None:
        raise InvalidRules(problems)
    return Track(rules, version, entrances, ways)


def _compile(
    what: str, rules: list[tuple[str, tuple[str, ...]]], problems: list[Problem]
) -> CompiledRules | None:
    try:
        return compile_rules(rules)
    except SelectorError as error:
        name = rules[error.rule or 0][0]
        place = f"{what} {name}: selector {(error.selector or 0) + 1}"
        problems.append(Problem(place, error.code, error.text, offset=error.offset))
        return None

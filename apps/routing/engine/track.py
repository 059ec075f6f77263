"""A rule set made ready: what an inbound takes, and which outbound an item goes to.

Routers and the web use the same one, so that what is explained is what happens. It holds no
connection: inbounds and outbounds are made from ``rules`` by the router.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.converters.chain import Chain
from apps.routing.engine.converters.registry import build_chain
from apps.routing.engine.items import Item, NoItem, read_item
from apps.routing.engine.life import Life
from apps.routing.engine.rules import Inbound, Outbound, Problem, RuleSet
from apps.routing.engine.selecting import CompiledRules, SelectorError, compile_rules


class BadRules(ValueError):
    """These rules cannot be run; ``problems`` says what is wrong, and where."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(each) for each in problems[:5]))
        self.problems = problems


class Poison(ValueError):
    """What an inbound has delivered can never be routed; ``code`` says why in a word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Entrance:
    """One inbound made ready: its converters, and the conditions on what comes out of them."""

    rule: Inbound
    chain: Chain
    selectors: CompiledRules

    def read(self, raw: bytes | str) -> Item:
        """The converted item of these bytes. Raises ``Poison``."""
        try:
            item = read_item(raw)
        except NoItem as error:
            raise Poison(error.code, str(error)) from None
        return self.convert(item)

    def convert(self, item: Item) -> Item:
        """The item after all converters; the one given stays as it is. Raises ``Poison``."""
        try:
            return self.chain.convert(item)
        except ConvertError as error:
            raise Poison(error.code, f"{error.cls}: {error}") from None

    def accepts(self, item: Item) -> bool:
        """Whether a converted item is for the rules: any condition holds, or there is none."""
        return not self.rule.selector or self.selectors.first(item) is not None


class Track:
    """One version of a project's rules, compiled. Threads may share it."""

    def __init__(
        self, rules: RuleSet, version: int, entrances: dict[str, Entrance], ways: CompiledRules
    ) -> None:
        self.rules: Final = rules
        self.version: Final = version
        # By name, in the order of the rules; disabled ones too.
        self.entrances: Final = entrances
        self.ways: Final = ways
        self.outbounds: Final[dict[str, Outbound]] = {each.name: each for each in rules.outbounds}

    def life(self, full: Callable[[Outbound], bool] = lambda outbound: False) -> Life:
        """What decides about its items; ``full`` says which outbound has no room."""
        return Life(self.rules, self.ways.first, full)


def lay(rules: RuleSet, version: int = 0) -> Track:
    """The track of these rules; the order is theirs. Raises ``BadRules``."""
    problems: list[Problem] = []
    entrances = {}
    for inbound in rules.inbounds:
        chain, found = build_chain(inbound.convert)
        problems += [
            replace(each, place=f"inbound {inbound.name}: {each.place}")
            for each in found
            if not each.warning
        ]
        selectors = _compile("inbound", [(inbound.name, inbound.selector)], problems)
        if selectors is not None:
            entrances[inbound.name] = Entrance(inbound, chain, selectors)
    ways = _compile("outbound", [(each.name, each.selector) for each in rules.outbounds], problems)
    if problems or ways is None:
        raise BadRules(problems)
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

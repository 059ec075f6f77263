"""bench routing: the rules of a project against simpleeval and against Python's own eval.

CPU time of this one process, the least disturbed of some rounds; both sides take turns.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from types import CodeType
from typing import Any

from apps.routing.engine.selector import (
    CompiledRules,
    Selector,
    compile_rules,
    compile_selector,
    forget_shapes,
)
from tools.benches.measuring import BenchFailed, conditions
from tools.benches.rules import SEED_SELECTORS, complete_items, make_items, make_rules

Rules = Sequence[tuple[str, Sequence[str]]]
Items = Sequence[Mapping[str, Any]]

ITEMS = 20_000
ROUNDS = 5
# The peer looks at so many selectors in a round, however many of them an item is held against.
PEER_SELECTORS = 100_000
SELECTOR_ITEMS = 5_000
# Outbounds at which the two sides are compared.
RATIO_AT = 100

# The time of an item at the largest number of outbounds, in that at the smallest.
LIMIT_GROWTH = 1.5
# The time of one selector, in that of eval() of its compiled code.
LIMIT_SELECTOR = 1.5
LIMIT_COMPILE_SECONDS = 1.0


def run(
    *, sizes: Sequence[int], items: int = ITEMS, scales: Sequence[int], peer: bool
) -> dict[str, Any]:
    """Route ``items`` items by as many outbounds as each of ``sizes`` says; the JSON object.

    Raises:
        BenchFailed: simpleeval is not installed, or the two sides answer differently.
    """
    before = conditions()
    # Items first, so that those of each size lie as close together in memory.
    made = [make_items(size, items) for size in sizes]
    cases = [_Case(size, mine) for size, mine in zip(sizes, made, strict=True)]
    # They are not the compiler's, and would be gone over by each of its collections.
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        for case in cases:
            case.compile()
    for _ in range(5 * ROUNDS):
        for case in cases:
            case.route()
    theirs = [_peer(case) for case in cases] if peer else None
    ours = [case.figures() for case in cases]
    growth = round(ours[-1]["us_per_item"] / ours[0]["us_per_item"], 2)
    selectors = _selectors()
    slowest = max(one["ratio"] for one in selectors)
    compiled = max(one["compile_seconds"] for one in ours)
    scaled = _scaled(cases[-1], scales)
    return {
        "bench": "routing",
        "items": items,
        "selectors_per_outbound": 5,
        "versions": {"simpleeval": version("simpleeval")} if peer else {},
        **before,
        "ours": {
            "growth_with_outbounds": growth,
            "peak_rss_mb": _peak_mb(),
            "cases": ours,
            "one_selector": selectors,
        },
        "peer": {"cases": theirs} if theirs else None,
        "ratio": _ratio(theirs) if theirs else None,
        "limit": {
            "growth_with_outbounds": LIMIT_GROWTH,
            "one_selector": LIMIT_SELECTOR,
            "compile_seconds": LIMIT_COMPILE_SECONDS,
        },
        "limit_ratio": round(
            max(growth / LIMIT_GROWTH, slowest / LIMIT_SELECTOR, compiled / LIMIT_COMPILE_SECONDS),
            2,
        ),
        "growth": {
            "steps": scaled,
            "cpu_ratio": round(scaled[-1]["us_per_item"] / scaled[0]["us_per_item"], 2),
        },
    }


class _Case:
    """As many outbounds, and items that fit one of them or, one in ten, none."""

    def __init__(self, outbounds: int, items: Items) -> None:
        self.rules: Rules = make_rules(outbounds)
        self.items = items
        self.compiled: CompiledRules = compile_rules(self.rules)
        self.seconds = self.compile_seconds = float("inf")

    def compile(self) -> None:
        """Once, with nothing left of before."""
        forget_shapes()
        seconds = _seconds(lambda: compile_rules(self.rules))
        self.compile_seconds = min(self.compile_seconds, seconds)

    def route(self) -> None:
        """Every item once."""
        self.seconds = min(self.seconds, _seconds(lambda: _route(self.compiled, self.items)))

    def figures(self) -> dict[str, Any]:
        each = self.seconds / len(self.items)
        return {
            "outbounds": len(self.rules),
            "us_per_item": round(1e6 * each, 2),
            "items_per_second": round(1 / each),
            "routed": sum(self.compiled.first(item) is not None for item in self.items),
            "compile_seconds": round(self.compile_seconds, 3),
        }


def _route(compiled: CompiledRules, items: Iterable[Mapping[str, Any]]) -> None:
    first = compiled.first
    for item in items:
        first(item)


def _scaled(case: _Case, scales: Sequence[int]) -> list[dict[str, Any]]:
    """The same items again and again: what one costs, and what is left in memory."""
    steps = []
    for scale in scales:
        seconds = min(
            sum(_seconds(lambda: _route(case.compiled, case.items)) for _ in range(scale))
            for _ in range(ROUNDS)
        )
        items = scale * len(case.items)
        steps.append(
            {
                "items": items,
                "us_per_item": round(1e6 * seconds / items, 2),
                "peak_rss_mb": _peak_mb(),
            }
        )
    return steps


def _peer(case: _Case) -> dict[str, Any]:
    """A loop over the same selectors, each parsed before, until the first that holds."""
    try:
        from simpleeval import EvalWithCompoundTypes
    except ImportError:
        raise BenchFailed("simpleeval is missing: make bench installs it") from None
    evaluator = EvalWithCompoundTypes(functions={"int": int})
    parsed = [
        (number, text, evaluator.parse(text))
        for number, (_, texts) in enumerate(case.rules)
        for text in texts
    ]
    items = case.items[: max(20, PEER_SELECTORS // len(parsed))]

    def first(item: Mapping[str, Any]) -> int | None:
        evaluator.names = _Keys(item)
        for number, text, tree in parsed:
            try:
                if evaluator.eval(text, previously_parsed=tree):
                    return number
            except Exception:  # noqa: BLE001, S112 - as ours: it does not match
                continue
        return None

    expected = [case.compiled.first(item) for item in items]
    best = float("inf")
    for _ in range(2):
        found: list[int | None] = []
        best = min(best, _seconds(lambda: found.extend(map(first, items))))  # noqa: B023 - at once
        if found != expected:
            raise BenchFailed("the two sides answer differently")
    return {
        "outbounds": len(case.rules),
        "items": len(items),
        "us_per_item": round(1e6 * best / len(items), 2),
        "items_per_second": round(len(items) / best, 1),
        "ratio": round(best / len(items) * len(case.items) / case.seconds, 1),
    }


class _Keys(dict[str, Any]):
    """The keys of an item as names; one that is not there is None, as for us."""

    def __missing__(self, key: str) -> None:
        if key == "int":
            raise KeyError(key)


def _ratio(theirs: Sequence[dict[str, Any]]) -> float:
    """How many times the peer's items in a second, at ``RATIO_AT`` outbounds or the most."""
    found = {one["outbounds"]: one["ratio"] for one in theirs}
    ratio: float = found.get(RATIO_AT, theirs[-1]["ratio"])
    return ratio


def _selectors() -> list[dict[str, Any]]:
    """Each selector of the seed alone, beside eval() of its compiled code."""
    items = complete_items(SELECTOR_ITEMS)
    found = []
    for text in SEED_SELECTORS:
        selector, code = compile_selector(text), compile(text, "<bench>", "eval")
        if _answers(selector, items) != _native(code, items):
            raise BenchFailed("the two sides answer differently")
        ours = native = float("inf")
        for _ in range(2 * ROUNDS):
            ours = min(ours, _seconds(lambda: _answers(selector, items)))  # noqa: B023 - at once
            native = min(native, _seconds(lambda: _native(code, items)))  # noqa: B023 - at once
        found.append(
            {
                "us": round(1e6 * ours / len(items), 3),
                "native_us": round(1e6 * native / len(items), 3),
                "ratio": round(ours / native, 2),
                "selector": text,
            }
        )
    return found


def _answers(selector: Selector, items: Items) -> list[bool]:
    matches = selector.matches
    return [matches(item) for item in items]


def _native(code: CodeType, items: Items) -> list[bool]:
    names = {"int": int, "__builtins__": {}}
    # The text is one of five constants of ours; this is what a selector must not be slower than.
    return [True if eval(code, names, item) else False for item in items]  # noqa: S307, SIM210


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

"""Rules that say how pages become records, as plain data; see docs/extraction-rules.md.

problems = check_rules(biz.rules)          # where, code, text, offset in the expression
rules = compile_rules(biz.rules)           # once a version
found = rules.extract(entity.rule, Page(url=..., status=200, headers=[...], body=b"..."))
found.failed, found.records, found.follow, found.problems
"""

from __future__ import annotations

from typing import Any

from apps.requeststore.extraction.page import Page
from apps.requeststore.extraction.problems import BadRules, PageProblem, Problem
from apps.requeststore.extraction.reading import read_rules
from apps.requeststore.extraction.rules import Extracted, Follow, Rule, RuleMap

__all__ = [
    "BadRules",
    "Extracted",
    "Follow",
    "Page",
    "PageProblem",
    "Problem",
    "Rule",
    "RuleMap",
    "check_rules",
    "compile_rules",
]


def check_rules(rules: Any, place: str = "rules") -> list[Problem]:
    """Everything that is wrong with a rule map; those that are no warnings forbid its use.

    ``place`` is where the map stands, such as ``bizzes.news.rules``. Raises nothing.
    """
    return read_rules(rules, place)[1]


def compile_rules(rules: Any) -> RuleMap:
    """The map for ``extract``. Raises ``BadRules``."""
    found, problems = read_rules(rules, "rules")
    wrong = [each for each in problems if not each.warning]
    if wrong:
        raise BadRules(wrong)
    return RuleMap(found)

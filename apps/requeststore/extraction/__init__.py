"""Extraction of records from pages by declarative rules; see docs/extraction-rules.md.

problems = check_rules(biz.rules)  # place, code, text, offset
rules = compile_rules(biz.rules)  # once for each version
found = rules.extract(entity.rule, page)
found.failed, found.records, found.follow, found.problems
"""

from __future__ import annotations

from typing import Any

from apps.requeststore.extraction.page import ResponsePage
from apps.requeststore.extraction.problems import InvalidExtractionRules, PageProblem, RuleProblem
from apps.requeststore.extraction.rule_compiler import read_rules
from apps.requeststore.extraction.rules import Extracted, ExtractionRule, Follow, RuleMap

__all__ = [
    "Extracted",
    "ExtractionRule",
    "Follow",
    "InvalidExtractionRules",
    "PageProblem",
    "ResponsePage",
    "RuleMap",
    "RuleProblem",
    "check_rules",
    "compile_rules",
]


def check_rules(rules: Any, place: str = "rules") -> list[RuleProblem]:
    """Return all problems of a rule map; those that are not warnings forbid its use.

    ``place``: of the map, such as ``bizzes.news.rules``. Raises nothing.
    """
    return read_rules(rules, place)[1]


def compile_rules(rules: Any) -> RuleMap:
    """Compile a rule map. Raises ``InvalidExtractionRules``."""
    compiled, problems = read_rules(rules, "rules")
    wrong = [problem for problem in problems if not problem.warning]
    if wrong:
        raise InvalidExtractionRules(wrong)
    return RuleMap(compiled)

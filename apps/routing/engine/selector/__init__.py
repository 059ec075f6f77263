"""Selector language: conditions on items, compiled and indexed by the values they require.

rules = compile_rules([("captcha", ["task_type == '破码' and province in ['GD', 'JS']"])])
rules.first({"task_type": "破码", "province": "GD"})  # 0
"""

from apps.routing.engine.selector.compiler import (
    CompiledRules,
    Selector,
    compile_rules,
    compile_selector,
    forget_shapes,
)
from apps.routing.engine.selector.errors import SelectorError
from apps.routing.engine.selector.evaluation import Explanation, PartExplanation, PartState
from apps.routing.engine.selector.language import FUNCTIONS, parse

__all__ = [
    "FUNCTIONS",
    "CompiledRules",
    "Explanation",
    "PartExplanation",
    "PartState",
    "Selector",
    "SelectorError",
    "compile_rules",
    "compile_selector",
    "forget_shapes",
    "parse",
]

"""Selectors: conditions on items, compiled to functions and indexed by the values they require.

    rules = compile_rules([("captcha", ["task_type == '破码' and province in ['GD', 'JS']"])])
    rules.first({"task_type": "破码", "province": "GD"})  # 0

The package is not named ``selectors`` because the standard library has a module of that name.
"""

from apps.routing.engine.selecting.compiling import (
    CompiledRules,
    RuleExplanation,
    Selector,
    compile_rules,
    compile_selector,
    forget_shapes,
)
from apps.routing.engine.selecting.errors import SelectorError
from apps.routing.engine.selecting.explaining import Explained, Explanation, State
from apps.routing.engine.selecting.language import FUNCTIONS, parse

__all__ = [
    "FUNCTIONS",
    "CompiledRules",
    "Explained",
    "Explanation",
    "RuleExplanation",
    "Selector",
    "SelectorError",
    "State",
    "compile_rules",
    "compile_selector",
    "forget_shapes",
    "parse",
]

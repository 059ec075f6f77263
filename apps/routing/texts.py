"""Translations of the engine's error messages, by error code.

The engine writes English messages with details such as names, limits and places, for logs and
programs too. Pages in other languages show the translation for the error code, followed by the
engine's message in brackets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from apps.routing.engine.rules import Problem

# By the code of a ``SelectorError``. Such a problem has an offset into the selector.
SELECTORS: Final[Mapping[str, str]] = {
    "arguments": _("wrong number of arguments for the function"),
    "attribute": _("use square brackets, not a dot, to access a part"),
    "bracket": _("unbalanced bracket"),
    "chain": _("in cannot be chained with other comparisons"),
    "character": _("this character is not allowed in a string"),
    "comma": _("missing comma"),
    "constant": _("the condition has the same result for every task"),
    "container": _("in needs a list or a string on its right"),
    "empty": _("the condition is empty"),
    "empty_selector": _("the condition is empty"),
    "escape": _("unsupported escape sequence in a string"),
    "function": _("unknown function, or wrong use of it"),
    "list": _("a list may contain only strings, numbers, True, False and None"),
    "name": _("this is not a valid key name"),
    "not_allowed": _("not supported in conditions"),
    "not_text": _("a condition must be a string"),
    "null_character": _("a condition cannot contain a NUL character"),
    "number": _("unsupported number"),
    "pattern": _("invalid regular expression"),
    "prefix": _("unsupported string prefix"),
    "sign": _("unsupported operator"),
    "subscript": _("only keys of the task can be indexed"),
    "syntax": _("syntax error"),
    "text": _("unterminated string"),
    "too_deep": _("the condition is nested too deeply"),
    "too_long": _("the condition is too long"),
    "too_slow": _("the condition is too expensive to evaluate"),
    "unseen_character": _("invisible character outside a string"),
    "word": _("unsupported keyword"),
}

# By the code of every other ``Problem`` of rules.
RULES: Final[Mapping[str, str]] = {
    "ambiguous_class": _("several packages have a class of this name"),
    "bad_character": _("a character that cannot be stored"),
    "bad_constant": _("a constant cannot be written as JSON"),
    "bad_key": _("this is not a valid key name"),
    "bad_name": _("this is not a valid name"),
    "bad_parameter": _("invalid parameter of the class"),
    "bad_url": _("the class cannot use this URL"),
    "bad_version": _("the data version is missing or invalid"),
    "broken_class": _("the class cannot be loaded"),
    "contradiction": _("two different values for the same key"),
    "control_character": _("the file contains a control character"),
    "disabled_failback": _("the failback is disabled"),
    "duplicate_key": _("duplicate key"),
    "duplicate_name": _("the name is already used"),
    "failback_circle": _("the failbacks form a cycle"),
    "failure_outside": _("the failure file is outside the allowed folders"),
    "file_lost": _("the file changed while it was read"),
    "include_circle": _("a file includes itself"),
    "include_missing": _("an included file cannot be read"),
    "include_outside": _("an included file is outside the folder of the main file"),
    "include_twice": _("a file is included twice"),
    "like_a_parameter": _("a constant looks like a misspelled parameter"),
    "main_file_only": _("this key is allowed only in the main file"),
    "merge_key": _("merge keys (<<) are not supported"),
    "misplaced": _("this key is not allowed here"),
    "misplaced_placeholder": _("this placeholder holds a password and is not allowed here"),
    "missing": _("missing value"),
    "missing_extra": _("a package that the class needs is not installed"),
    "missing_parameter": _("missing parameter of the class"),
    "name_without_quotes": _("the name needs quotes"),
    "newer_version": _("the data was written by a newer version"),
    "no_anchor": _("the alias refers to an unknown anchor"),
    "no_failback": _("statuses lead to a failback, but none is set"),
    "no_folder": _("there is no folder to include files from"),
    "not_a_file": _("this is not a file"),
    "not_installed": _("a package that the class needs is not installed"),
    "not_rules": _("this is not a rule set"),
    "not_utf8": _("the file is not UTF-8"),
    "not_yaml": _("invalid YAML"),
    "not_yaml_at_all": _("invalid YAML"),
    "not_yaml_file": _("the file is not a YAML file"),
    "out_of_range": _("the number is out of range"),
    "not_applied": _("this setting is stored but has no effect"),
    "own_failback": _("an outbound cannot be its own failback"),
    "queue_of_others": _("the queue or list belongs to the platform or to another project"),
    "reserved_key": _("this key cannot be a constant"),
    "reserved_name": _("the router sets this key itself"),
    "second_document": _("the file contains a second document"),
    "shadowed_name": _("a constant has the same name as a key of the task"),
    "shared_group": _("another inbound uses the same consumer group"),
    "tag": _("tags are not supported"),
    "threads_over_partitions": _("more threads than partitions"),
    "too_deep": _("nested too deeply"),
    "too_large": _("this is too large"),
    "too_long": _("the text is too long"),
    "server_not_allowed": _("rules may not open a server at this address"),
    "too_many_aliases": _("the file has too many aliases"),
    "too_many_digits": _("a number has too many digits"),
    "too_many_entries": _("too many entries"),
    "too_many_files": _("too many files"),
    "too_many_problems": _("more problems than are shown"),
    "too_many_values": _("too many values"),
    "unknown_class": _("unknown class"),
    "unknown_failback": _("unknown outbound"),
    "unknown_key": _("unknown key"),
    "unknown_parameter": _("unknown parameter of the class"),
    "unknown_placeholder": _("this placeholder has no value"),
    "unknown_value": _("not one of the allowed values"),
    "unreadable": _("the file cannot be read"),
    "wrong_parameter": _("invalid parameter of the class"),
    "wrong_type": _("the value has the wrong type"),
}

# By the code of a message that cannot be routed: ``ItemError``, ``ConvertError``, ``Malformed``.
ITEMS: Final[Mapping[str, str]] = {
    "bad_key": _("a key of the task is too long or not a string"),
    "bad_number": _("a number of the task is too large, infinite or NaN"),
    "bad_result": _("the converter did not return a task"),
    "bad_type": _("a value of the task cannot be encoded as JSON"),
    "converter_failed": _("the converter failed"),
    "defect": _("internal error of the router"),
    "duplicate_key": _("duplicate key"),
    "empty": _("the message is empty"),
    "lone_surrogate": _("a string contains half of a surrogate pair"),
    "no_dict": _("the converter did not return a task"),
    "no_time": _("a value is not a valid time"),
    "not_a_dict": _("a task must be a JSON object"),
    "not_json": _("invalid JSON"),
    "not_utf8": _("the text is not UTF-8"),
    "null_character": _("a string contains a NUL character"),
    "too_deep": _("the task is nested too deeply"),
    "too_large": _("the task is too large"),
    "too_many": _("too many values"),
}


def translated(texts: Mapping[str, str], code: str, text: str) -> str:
    """Return ``text``, in other languages preceded by the translation for its ``code``."""
    words = texts.get(code, "")
    translated = gettext(words) if words else ""
    return text if translated == words else f"{translated} ({text})"


def translated_problem(problem: Problem) -> Problem:
    """Return a copy of the problem with its text in the active language."""
    texts = RULES if problem.offset is None else SELECTORS
    return replace(problem, text=translated(texts, problem.code, problem.text))

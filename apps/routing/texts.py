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
    "arguments": _("the function takes another number of values"),
    "attribute": _("a part is named in square brackets, not after a dot"),
    "bracket": _("a bracket does not match"),
    "chain": _("in cannot be chained with other comparisons"),
    "character": _("this character cannot stand in a text"),
    "comma": _("a comma is missing"),
    "constant": _("this condition is always the same"),
    "container": _("in looks into a list or a text"),
    "empty": _("the condition is empty"),
    "empty_selector": _("the condition is empty"),
    "escape": _("this escape cannot stand in a text"),
    "function": _("there is no such function, or it is used wrongly"),
    "list": _("a list holds texts, numbers, True, False and None only"),
    "name": _("this is not the name of a key"),
    "not_allowed": _("this is not part of the language of conditions"),
    "not_text": _("a condition is a text"),
    "null_character": _("a condition cannot hold the character 0"),
    "number": _("this number cannot be used"),
    "pattern": _("this is not a regular expression"),
    "prefix": _("this letter cannot stand before a text"),
    "sign": _("this sign is not part of the language of conditions"),
    "subscript": _("only keys of the item have parts"),
    "syntax": _("this cannot be understood"),
    "text": _("the text has no end"),
    "too_deep": _("the condition is nested too deep"),
    "too_long": _("the condition is too long"),
    "too_slow": _("the condition searches too much"),
    "unseen_character": _("an invisible character stands outside a text"),
    "word": _("this word is not part of the language of conditions"),
}

# By the code of every other ``Problem`` of rules.
RULES: Final[Mapping[str, str]] = {
    "ambiguous_class": _("several packages have a class of this name"),
    "bad_character": _("a character that cannot be stored"),
    "bad_constant": _("a constant cannot be written as JSON"),
    "bad_key": _("this is not a name of a key"),
    "bad_name": _("this is not a name"),
    "bad_parameter": _("a parameter of the class is wrong"),
    "bad_url": _("this is not an address that the class can use"),
    "bad_version": _("the version of the data is missing or wrong"),
    "broken_class": _("the class cannot be loaded"),
    "contradiction": _("a value is given twice and differs"),
    "control_character": _("the file holds a control character"),
    "disabled_failback": _("the failback is disabled"),
    "duplicate_key": _("a key is there twice"),
    "duplicate_name": _("the name is already used"),
    "failback_circle": _("the failbacks lead in a circle"),
    "failure_outside": _("the failure file is outside the folders that are allowed"),
    "file_lost": _("the file has changed while it was read"),
    "include_circle": _("a file includes itself"),
    "include_missing": _("an included file cannot be read"),
    "include_outside": _("an included file is outside the folder of the main file"),
    "include_twice": _("a file is included twice"),
    "like_a_parameter": _("a constant looks like a misspelled parameter"),
    "main_file_only": _("only the main file may have this key"),
    "merge_key": _("merge keys (<<) are not understood"),
    "misplaced": _("this key stands in the wrong place"),
    "misplaced_placeholder": _("this placeholder holds a password and cannot stand here"),
    "missing": _("a value is missing"),
    "missing_extra": _("a package that the class needs is not installed"),
    "missing_parameter": _("a parameter of the class is missing"),
    "name_without_quotes": _("a name needs quotes"),
    "newer_version": _("the data was written by a newer version"),
    "no_anchor": _("an alias has no anchor"),
    "no_failback": _("statuses lead to a failback, and there is none"),
    "no_folder": _("there is no folder to include files from"),
    "not_a_file": _("this is not a file"),
    "not_installed": _("a package that the class needs is not installed"),
    "not_rules": _("this is not a set of rules"),
    "not_utf8": _("the file is not UTF-8"),
    "not_yaml": _("this cannot be read as YAML"),
    "not_yaml_at_all": _("this cannot be read as YAML"),
    "not_yaml_file": _("the file is not one of YAML"),
    "out_of_range": _("the number is out of range"),
    "not_applied": _("this is kept, but nothing goes by it"),
    "own_failback": _("an outbound cannot be its own failback"),
    "queue_of_others": _("the queue or list belongs to the platform or to another project"),
    "reserved_key": _("this key cannot be a constant"),
    "reserved_name": _("the router sets this key itself"),
    "second_document": _("the file holds a second document"),
    "shadowed_name": _("a constant hides a key of the item"),
    "shared_group": _("another inbound takes part in the same group"),
    "tag": _("tags are not understood"),
    "threads_over_partitions": _("there are more threads than partitions"),
    "too_deep": _("this is nested too deep"),
    "too_large": _("this is too large"),
    "too_long": _("the text is too long"),
    "server_not_allowed": _("rules may not listen there"),
    "too_many_aliases": _("the file has too many aliases"),
    "too_many_digits": _("a number has too many digits"),
    "too_many_entries": _("there are too many entries"),
    "too_many_files": _("there are too many files"),
    "too_many_problems": _("there are more problems than are shown"),
    "too_many_values": _("there are too many values"),
    "unknown_class": _("there is no such class"),
    "unknown_failback": _("there is no outbound of this name"),
    "unknown_key": _("there is no such key"),
    "unknown_parameter": _("the class has no such parameter"),
    "unknown_placeholder": _("this placeholder has no value"),
    "unknown_value": _("this is none of the possible values"),
    "unreadable": _("the file cannot be read"),
    "wrong_parameter": _("a parameter of the class is wrong"),
    "wrong_type": _("the value is of the wrong kind"),
}

# By the code of a message that cannot be routed: ``NoItem``, ``ConvertError``, ``Poison``.
ITEMS: Final[Mapping[str, str]] = {
    "bad_key": _("a key of the item is too long or is not a text"),
    "bad_number": _("a number of the item is too large or is none"),
    "bad_result": _("the converter did not give an item"),
    "bad_type": _("a value of the item cannot be written as JSON"),
    "converter_failed": _("the converter failed"),
    "defect": _("the router itself has made a mistake"),
    "duplicate_key": _("a key is there twice"),
    "empty": _("there is no item"),
    "lone_surrogate": _("a text holds half a character"),
    "no_dict": _("the converter did not give an item"),
    "no_time": _("a value is not a time"),
    "not_a_dict": _("an item is a JSON object"),
    "not_json": _("this cannot be read as JSON"),
    "not_utf8": _("the text is not UTF-8"),
    "null_character": _("a text holds the character 0"),
    "too_deep": _("the item is nested too deep"),
    "too_large": _("the item is too large"),
    "too_many": _("there are too many values"),
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

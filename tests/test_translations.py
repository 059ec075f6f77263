"""Every text people see exists in Chinese: none missing, none fuzzy, no placeholder lost.

The texts are collected here in plain Python, because a stock Debian has no gettext.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import unfold
from django.utils.translation import gettext, override
from django.utils.translation.template import templatize

from tools.compile_messages import read_po
from tools.requirement_marks import ROOT

CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
THEME = ROOT / "locale" / "theme" / "zh_Hans" / "LC_MESSAGES" / "django.po"
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}")
MARKUP = re.compile(r"</?\w+|\"[^\"]*\"")

# How many leading arguments of a call are texts; a context comes before them in p-functions.
TEXTS = {"_": 1, "gettext": 1, "gettext_lazy": 1, "gettext_noop": 1}
PLURALS = {"ngettext": 2, "ngettext_lazy": 2}
CONTEXTS = {"pgettext": 1, "pgettext_lazy": 1}
CALL = re.compile(r"\b(?:_|n?gettext|pgettext)\(")


def texts_of_python(source: str) -> Iterator[str]:
    """Keys as in a catalogue: text, context + \\x04 + text, text + \\0 + plural."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        words = [each.value for each in node.args if isinstance(each, ast.Constant)]
        if name in TEXTS and words[:1] and isinstance(words[0], str):
            yield words[0]
        elif name in PLURALS and len(words) >= 2:
            yield f"{words[0]}\0{words[1]}"
        elif name in CONTEXTS and len(words) >= 2:
            yield f"{words[0]}\x04{words[1]}"


def texts_of_template(path: Path) -> Iterator[str]:
    """The same of a template, by way of what Django gives to xgettext."""
    code = templatize(path.read_text(encoding="utf-8"), origin=str(path))
    for match in CALL.finditer(code):
        yield from texts_of_python(_call_at(code, match.start()))


def _call_at(code: str, start: int) -> str:
    """The call that starts there, up to its closing bracket outside any string."""
    for end in range(start, len(code)):
        if code[end] == ")":
            candidate = code[start : end + 1]
            try:
                ast.parse(candidate)
            except SyntaxError:
                continue
            return candidate
    raise AssertionError(f"no end of {code[start : start + 80]!r}")


def own_texts() -> dict[str, Path]:
    """Every text of this project, and a file that has it."""
    found: dict[str, Path] = {}
    for folder in ("apps", "platform/crawlyard"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found |= dict.fromkeys(texts_of_python(path.read_text(encoding="utf-8")), path)
    for path in sorted((ROOT / "templates").rglob("*.html")):
        found |= dict.fromkeys(texts_of_template(path), path)
    return found


def theme_texts() -> set[str]:
    """Every text of the admin theme."""
    root = Path(unfold.__file__).parent
    found: set[str] = set()
    for path in root.rglob("*.html"):
        found |= set(texts_of_template(path))
    for path in root.rglob("*.py"):
        found |= set(texts_of_python(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.slow("4 s")
def test_no_text_is_missing_or_fuzzy() -> None:
    # read_po leaves out what is fuzzy or empty, as gettext does.
    translated = read_po(CATALOGUE)
    missing = {
        text: str(path.relative_to(ROOT))
        for text, path in own_texts().items()
        if text not in translated
    }
    assert not missing, "run make messages and translate these"
    assert "fuzzy" not in CATALOGUE.read_text(encoding="utf-8")


@pytest.mark.slow("5 s")
def test_gettext_is_imported_under_its_own_name_or_underscore() -> None:
    """The collector above, and Django's makemessages, find calls by these names alone."""
    known = {*TEXTS, *PLURALS, *CONTEXTS}
    aliases = [
        f"{path.relative_to(ROOT)}:{node.lineno} {alias.name} as {alias.asname}"
        for folder in ("apps", "platform")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if "gettext" in alias.name
        if alias.name not in known
        or alias.asname not in (None, "_" if alias.name in TEXTS else None)
    ]
    assert not aliases


@pytest.mark.slow("10 s")
def test_no_translation_is_left_of_a_text_that_is_gone() -> None:
    gone = set(read_po(CATALOGUE)) - set(own_texts()) - {""}
    assert not gone, "run make messages"


@pytest.mark.parametrize("path", [CATALOGUE, THEME], ids=["own", "theme"])
def test_placeholders_and_markup_survive(path: Path) -> None:
    wrong = []
    for text, translation in read_po(path).items():
        if not text:
            continue
        # Of a plural both forms are asked for; Chinese has one.
        original = text.split("\x04")[-1].split("\0")[-1]
        for pattern in (PLACEHOLDER, MARKUP) if "<" in original else (PLACEHOLDER,):
            if sorted(pattern.findall(original)) != sorted(pattern.findall(translation)):
                wrong.append((original, translation))
    assert not wrong


def test_the_theme_still_has_what_is_translated_for_it() -> None:
    gone = set(read_po(THEME)) - theme_texts() - {""}
    assert not gone, "the theme no longer has these"


def test_chinese_arrives_at_the_person() -> None:
    with override("zh-hans"):
        assert gettext("Needs attention") == "需要处理"
        assert gettext("Type to search") == "输入以搜索"
        # Django's own texts stay.
        assert gettext("Log in") == "登录"

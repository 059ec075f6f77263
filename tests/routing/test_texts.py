"""Every error code of the engine has a translatable text."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.utils import translation
from django.utils.translation import trans_real

from apps.configcenter.services import Unreadable
from apps.routing import texts
from apps.routing.admin import item_texts
from apps.routing.admin.item_texts import why
from apps.routing.engine.outcomes import TEXTS, Reason
from apps.routing.engine.rules import Problem
from apps.routing.engine.selector import scanner
from apps.routing.engine.steps import Step, StepKind
from apps.routing.services.configuration import RoutingKind
from apps.routing.texts import ITEMS, RULES, SELECTORS, translated, translated_problem
from tools.requirement_marks import ROOT

ENGINE = ROOT / "apps" / "routing" / "engine"
YAML = ROOT / "platform" / "yardkit" / "yaml_reader.py"
ROUTING = ROOT / "apps" / "routing"

# Who makes a refusal: by the folder or file, the name that is called, and which argument the code
# is. A code is written there, or handed on by one of the words below.
MAKERS: list[tuple[str, Mapping[str, str], dict[str, int]]] = [
    ("selector", SELECTORS, {"SelectorError": 0, "_refuse": 0}),
    ("files", RULES, {"problem": 1, "Problem": 1, "FileRefused": 0, "_add": 2}),
    ("inbounds", RULES, {"Problem": 1, "Finding": 0}),
    ("outbounds", RULES, {"Problem": 1, "_problem": 1, "ParameterError": 1, "UnknownOutbound": 0}),
    ("converters", RULES, {"Problem": 1, "_Invalid": 0}),
    ("converters", ITEMS, {"ConvertError": 0, "_failed": 2}),
    ("messages.py", RULES, {"Problem": 1}),
    ("items.py", ITEMS, {"ItemError": 0}),
    ("submissions.py", ITEMS, {"SubmissionError": 1}),
    ("track.py", ITEMS, {"Malformed": 0}),
    ("../daemon", ITEMS, {"Malformed": 0}),
    ("../placeholders.py", RULES, {"Problem": 1}),
    ("../services", RULES, {"Problem": 1}),
]
HANDED_ON = re.compile(r"code|\w+\.code")


def detail_text(reason: str, detail: str) -> str:
    """Return the detail that a page shows, or the reason if there is none."""
    said, more = why(reason, detail)
    return more or said


def codes_in(where: str, makers: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Return each literal error code in a source file, with its line."""
    path = (ENGINE / where).resolve()
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name not in makers or len(node.args) <= makers[name]:
                continue
            code = node.args[makers[name]]
            for one in [code.body, code.orelse] if isinstance(code, ast.IfExp) else [code]:
                place = f"{file.name}:{node.lineno}"
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value, place
                else:
                    said = ast.unparse(one)
                    assert HANDED_ON.fullmatch(said), f"{place}: which code is {said}?"


@pytest.mark.parametrize(
    ("where", "known", "makers"), MAKERS, ids=[f"{each[0]}-{min(each[2])}" for each in MAKERS]
)
def test_every_code_of_the_engine_has_words(
    where: str, known: Mapping[str, str], makers: dict[str, int]
) -> None:
    found = dict(codes_in(where, makers))
    # It comes with an offset, as what is wrong inside a selector does.
    assert set(found) - set(known) - {"empty_selector"} == set(), found
    if where != "track.py":
        assert found


def test_codes_that_are_kept_in_tables_have_words_too() -> None:
    assert {code for code, _ in scanner._INSTEAD.values()} <= SELECTORS.keys()
    yaml = set(re.findall(r'YamlError\([^,()]+, "(\w+)"', YAML.read_text("utf-8")))
    assert len(yaml) > 10
    assert yaml <= RULES.keys()


@pytest.mark.slow("1 s")
def test_no_file_of_the_engine_refuses_unseen() -> None:
    """Every file that creates such errors is in the list above."""
    seen = {(ENGINE / where).resolve() for where, _, _ in MAKERS}
    makers = {"Problem", "SelectorError", "ItemError", "ConvertError", "Malformed"}
    # They hand on what others have found.
    handing = {"data.py", "dry_run.py"}
    for file in ROUTING.rglob("*.py"):
        calls = {
            getattr(node.func, "id", getattr(node.func, "attr", ""))
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Call)
        }
        if calls & makers and file.name not in handing:
            assert seen & {file, *file.parents}, file


@pytest.mark.slow("1 s")
def test_no_words_are_left_over() -> None:
    """Texts of error codes that no longer exist must be removed."""
    used: dict[int, set[str]] = {}
    for where, known, makers in MAKERS:
        used.setdefault(id(known), set()).update(code for code, _ in codes_in(where, makers))
    tables = {code for code, _ in scanner._INSTEAD.values()} | {"empty_selector"}
    assert SELECTORS.keys() - used[id(SELECTORS)] == tables - used[id(SELECTORS)]
    yaml = set(re.findall(r'YamlError\([^,()]+, "(\w+)"', YAML.read_text("utf-8")))
    assert RULES.keys() - used[id(RULES)] - yaml == set()
    assert ITEMS.keys() - used[id(ITEMS)] == set()


# --- shown ----------------------------------------------------------------------------------------


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small message catalogue, so that the tests do not depend on the real translation."""

    class Catalogue(gettext.NullTranslations):
        def gettext(self, message: str) -> str:
            known = {
                texts.RULES["unknown_class"]: "没有这个类",
                texts.SELECTORS["sign"]: "条件语言里没有这个",
                texts.ITEMS["not_json"]: "读不出 JSON",
                TEXTS[Reason.RETRY_LIMITS]: "状态 %(status)s,%(outbound)s 不再重试。",
            }
            return known.get(message, message)

    monkeypatch.setitem(vars(trans_real)["_translations"], "zh-hans", Catalogue())
    with translation.override("zh-hans"):
        yield


def data(**said: Any) -> dict[str, Any]:
    outbound = {"name": "o", "selector": ["a"], "class": "nowhere.Class"} | said
    return {"version": 1, "needs": 1, "project": "p", "outbound": [outbound]}


def problems_of(**said: Any) -> list[str]:
    return [each.text for each in RoutingKind().check(data(**said)) if not each.warning]


def test_in_english_the_engine_speaks() -> None:
    (text,) = problems_of()
    assert text.startswith("there is no outbound class 'nowhere.Class'")


def test_in_another_language_its_words_come_first(chinese: None) -> None:
    (text,) = problems_of()
    assert text.startswith("没有这个类 (there is no outbound class 'nowhere.Class'")
    (text,) = problems_of(**{"class": "redis_queue.RedisListOutbound", "selector": ["a | b"]})
    assert text.startswith("条件语言里没有这个 (")


def test_a_selector_has_the_words_of_its_own_codes(chinese: None) -> None:
    problem = Problem("x", "sign", "the character | is not supported", offset=3)
    assert (
        translated_problem(problem).text == "条件语言里没有这个 (the character | is not supported)"
    )
    assert translated_problem(problem).offset == 3


def test_what_has_no_words_or_no_translation_is_told_as_it_is(chinese: None) -> None:
    assert translated(RULES, "of_a_plug_in", "it is Tuesday") == "it is Tuesday"
    assert translated(RULES, "missing", "name is needed") == "name is needed"


def test_a_file_is_refused_in_the_same_words(chinese: None) -> None:
    raw = b"project: p\ninbound:\n- {name: i, class: no.Where}\n"
    with pytest.raises(Unreadable, match="没有这个类"):
        RoutingKind().read(raw)


# --- items ----------------------------------------------------------------------------------------


def test_why_an_item_stands_where_it_stands_is_told_in_the_same_way(chinese: None) -> None:
    poison = detail_text("poison", "not_json: this is no JSON: line 1")
    assert poison == "读不出 JSON (this is no JSON: line 1)"
    kept = TEXTS[Reason.RETRY_LIMITS] % {"outbound": "慢 a.*", "status": "1101"}
    assert detail_text("retry_limits", kept) == "状态 1101,慢 a.* 不再重试。"
    (step,) = item_texts.history_rows(
        [Step(0, StepKind.ENDED, "", "poison not_json this is no JSON")]
    )
    assert step.detail.endswith(": 读不出 JSON (this is no JSON)")


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        ("retry_limits", "The task failed with status"),
        ("target_away", "redis://h:6379/0 does not answer"),
        ("poison", "of_a_plug_in: it is Tuesday"),
        ("poison", ""),
        ("", "anything"),
    ],
)
def test_what_is_no_sentence_of_the_engine_stays_as_it_is(
    chinese: None, reason: str, detail: str
) -> None:
    assert why(reason, detail)[1] == detail


@pytest.mark.parametrize("reason", [each for each in TEXTS if each is not Reason.POISON])
def test_every_sentence_is_read_back(reason: Reason) -> None:
    kept = TEXTS[reason] % {"outbound": "an outbound", "status": "1101"}
    with translation.override("en"):
        assert why(reason, kept) == (kept, "")


def test_what_the_target_said_stands_behind_the_sentence() -> None:
    with translation.override("en"):
        found = why("refused", "an outbound rejected the task. it is too large")
    assert found == ("an outbound rejected the task.", "it is too large")

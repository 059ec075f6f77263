"""Converter classes by name: built-in, of an installed package, and unknown."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.converters.chain import Chain
from apps.routing.engine.converters.registry import BUILT_IN, GROUP, build_chain, known_classes
from apps.routing.engine.items import Item
from apps.routing.engine.rules import Convert
from tools.requirement_marks import ROOT

SAMPLE = ROOT / "docs" / "examples" / "crawlyard-ic"
SEED_CHAIN = (
    "logstash.RemoveBuildinKeys",
    "ic.ExtractTaskParams",
    "ic.CaptchaExtraItem",
    "ic.ChangeSearchKey",
    "ic.ParseSearchinfoItems",
    "ic.ParseNoticeItem",
)


def install(site: Path, name: str, points: dict[str, str]) -> None:
    """Create the metadata in ``site`` that pip writes for these entry points."""
    folder = site / f"{name}-1.0.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    lines = [f"{key} = {value}" for key, value in points.items()]
    (folder / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    loaded = set(sys.modules)
    yield folder
    for name in set(sys.modules) - loaded:
        if name.split(".")[0] in ("crawlyard_ic", "strange"):
            del sys.modules[name]


@pytest.fixture
def sample(site: Path) -> Path:
    """The sample plug-in, installed with the entry points of its pyproject.toml."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install(site, "crawlyard_ic", project["entry-points"][GROUP])
    shutil.copytree(
        SAMPLE / "src" / "crawlyard_ic",
        site / "crawlyard_ic",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return site


def chain_of(*classes: str, **init: Any) -> Chain:
    """Build a chain of these classes, the last with ``init``."""
    converts = [Convert(cls) for cls in classes[:-1]] + [Convert(classes[-1], init)]
    chain, problems = build_chain(converts)
    assert problems == []
    return chain


def problem(cls: str, **init: Any) -> tuple[str, str]:
    """Return code and text of the entry's problem, which must name its place."""
    entry = Convert(cls, init, "a.yml:7")
    chain, problems = build_chain([Convert("common.ExtractMetadata"), entry])
    (found,) = problems
    assert found.place == "a.yml:7"
    assert not found.warning
    assert len(chain) == 1
    return found.code, found.text


# --- ours -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "near"),
    [
        ("common.ExtractTaskParam", "common.ExtractTaskParams"),
        ("common.extract_metadata", "common.ExtractMetadata"),
        ("logstash.RemoveBuiltinKeys", "logstash.RemoveBuildinKeys"),
        ("ExtractMetadata", "common.ExtractMetadata"),
    ],
)
def test_a_class_that_is_not_there_names_the_nearest(cls: str, near: str) -> None:
    code, text = problem(cls)
    assert code == "unknown_class"
    assert repr(cls) in text
    assert near in text


def test_a_class_like_no_other_names_all() -> None:
    code, text = problem("zzz")
    assert code == "unknown_class"
    assert all(name in text for name in BUILT_IN)


def test_an_entry_without_a_place_is_counted() -> None:
    _, problems = build_chain([Convert("common.ExtractMetadata"), Convert("x")])
    assert problems[0].place == "convert[1]"


@pytest.mark.parametrize(
    ("cls", "init", "word"),
    [
        ("logstash.RemoveBuildinKeys", {"allso": ["a"]}, "allso"),
        ("logstash.RemoveBuildinKeys", {"also": "type"}, "array"),
        ("logstash.RemoveBuildinKeys", {"also": ["a"], "keep": ["a"]}, "both"),
        ("common.ExtractTaskParams", {"existing": "both"}, "existing"),
        ("common.ExtractTaskParams", {"keep_dict": "yes"}, "keep_dict"),
        ("common.Rename", {}, "keys"),
        ("common.Rename", {"keys": {}}, "keys"),
        ("common.Rename", {"keys": {"a": 1}}, "keys"),
        ("common.Rename", {"keys": {"a": "c", "b": "c"}}, "'c'"),
        ("common.Copy", {"keys": {"a": "c", "b": "c"}}, "'c'"),
        ("common.Set", {"values": {"a": float("nan")}}, "nan"),
        ("common.Set", {"values": {"a": (1,)}}, "tuple"),
        ("common.Delete", {"keys": []}, "keys"),
        ("common.Delete", {"keys": "a"}, "keys"),
        ("common.ParseJson", {"keys": ["a"], "wrong": "x"}, "wrong"),
        ("common.ParseTime", {"keys": ["a"], "zone": "Mars/Base"}, "Mars/Base"),
        ("common.ParseTime", {"keys": ["a"], "zone": "../../etc/passwd"}, "zone"),
        ("common.ParseTime", {"keys": ["a"], "formats": ["%Q"]}, "%Q"),
        ("common.ParseTime", {"keys": ["a"], "formats": ["%Y %"]}, "%Y %"),
        ("common.ParseTime", {"keys": ["a"], "formats": ["%Y %Y"]}, "%Y %Y"),
        ("common.ParseTime", {"keys": ["a"], "formats": ["year"]}, "directive"),
        ("common.ParseTime", {"keys": ["a"], "to": "days"}, "to"),
    ],
    ids=repr,
)
def test_a_parameter_that_is_wrong_is_found_when_the_rules_are_read(
    cls: str, init: dict[str, Any], word: str
) -> None:
    code, text = problem(cls, **init)
    assert code == "bad_parameter"
    assert text.startswith(f"{cls}: ")
    assert word in text


def test_the_text_of_a_problem_names_the_parameters() -> None:
    assert "its parameters: also, keep" in problem("logstash.RemoveBuildinKeys", x=1)[1]


# --- chains ---------------------------------------------------------------------------------------


def test_a_chain_without_steps_changes_nothing() -> None:
    item = {"a": 1}
    assert Chain().convert(item) == item
    assert Chain().explain(item).item == item
    assert Chain().explain(item).error is None


def test_a_chain_tells_what_each_step_has_changed() -> None:
    chain, _ = build_chain(
        [
            Convert("common.Rename", {"keys": {"a": "b"}}, "m.yml:3"),
            Convert("common.Set", {"values": {"b": True, "c": 1}}, "m.yml:5"),
            Convert("common.Delete", {"keys": ["x"]}, "m.yml:8"),
        ]
    )
    explained = chain.explain({"a": 1, "c": 1})
    assert explained.item == {"b": True, "c": 1}
    first, second, third = explained.steps
    assert (first.cls, first.place) == ("common.Rename", "m.yml:3")
    assert (first.added, first.removed, first.changed) == ({"b": 1}, {"a": 1}, {})
    # 1 and true are equal for Python, and not the same in JSON.
    assert (second.added, second.removed, second.changed) == ({}, {}, {"b": (1, True)})
    assert (third.added, third.removed, third.changed) == ({}, {}, {})


def test_a_chain_tells_which_step_has_failed() -> None:
    chain, _ = build_chain(
        [
            Convert("common.Set", {"values": {"b": "{"}}),
            Convert("common.ParseJson", {"keys": ["b"]}, "m.yml:5"),
            Convert("common.Delete", {"keys": ["x"]}),
        ]
    )
    with pytest.raises(ConvertError) as caught:
        chain.convert({})
    assert (caught.value.step, caught.value.cls) == (1, "common.ParseJson")
    explained = chain.explain({})
    assert explained.item is None
    assert [step.error is None for step in explained.steps] == [True, False]
    assert explained.error is not None
    assert explained.error.code == "not_json"


# --- those of other packages ----------------------------------------------------------------------


@pytest.mark.covers("S2.22")
def test_the_seeds_own_chain_runs_with_the_sample_plug_in(sample: Path) -> None:
    assert set(SEED_CHAIN) <= set(known_classes())
    item: Item = {
        "@version": "1",
        "task_result": 1101,
        "province": "",
        "task_params": '{"company_name": "楚江冻库", "credit_no": "92430124", "province": "HN",'
        ' "search_key": "92430124", "task_result": 1}',
        "extra_item": {"search_id": "s1", "noise": 1},
        "searchinfo_items": [
            {"company_name": "x", "detail_url": "v"},
            {"company_name": "楚江冻库", "detail_url": "u"},
        ],
        "notice_item": '{"title": "t", "date": "2021-10-22"}',
    }
    chain, problems = build_chain(
        [Convert(cls, {"when": [1101]} if "Change" in cls else {}) for cls in SEED_CHAIN]
    )
    assert problems == []
    assert chain.convert(item) == {
        "task_result": 1101,
        "province": "HN",
        "company_name": "楚江冻库",
        "credit_no": "92430124",
        # The number has found nothing, so the name is next.
        "search_key": "楚江冻库",
        "search_id": "s1",
        "searchinfo_count": 2,
        "detail_url": "u",
        "notice_title": "t",
        "notice_date": "2021-10-22",
    }
    assert item["task_params"].startswith("{"), "the caller's dict is as it was"


def test_the_sample_refuses_what_it_cannot_read(sample: Path) -> None:
    with pytest.raises(ConvertError) as caught:
        chain_of("ic.ParseNoticeItem").convert({"notice_item": [1]})
    assert caught.value.code == "wrong_type"
    assert problem("ic.ChangeSearchKey", when="1101")[0] == "bad_parameter"
    code, text = problem("ic.ChangeSearchKey", whenn=[1])
    assert code == "bad_parameter"
    assert "its parameters: order, when" in text
    assert "ic.ParseNoticeItem" in problem("ic.ParseNoticeItems")[1]


def test_the_readme_of_the_sample_names_its_classes() -> None:
    readme = (SAMPLE / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["entry-points"][GROUP]) == {c for c in SEED_CHAIN if c.startswith("ic.")}
    assert all(f"`{name}`" in readme for name in project["entry-points"][GROUP])


STRANGE = """
class Raises:
    def convert(self, item):
        raise KeyError("a")

class Grabs:
    def convert(self, item):
        item["inside"]["list"].append(1)
        item["inside"]["new"] = item.pop("a")
        return item

class Returns:
    def __init__(self, value):
        self.value = value
    def convert(self, item):
        return self.value

class Loops:
    def convert(self, item):
        return self.convert(item)

class MadeWrongly:
    def __init__(self):
        raise RuntimeError("no")

class NoMethod:
    pass

text = "no class"
"""


@pytest.fixture
def strange(site: Path) -> Path:
    """Plug-in whose converters all fail in different ways."""
    (site / "strange.py").write_text(STRANGE)
    words = ("Raises", "Grabs", "Returns", "Loops", "MadeWrongly", "NoMethod", "text", "Missing")
    points = {f"s.{word}": f"strange:{word}" for word in words}
    install(site, "strange", points | {"s.Gone": "nowhere:X", "common.Set": "strange:Raises"})
    return site


@pytest.mark.parametrize("name", ["MadeWrongly", "NoMethod", "text", "Missing", "Gone"])
def test_a_plug_in_that_cannot_be_made_is_a_problem_with_its_place(
    strange: Path, name: str
) -> None:
    assert problem(f"s.{name}")[0] == "broken_class"


def test_no_plug_in_takes_a_name_of_ours(strange: Path) -> None:
    assert chain_of("common.Set", values={"a": 2}).convert({"a": 1}) == {"a": 2}


def test_two_packages_with_one_name_are_a_problem(strange: Path) -> None:
    install(strange, "another", {"s.Grabs": "another:Grabs"})
    code, text = problem("s.Grabs")
    assert code == "ambiguous_class"
    assert "another:Grabs, strange:Grabs" in text


def test_a_plug_in_changes_a_dict_of_its_own_alone(strange: Path) -> None:
    item: Item = {"a": 1, "inside": {"list": []}}
    chain = chain_of("s.Grabs")
    assert chain.convert(item) == {"inside": {"list": [1], "new": 1}}
    assert item == {"a": 1, "inside": {"list": []}}
    (step,) = chain.explain(item).steps
    assert step.changed == {"inside": ({"list": []}, {"list": [1], "new": 1})}


@pytest.mark.parametrize("name", ["Raises", "Loops"])
def test_whatever_a_plug_in_raises_refuses_the_item(strange: Path, name: str) -> None:
    with pytest.raises(ConvertError, match="Error") as caught:
        chain_of("common.ExtractMetadata", f"s.{name}").convert({"b": 1})
    assert (caught.value.code, caught.value.step) == ("converter_failed", 1)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "no_dict"),
        ([], "no_dict"),
        ({"a": float("nan")}, "bad_result"),
        pytest.param({"a": object()}, "bad_result", id="an object"),
        ({1: 2}, "bad_result"),
    ],
    ids=repr,
)
def test_what_a_plug_in_returns_is_checked(strange: Path, value: Any, code: str) -> None:
    with pytest.raises(ConvertError) as caught:
        chain_of("s.Returns", value=value).convert({})
    assert caught.value.code == code

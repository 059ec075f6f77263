"""The documents say what the code does: nothing missing, nothing that is gone."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from apps.jobs.states import MOVES
from tools import charts, coverage_doc, reference_doc
from tools.requirement_marks import ROOT
from yardkit import protocol, topology
from yardkit.broker import QueueSpec
from yardkit.env import Env

DOCS = ROOT / "docs"
README = ROOT / "README.md"
README_CHINESE = ROOT / "README.zh-CN.md"
SOURCES = [
    path for folder in ("apps", "platform") for path in sorted((ROOT / folder).rglob("*.py"))
]
DOCUMENTS = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]

# Of the operating system and of Django: they are not ours to explain.
FOREIGN_SETTINGS = {
    "SCRAPY_SETTINGS_MODULE",
    "PATH",
    "HOME",
    "PYTHONPATH",
    "LANG",
    "TZ",
    "DJANGO_SETTINGS_MODULE",
} | {"TERM", "XDG_CONFIG_HOME", "CELERY_SKIP_CHECKS", "GIT_PYTHON_REFRESH"}
_SETTING = re.compile(r"^[A-Z][A-Z0-9_]{2,}$")
_READERS = {name for name in vars(Env) if not name.startswith("_")}
_TABLE_SETTING = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def read(name: str) -> str:
    """Text of a file in docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


# --- coverage -----------------------------------------------------------------------------------


def test_charts_are_up_to_date_and_show_figures_of_the_page() -> None:
    for path, content in charts.charts():
        assert path.read_text(encoding="utf-8") == content, "run: make charts"
    page = read("performance.md")
    for row in charts.figures()["ratio"]:
        assert f"{row.get('used', row.get('reached')):g}" in page, row
    for row in charts.figures()["growth"]:
        assert all(f"{size:,}" in page for size in row["sizes"]), row


@pytest.mark.slow("5 s")
def test_coverage_document_is_up_to_date() -> None:
    assert read("coverage.md") == coverage_doc.document(), "run: make coverage-doc"


# --- settings -----------------------------------------------------------------------------------


def settings_in(path: Path) -> Iterator[str]:
    """Names that ``path`` reads from the environment."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        for argument in _names_read(node):
            is_name = isinstance(argument, ast.Name)
            name = constants.get(argument.id) if is_name else _text(argument)
            if name and _SETTING.match(name):
                # Every setting can be given as a file; that is explained once.
                yield name.removesuffix("_FILE")


def _names_read(node: ast.AST) -> list[ast.expr]:
    """What stands where the name of a setting stands: in a subscript, or in a reader's call."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.slice] if _is_environ(node.value) else []
    if not isinstance(node, ast.Call) or not node.args:
        return []
    if isinstance(node.func, ast.Attribute):
        reads = node.func.attr in _READERS or _is_environ(node.func.value)
        return node.args[:1] if reads else []
    first = node.args[0]
    is_env = isinstance(first, ast.Name) and first.id == "env"
    return node.args[1:2] if is_env else []


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module-level names of strings: some settings are read by such a name."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _text(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, _text(node.value)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_environ(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in {"environ", "os_environ"}


@pytest.mark.slow("8 s")
def test_every_setting_is_documented_and_no_other() -> None:
    used = {name for path in SOURCES for name in settings_in(path)} - FOREIGN_SETTINGS
    documented = set(_TABLE_SETTING.findall(read("settings.md")))
    assert used - documented == set(), "missing from docs/settings.md"
    assert documented - used == set(), "docs/settings.md names what nothing reads"


_TABLE_DEFAULT = re.compile(
    r"^\| `([A-Z][A-Z0-9_]+)` \| (?:`([^`|]+)`|(\d+) ([MG])iB) \|", re.MULTILINE
)


def defaults_in(path: Path) -> Iterator[tuple[str, int | float | str]]:
    """Settings that ``path`` reads with a default that can be written down, and that default."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("int", "float", "bool", "str") or not node.args:
            continue
        given = [each.value for each in node.keywords if each.arg == "default"] or node.args[1:2]
        name, default = _text(node.args[0]), [_literal(each) for each in given]
        if _SETTING.match(name) and default and default[0] not in ("", None):
            yield name, default[0]


def _literal(node: ast.expr) -> Any:
    """A value, also one such as ``150 * 1024**2``; None where it is made of other things."""
    allowed = (ast.Constant, ast.BinOp, ast.operator)
    if not all(isinstance(each, allowed) for each in ast.walk(node)):
        return None
    return eval(compile(ast.Expression(node), "a default", "eval"), {})  # noqa: S307 - our sources


@pytest.mark.slow("4 s")
@pytest.mark.covers("S1.28", "S1.29", "S1.33", "S1.54")
def test_documented_defaults_are_those_of_the_code() -> None:
    documented = {
        name: text if text else int(number) * (1024**2 if unit == "M" else 1024**3)
        for name, text, number, unit in _TABLE_DEFAULT.findall(read("settings.md"))
    }
    checked = 0
    for path in SOURCES:
        for name, default in defaults_in(path):
            said = documented.get(name)
            if said is None or name.startswith("CRAWLYARD_"):
                continue  # in words
            checked += 1
            if isinstance(default, bool):
                assert said == str(default).lower(), name
            elif isinstance(default, str):
                assert said == default, name
            else:
                assert float(said) == default, name
    assert checked > 40


# --- reference --------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("name", ["settings.md", "commands.md", "metrics.md", "rest.md"])
def test_reference_pages_are_up_to_date(name: str) -> None:
    assert read(name) == getattr(reference_doc, name.removesuffix(".md"))(), (
        "run: make reference-doc"
    )


def test_every_option_of_a_command_has_a_help_text() -> None:
    assert re.findall(r"^\| `(.*)` \|  \|$", read("commands.md"), re.MULTILINE) == []


# --- architecture -------------------------------------------------------------------------------


def queue_names() -> list[str]:
    """Every queue and exchange of the topology; parameters stand as <name>."""
    names = [
        topology.HEARTBEATS,
        topology.EVENTS,
        topology.LIFECYCLE,
        topology.TASKS,
        topology.BUILDS,
    ]
    for name, value in vars(topology).items():
        if isinstance(value, QueueSpec):
            names.append(value.name)
        elif (
            inspect.isfunction(value)
            and value.__module__ == topology.__name__
            and not name.startswith("_")
        ):
            arguments = [f"<{parameter}>" for parameter in inspect.signature(value).parameters]
            made = value(*arguments)
            names.append(made.name if isinstance(made, QueueSpec) else unquote(made))
    return names


def message_tags() -> list[str]:
    """Every message that travels."""
    return [
        str(value.__struct_config__.tag)
        for value in vars(protocol).values()
        if inspect.isclass(value)
        and issubclass(value, protocol.Message)
        and value is not protocol.Message
    ]


@pytest.mark.parametrize("name", queue_names())
def test_architecture_lists_every_queue(name: str) -> None:
    assert f"`{name}`" in read("architecture.md")


@pytest.mark.parametrize("tag", message_tags())
def test_architecture_lists_every_message(tag: str) -> None:
    assert f"`{tag}`" in read("architecture.md")


@pytest.mark.parametrize("state", list(MOVES))
def test_architecture_tells_the_moves_of_a_run(state: str) -> None:
    sources = ", ".join(f"`{one.value}`" for one in type(state) if one in MOVES[state])
    assert f"| `{state.value}` | {sources or '–'} |" in read("architecture.md")


# --- links and readmes --------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    targets = _LINK.findall(path.read_text(encoding="utf-8"))
    relative = [one.split("#")[0] for one in targets if "://" not in one]
    broken = [one for one in relative if one and not (path.parent / one).exists()]
    assert broken == []


def test_every_document_can_be_found_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md" or not path.is_file():
            continue
        seen.add(path)
        for target in _LINK.findall(path.read_text(encoding="utf-8")):
            if "://" not in target:
                waiting.append((path.parent / target.split("#")[0]).resolve())
    assert [str(path.relative_to(ROOT)) for path in DOCUMENTS if path not in seen] == []


def test_readme_starts_with_what_a_stock_debian_lacks() -> None:
    for readme in (README, README_CHINESE):
        first_lines = readme.read_text(encoding="utf-8").splitlines()[:4]
        assert any("apt-get install -y make python3-venv git" in line for line in first_lines)


def test_both_readmes_show_the_same_commands_and_tables() -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in (README, README_CHINESE))
    for pattern in (r"^```[\s\S]*?^```", r"`manage\.py [^`]+`", r"^#+ ", r"^\| `[^`]+`"):
        expression = re.compile(pattern, re.MULTILINE)
        assert expression.findall(english) == expression.findall(chinese), pattern


def test_tests_that_documents_cite_exist() -> None:
    for path in DOCUMENTS:
        cited = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
        for name, target in cited:
            source = (path.parent / target).read_text(encoding="utf-8")
            assert f"def {name}(" in source, f"{path.name}: {target} has no {name}"

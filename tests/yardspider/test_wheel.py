"""The SDK as a wheel of its own: what is in it, what it needs, and that it works alone."""

from __future__ import annotations

import ast
import email
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.plugins.markers import required_kinds
from tests.plugins.spider_image import make
from tests.yardspider.commands import environment
from tests.yardspider.sites import HTML, serve
from tools.requirement_marks import ROOT

pytestmark = [pytest.mark.slow("builds wheels and installs them"), pytest.mark.timeout(400)]

IMPORT_EVERYTHING = """
import importlib, importlib.util, pkgutil
for package in ("yardkit", "yardspider"):
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*(name for name in ("django", "apps", "crawlyard") if importlib.util.find_spec(name)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = make("spider-wheel", f"DIST={folder}")
    if done.returncode and "to install build dependencies did not run" in done.stderr:
        pytest.skip("pip cannot fetch the build backend: no package index answers")
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    assert done.stdout.strip() == str(made)
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and what it asks for, nothing of this repository."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    options = ["--quiet", "--disable-pip-version-check", "--root-user-action", "ignore"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder, "install", *options, f"{wheel}[local]"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "Failed to establish a new connection" in done.stderr and not required_kinds():
        pytest.skip("the index of packages cannot be reached from here")
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def alone(
    python: Path, *arguments: str, folder: Path, program: str = "yardspider"
) -> subprocess.CompletedProcess[str]:
    """A program of the fresh environment, far from the repository."""
    plain = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python.with_name(program), *arguments],
        cwd=folder,
        env=plain,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        return email.message_from_bytes(archive.read(name))


def imports(wheel: Path) -> Iterator[str]:
    """The names of all modules that something in the wheel imports."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".py"):
                continue
            for node in ast.walk(ast.parse(archive.read(name))):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def test_it_holds_the_sdk_and_the_kit_and_nothing_of_the_control_plane(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {
        "yardkit",
        "yardscrapy",
        "yardspider",
    }
    assert "yardspider/template/Dockerfile.txt" in names
    assert "yardkit/secretbox.py" not in names
    assert "yardkit/yaml_reader.py" not in names, "PyYAML is none of its dependencies"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 500_000


def test_its_version_is_the_products(wheel: Path) -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata(wheel)["Version"] == product["version"]
    assert metadata(wheel)["Requires-Python"] == product["requires-python"]


def test_it_asks_for_what_it_imports_and_for_nothing_else(wheel: Path) -> None:
    asked = {
        re.split(r"[^A-Za-z0-9._-]", line)[0].lower()
        for line in metadata(wheel).get_all("Requires-Dist", [])
    }
    own = {"yardkit", "yardscrapy", "yardspider"}
    foreign = set(imports(wheel)) - sys.stdlib_module_names - own
    brought_by = packages_distributions()
    assert {brought_by[name][0].lower().replace("_", "-") for name in foreign} == asked


def test_every_module_of_it_can_be_imported(python: Path, tmp_path: Path) -> None:
    done = alone(python, "-c", IMPORT_EVERYTHING, folder=tmp_path, program="python")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_its_command_helps(python: Path, wheel: Path, tmp_path: Path) -> None:
    done = alone(python, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "init" in done.stdout
    assert "run" in done.stdout
    done = alone(python, "--version", folder=tmp_path)
    assert done.stdout.split() == ["yardspider", metadata(wheel)["Version"]]


def test_a_project_is_made_and_crawls_without_the_platform(python: Path, tmp_path: Path) -> None:
    made = alone(python, "init", "book-shop", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    pages = {
        "/": (200, HTML, b"<title>Home</title><a href=/one>one</a>"),
        "/one": (200, HTML, b"<title>One</title>"),
    }
    with serve(pages) as site:
        done = alone(
            python,
            *("run", "book_shop:BookShop", "--local", "--set", "speed=0"),
            *("--argument", f"url={site.url}/", "--output", "pages.jsonl"),
            folder=tmp_path / "book-shop",
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("exited: 2 pages, 2 requests (2 succeeded, 0 failed, 0 left)")
    lines = (tmp_path / "book-shop" / "pages.jsonl").read_text(encoding="utf-8")
    assert lines.count('"title"') == 2

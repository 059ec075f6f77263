"""The shape of the house: where code may live, what it may be called, who may import Django."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools.requirement_marks import ROOT

PLATFORM = ROOT / "platform"
APPS = ROOT / "apps"
MAX_LINES = 450
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
# Our own packages on the path; `platform` is a folder only and never a name.
TOP_LEVEL = ("crawlyard", "yardkit", "yardscrapy", "yardspider", "apps")


def python_files(*folders: Path) -> list[Path]:
    """Every source file below ``folders``, caches left out."""
    return sorted(
        path
        for folder in folders
        for path in folder.rglob("*.py")
        if "__pycache__" not in path.parts
    )


def shown(paths: list[Path]) -> list[str]:
    """Paths as one reads them in the repository."""
    return [str(path.relative_to(ROOT)) for path in paths]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter with the path that manage.py makes."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT}:{PLATFORM}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_platform_folder_is_no_package() -> None:
    loose = [path for path in PLATFORM.iterdir() if path.suffix == ".py"]
    assert shown(loose) == [], "a module here would be importable from everywhere"
    for folder in PLATFORM.iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            assert (folder / "__init__.py").is_file(), f"{folder.name} is no package"


def test_import_platform_is_the_standard_library() -> None:
    result = run_python(
        "import sys, platform\n"
        "assert platform.python_version().startswith('3.')\n"
        "assert not hasattr(platform, '__path__')\n"
        "print(platform.__file__)\n"
    )
    assert result.returncode == 0, result.stderr
    assert not Path(result.stdout.strip()).is_relative_to(ROOT)
    for name in TOP_LEVEL:
        with pytest.raises(ModuleNotFoundError):
            importlib.util.find_spec(f"platform.{name}")


def test_every_app_has_a_name_and_a_label() -> None:
    for folder in sorted(APPS.iterdir()):
        if not folder.is_dir() or folder.name == "__pycache__":
            continue
        source = (folder / "apps.py").read_text(encoding="utf-8")
        assert f'name = "apps.{folder.name}"' in source
        assert f'label = "{folder.name}"' in source
        assert (folder / "__init__.py").is_file()
        assert (folder / "migrations" / "__init__.py").is_file()


def test_apps_is_a_package() -> None:
    assert (APPS / "__init__.py").is_file()


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    # Even a nested one shadows the original for any tool that is run inside its folder.
    folders = [path for path in [*APPS.rglob("*"), *PLATFORM.rglob("*")] if path.is_dir()]
    named = [path for path in python_files(APPS, PLATFORM) if path.stem in sys.stdlib_module_names]
    named += [path for path in folders if path.name in sys.stdlib_module_names]
    assert shown([path for path in named if not path.stem.startswith("__")]) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    named = [*APPS.rglob("*"), *PLATFORM.rglob("*"), *(ROOT / "tests").rglob("*")]
    vague = [path for path in named if path.stem in VAGUE_NAMES and "__pycache__" not in path.parts]
    assert shown(vague) == []


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in python_files(ROOT / "tests")}
    missing = [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    assert shown(missing) == [], "two test files of one name would clash"


def test_rooms_are_small() -> None:
    large = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in python_files(APPS, PLATFORM, ROOT / "tests", ROOT / "tools")
        if "migrations" not in path.parts
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    ]
    assert large == [], "split before it hurts"


IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
for package in {packages!r}:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("django", "rest_framework"))
print(" ".join(loaded))
"""


@pytest.mark.slow("5 s")
@pytest.mark.parametrize(
    "package",
    [
        "yardkit",
        "yardscrapy",
        "yardspider",
        "apps.agents.downloader",
        "apps.agents.center",
        "apps.routing.engine",
        "apps.seeds.engine",
        "apps.seeds.stores",
    ],
)
def test_plain_python_stays_free_of_django(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.fail(f"{package} is gone; does its successor belong into this test?")
    result = run_python(IMPORT_EVERYTHING.format(packages=[package]))
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [], f"{package} loads Django"


@pytest.mark.slow("2 s")
def test_entry_of_the_agent_needs_no_django() -> None:
    result = run_python(
        "import importlib, sys\n"
        "importlib.import_module('apps.agents.downloader.__main__')\n"
        "assert 'django' not in sys.modules, 'the agent must start on a host without a database'\n"
    )
    assert result.returncode == 0, result.stderr

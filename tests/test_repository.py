"""Files that make the repository work on a fresh machine: catalogues, scripts, requirements."""

from __future__ import annotations

import gettext
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.compile_messages import CatalogueError, compile_catalogue, read_po, sources
from tools.requirement_marks import ROOT


def test_compiled_catalogues_are_in_step_with_their_sources() -> None:
    for path in sources():
        compiled = path.with_suffix(".mo").read_bytes()
        assert compiled == compile_catalogue(read_po(path)), f"{path}: run make compile-messages"


def test_compiled_catalogue_is_what_gettext_reads(tmp_path: Path) -> None:
    source = tmp_path / "django.po"
    source.write_text(
        'msgid ""\n'
        'msgstr ""\n'
        '"Content-Type: text/plain; charset=UTF-8\\n"\n'
        '"Plural-Forms: nplurals=2; plural=n != 1;\\n"\n'
        "\n"
        '#: apps/jobs/models.py\nmsgid "run"\nmsgstr "运行"\n'
        "\n"
        'msgctxt "verb"\nmsgid "run"\nmsgstr "启动"\n'
        "\n"
        'msgid "%d page"\nmsgid_plural "%d pages"\nmsgstr[0] "一页"\nmsgstr[1] "%d 页"\n'
        "\n"
        'msgid ""\n"two "\n"lines\\n"\nmsgstr "两行\\n"\n'
        "\n"
        '#, fuzzy\nmsgid "guess"\nmsgstr "猜"\n'
        '#, fuzzy\n#~ msgid "gone"\n#~ msgstr "没了"\n'
        'msgid "left"\nmsgstr "剩余"\n'
        'msgid "empty"\nmsgstr ""\n',
        encoding="utf-8",
    )
    compiled = tmp_path / "django.mo"
    compiled.write_bytes(compile_catalogue(read_po(source)))
    with compiled.open("rb") as file:
        catalogue = gettext.GNUTranslations(file)
    assert catalogue.gettext("run") == "运行"
    assert catalogue.pgettext("verb", "run") == "启动"
    assert catalogue.ngettext("%d page", "%d pages", 1) == "一页"
    assert catalogue.ngettext("%d page", "%d pages", 2) == "%d 页"
    assert catalogue.gettext("two lines\n") == "两行\n"
    assert catalogue.gettext("left") == "剩余"
    for untranslated in ("guess", "gone", "empty"):
        assert catalogue.gettext(untranslated) == untranslated


def test_broken_catalogue_is_refused_with_its_line(tmp_path: Path) -> None:
    source = tmp_path / "django.po"
    source.write_text('msgid "run"\nmsgstr "运行\n', encoding="utf-8")
    with pytest.raises(CatalogueError, match=r"django\.po:2: not a line of a \.po file"):
        read_po(source)


# --- the machine check ----------------------------------------------------------------------------


def check_machine(*, path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run the check with nothing but ``path`` to find commands in."""
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "check-machine.sh"), python],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def script(path: Path, body: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def test_machine_check_names_every_missing_package(tmp_path: Path) -> None:
    result = check_machine(path=tmp_path, python="python3")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("apt-get install -y python3-venv git")


def test_machine_check_names_the_package_of_another_python(tmp_path: Path) -> None:
    script(tmp_path / "git", "exit 0")
    result = check_machine(path=tmp_path, python="/opt/bin/python3.12")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("apt-get install -y python3.12-venv")


def test_machine_check_names_python3_venv(tmp_path: Path) -> None:
    # A stock Debian: Python runs, but has no ensurepip.
    script(tmp_path / "git", "exit 0")
    script(
        tmp_path / "python3",
        f'case "$2" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac',
    )
    result = check_machine(path=tmp_path, python="python3")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("apt-get install -y python3-venv")


def test_machine_check_refuses_an_old_python(tmp_path: Path) -> None:
    script(tmp_path / "python3", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac')
    result = check_machine(path=tmp_path, python="python3")
    assert result.returncode == 2
    assert "Python 3.9.2, and Crawlyard needs Python 3.11 or newer" in result.stderr


def test_machine_check_is_silent_when_all_is_there(tmp_path: Path) -> None:
    script(tmp_path / "git", "exit 0")
    result = check_machine(path=tmp_path, python=sys.executable)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# --- scripts and requirements ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "name"),
    [
        ("bash", ".ci/debian"),
        ("bash", ".ci/run"),
        ("bash", ".ci/services"),
        ("sh", "tools/install.sh"),
        ("sh", "tools/check-machine.sh"),
    ],
)
def test_scripts_can_be_parsed(shell: str, name: str) -> None:
    subprocess.run([shell, "-n", str(ROOT / name)], check=True, timeout=30)


def pinned(name: str) -> dict[str, str]:
    """Package and version of every line of a requirements file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))


def test_every_dependency_is_pinned_and_hashed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {"requirements.txt": project["project"]["dependencies"]}
    for group, dependencies in project["dependency-groups"].items():
        wanted[f"requirements-{group}.txt"] = dependencies
    for extra, dependencies in project["project"]["optional-dependencies"].items():
        wanted[f"requirements-{extra}.txt"] = dependencies
    for name, dependencies in wanted.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        names = {re.split(r"[\[<>=; ]", one)[0].lower().replace("_", "-") for one in dependencies}
        assert names - set(pinned(name)) == set(), f"{name}: run make requirements"
        assert text.count(" \\\n    --hash=sha256:") >= len(pinned(name))


def test_requirements_files_agree_with_each_other() -> None:
    runtime = pinned("requirements.txt")
    for path in ROOT.glob("requirements-*.txt"):
        for package, version in pinned(path.name).items():
            assert runtime.get(package, version) == version, f"{path.name}: {package}"


def test_nothing_committed_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, timeout=30
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    # Put together here, so that this file does not name what it looks for.
    forbidden = [f"/{folder}/" for folder in ("root", "home/" + os.environ.get("USER", "nobody"))]
    forbidden += ["--index" + "-url", "--extra-index" + "-url"]
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if not name or not path.is_file() or path.suffix in {".png", ".mo", ".woff2"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found = [one for one in forbidden if one in text]
        assert found == [], f"{name}: {found}"

"""Images are asked for their spiders, whatever they answer."""

from __future__ import annotations

from typing import Any

import pytest

from apps.projects.engine.builder import description as describing
from apps.projects.engine.builder.description import DESCRIBE_LABEL, describers, remove_describer
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.reasons import text_of
from tests.projects.docker_builds import BuildHarness

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

SPIDER = '''
from yardspider import Spider


class Quotes(Spider):
    """Quotes by tag."""

    arguments = {"tag": str, "pages": 3}
'''
# A module in the SDK's place, which tells what it may do.
PROBE = """
import json, os, socket
def tried(work):
    try:
        work()
    except OSError as error:
        return error.strerror or str(error)
    return "done"
facts = {
    "user": os.getuid(),
    "network": tried(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
    "root": tried(lambda: open("/spider-was-here", "w")),
    "tmp": tried(lambda: open("/tmp/x", "w")),
}
print("noise of a module")
print(json.dumps({"version": 1, "kind": "yardspider", "settings": facts}))
"""


def probe(harness: BuildHarness, module: str) -> Any:
    """Build an image whose SDK is this module."""
    return harness.build(harness.repository("COPY yardspider.py ./", **{"yardspider.py": module}))


@pytest.mark.covers("SC.5")
def test_an_image_of_the_sdk_describes_its_spiders(
    harness: BuildHarness, spider_image: str
) -> None:
    files: dict[str, str | bytes] = {
        "Dockerfile": f"FROM {spider_image}\nLABEL crawlyard.test=1\nCOPY . ./\n",
        "quotes.py": SPIDER,
        "broken.py": "import nothing_here\nclass A(object): ...\n",
    }
    built = harness.build(harness.plain_repository(files))
    assert built.warning == ""
    assert built.description is not None
    assert built.description["kind"] == "yardspider"
    spiders = {spider["name"]: spider for spider in built.description["spiders"]}
    assert set(spiders) == {"quotes:Quotes", "yardspider.spiders:SiteSpider"}
    assert spiders["quotes:Quotes"]["description"] == "Quotes by tag."
    tag, pages = spiders["quotes:Quotes"]["arguments"]
    assert (tag["type"], tag["required"]) == ("str", True)
    assert (pages["type"], pages["default"]) == ("int", 3)
    (error,) = built.description["errors"]
    assert error["module"] == "broken"
    assert any("nothing_here" in line for line in harness.lines)


@pytest.mark.parametrize("step", ["RUN true", "RUN rm -f /usr/local/bin/python* /usr/bin/python*"])
def test_an_image_without_sdk_or_python_has_no_description(
    harness: BuildHarness, step: str
) -> None:
    built = harness.build(harness.repository(step))
    assert (built.description, built.warning) == (None, "")
    assert any("describes no spiders" in line for line in harness.lines)


@pytest.mark.covers("SC.5")
def test_the_container_can_reach_nothing(harness: BuildHarness) -> None:
    built = probe(harness, PROBE)
    assert built.warning == ""
    assert built.description["settings"] == {
        "user": 10001,
        "network": "Network is unreachable",
        "root": "Read-only file system",
        "tmp": "done",
    }


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("print('[1, 2')", "cannot be read"),
        ('print(\'{"version": 2, "kind": "scrapy"}\')', "cannot be read"),
        ('print(\'{"version": 1, "kind": "other"}\')', "cannot be read"),
        ("print('[' * 100000)", "cannot be read"),
        ("print('x' * 5_000_000)", "larger than 4,194,304 bytes"),
        ("raise SystemExit('no spiders today')", "exit status 1: no spiders today"),
        ("x = []\nwhile True: x.append('x' * 10**7)", "memory limit"),
    ],
    ids=["cut", "version", "kind", "deep", "large", "failed", "memory"],
)
def test_a_bad_answer_is_a_warning(harness: BuildHarness, module: str, words: str) -> None:
    built = probe(harness, module)
    assert built.description is None
    assert words in built.warning
    assert built.digest.startswith("sha256:")


def test_an_endless_description_is_ended(
    harness: BuildHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describing, "DESCRIBE_SECONDS", 2)
    built = probe(harness, "import time\nprint('begun', flush=True)\ntime.sleep(600)")
    assert built.warning == "time limit: describing took longer than 2 s"
    assert describers(harness.engine) == []


def test_the_container_of_a_killed_worker_is_found_with_its_build(harness: BuildHarness) -> None:
    built = probe(harness, PROBE)
    left = harness.engine.api.create_container(
        built.digest, ["true"], labels={DESCRIBE_LABEL: harness.owner}
    )["Id"]
    assert describers(harness.engine) == [(left, "1")]
    remove_describer(harness.engine, left)
    remove_describer(harness.engine, left)
    assert describers(harness.engine) == []


# --- the recipe -----------------------------------------------------------------------------------

SCRAPY: dict[str, str | bytes] = {
    "scrapy.cfg": "[settings]\ndefault = shop.settings\n",
    "shop/__init__.py": "",
    "shop/settings.py": "SPIDER_MODULES = ['shop.spiders']\nDOWNLOAD_DELAY = 2\n",
    "shop/spiders/__init__.py": "",
    "shop/spiders/books.py": (
        "import scrapy\n"
        "class Books(scrapy.Spider):\n"
        "    '''Books of a shop.'''\n"
        "    name = 'books'\n"
        "    def __init__(self, pages: int = 3, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
    ),
}


@pytest.mark.covers("SC.5")
@pytest.mark.parametrize(
    "requirements",
    [
        {"requirements.txt": "scrapy>=2.11\n"},
        {"requirements.txt": "-r more.txt\n", "more.txt": "scrapy\n"},
        {"pyproject.toml": "[project]\nname = 'shop'\ndependencies = ['scrapy>=2.11']\n"},
    ],
    ids=["requirements", "files", "pyproject"],
)
def test_a_scrapy_project_builds_without_a_dockerfile(
    harness: BuildHarness, scrapy_image: str, requirements: dict[str, str]
) -> None:
    built = harness.build(
        harness.plain_repository({**SCRAPY, **requirements}), scrapy_base=scrapy_image
    )
    assert any(f"built by the recipe on {scrapy_image}" in line for line in harness.lines)
    assert built.warning == ""
    assert built.description is not None
    assert built.description["kind"] == "scrapy"
    assert built.description["settings"]["DOWNLOAD_DELAY"] == 2
    (books,) = built.description["spiders"]
    assert (books["name"], books["description"]) == ("books", "Books of a shop.")
    (pages,) = books["arguments"]
    assert (pages["name"], pages["type"], pages["default"]) == ("pages", "int", 3)
    image = harness.engine.image(built.digest)
    assert image is not None
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["Cmd"] == ["python3", "-m", "yardscrapy", "crawl"]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"shop.py": "1"}, "dockerfile_missing"),
        (SCRAPY, "recipe_no_requirements"),
        ({**SCRAPY, "pyproject.toml": "[tool.poetry]\n"}, "recipe_no_requirements"),
        ({**SCRAPY, "pyproject.toml": "[project\n"}, "recipe_pyproject"),
    ],
    ids=["nothing", "no requirements", "no dependencies", "no toml"],
)
def test_other_repositories_need_a_dockerfile(
    harness: BuildHarness, files: dict[str, str | bytes], code: str
) -> None:
    failure: ProjectInputError = harness.failure(harness.plain_repository(files), scrapy_base="x")
    assert failure.code == code
    assert text_of(failure)

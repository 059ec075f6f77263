"""``yardspider init``: its project passes its tests, becomes an image, overwrites nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import docker
import pytest

from tests.yardspider.commands import Done, command, environment, run
from tests.yardspider.sites import HTML, serve

FILES = {
    ".dockerignore",
    ".gitignore",
    "Dockerfile",
    "README.md",
    "book_shop.py",
    "pyproject.toml",
    "requirements.txt",
    "tests/test_book_shop.py",
}


def init(folder: Path, *arguments: str) -> Done:
    return run(folder, "init", *arguments)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow("1 s")
def test_a_project_is_made(tmp_path: Path) -> None:
    done = init(tmp_path, "book-shop")
    assert (done.status, done.errors) == (0, "")
    assert files(tmp_path / "book-shop") == FILES
    assert {line.removeprefix("made book-shop/") for line in done.output.splitlines()} == FILES
    texts = {
        name: (tmp_path / "book-shop" / name).read_text(encoding="utf-8") for name in sorted(FILES)
    }
    assert not [name for name, text in texts.items() if "@" in text.replace("[local] @ file:", "")]
    assert "class BookShop(Spider)" in texts["book_shop.py"]
    assert "git tag stable/book-shop/1.0.0" in texts["README.md"]
    dockerfile = texts["Dockerfile"]
    assert dockerfile.index("ARG BASE_IMAGE=") < dockerfile.index("FROM ${BASE_IMAGE}")
    assert "--mount" not in dockerfile
    assert "<<" not in dockerfile


@pytest.mark.slow("7 s")
def test_its_tests_pass_as_they_are(tmp_path: Path) -> None:
    init(tmp_path, "book-shop")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:django"],
        cwd=tmp_path / "book-shop",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.slow("2 s")
def test_it_is_tidy(tmp_path: Path) -> None:
    init(tmp_path, "book-shop")
    for check in (("check", "--select=E,F,I,UP,B"), ("format", "--check")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--isolated", "."],
            cwd=tmp_path / "book-shop",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if "No module named ruff" in done.stderr:
            pytest.skip("ruff is not installed: make install-dev")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow("2 s")
def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "here" / ".git").mkdir(parents=True)
    (tmp_path / "here" / "notes.txt").write_text("mine")
    done = init(tmp_path, "book-shop", "--dir", "here")
    assert done.status == 0, done.errors
    assert files(tmp_path / "here") == FILES | {"notes.txt"}


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "book-shop").mkdir()
    (tmp_path / "book-shop" / "README.md").write_text("mine")
    (tmp_path / "book-shop" / ".gitignore").symlink_to("/nowhere")
    done = init(tmp_path, "book-shop")
    assert done.status == 2
    assert "book-shop has .gitignore, README.md already; nothing was written" in done.errors
    assert files(tmp_path / "book-shop") == {"README.md"}
    assert (tmp_path / "book-shop" / "README.md").read_text() == "mine"


@pytest.mark.slow("9 s")
@pytest.mark.parametrize(
    "name",
    [
        *("", "-x", "Shop", "book shop", "../shop", "a/b", "1shop", "shop-", "a--b", "büch"),
        *("a" * 51, "a\nb", "shop.py"),
    ],
)
def test_names_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    done = init(tmp_path, f"--dir={tmp_path / 'x'}", "--", name)
    assert done.status == 2
    assert "cannot be the name of a project" in done.errors
    assert done.errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("name", ["json", "class", "match", "tests", "yardspider", "msgspec"])
def test_names_that_would_hide_a_module(tmp_path: Path, name: str) -> None:
    done = init(tmp_path, name)
    assert done.status == 2
    assert f"'{name}' would hide another module of this name" in done.errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow("1 s")
def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = init(tmp_path, "book-shop", "--dir", "file")
    assert done.status == 2
    assert "file is there already, and it is no folder" in done.errors
    done = init(tmp_path, "book-shop", "--dir", "file/below")
    assert done.status == 2
    assert "cannot write into file/below" in done.errors


@pytest.mark.slow("1 s")
def test_local_needs_its_extra(tmp_path: Path) -> None:
    init(tmp_path, "book-shop")
    program = "import sys; sys.modules['aiohttp'] = None\nfrom yardspider.cli import main\nmain()"
    options = command("run", "book_shop:BookShop", "--local")[3:]
    done = subprocess.run(
        [sys.executable, "-c", f"{program}", *options],
        cwd=tmp_path / "book-shop",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "--local needs aiohttp, which is not installed" in done.stderr
    assert "yardspider[local]" in done.stderr


# --- its image ----------------------------------------------------------------------------------


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_its_image_is_built_and_crawls_as_nobody_in_particular(
    tmp_path: Path, docker_engine: docker.DockerClient, spider_image: str
) -> None:
    init(tmp_path, "book-shop")
    image, _log = docker_engine.images.build(
        path=str(tmp_path / "book-shop"),
        buildargs={"BASE_IMAGE": spider_image},
        network_mode="none",
        labels={"crawlyard.test": "1"},
        forcerm=True,
    )
    assert image.attrs["Config"]["User"] == "10001:10001"
    assert image.attrs["Config"]["WorkingDir"] == "/spider"
    assert not image.attrs["Config"]["Entrypoint"]
    assert image.attrs["Config"]["Cmd"] == ["yardspider", "run", "book_shop:BookShop"]
    pages = {"/": (200, HTML, b"<title>Home</title><a href=/one>one</a>")}
    with serve(pages, default=(200, HTML, b"<title>One</title>")) as site:
        container = docker_engine.containers.run(
            image.id,
            [
                *("yardspider", "run", "book_shop:BookShop", "--local", "--json"),
                *("--argument", f"url={site.url}/", "--set", "speed=0"),
            ],
            detach=True,
            network_mode="host",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            labels={"crawlyard.test": "1"},
        )
        try:
            ended = container.wait(timeout=120)
            said = container.logs(stdout=True, stderr=False).decode()
            log = container.logs().decode()
        finally:
            container.remove(force=True)
    assert ended["StatusCode"] == 0, log
    summary = json.loads(said)
    assert (summary["state"], summary["total"], summary["success"]) == ("exited", 2, 2)
    assert sorted(site.paths) == ["/", "/one"]


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_a_container_tells_how_it_ends(
    docker_engine: docker.DockerClient, spider_image: str
) -> None:
    """Not on the platform, the image's own command is a refusal with its exit status."""
    container = docker_engine.containers.run(
        spider_image,
        ["yardspider", "run", "yardspider.spiders:SiteSpider"],
        detach=True,
        network_mode="none",
        labels={"crawlyard.test": "1"},
    )
    try:
        assert container.wait(timeout=120)["StatusCode"] == 2
        assert b"CRAWLYARD_RUN is not set" in container.logs()
    finally:
        container.remove(force=True)

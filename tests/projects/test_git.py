"""Git against a real server: what it fetches, how it fails, and what a hostile one cannot do."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from apps.projects.engine.addresses import AddressProblem
from apps.projects.engine.git import GitFailed, GitRemote, fetch_tag, list_tags
from apps.projects.engine.refs import RefRefused
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.reasons import text_of
from tests.plugins.git_server import GitServer, Repository, run_git

CORPUS = json.loads((Path(__file__).parents[1] / "data" / "corpus" / "git.json").read_text())
LOCAL = ["127.0.0.0/8"]
TAG = "prod/news/1.0"
LARGE = 50 * 1024**2


@pytest.fixture(scope="module")
def repository(git_server: GitServer) -> Repository:
    made = git_server.make_repository("git-tests")
    made.commit({"Dockerfile": "FROM scratch\n", "app/main.py": "print(1)\n"})
    made.tag(TAG)
    return made


@pytest.fixture
def remote(git_server: GitServer, repository: Repository) -> Callable[..., GitRemote]:
    def make(**fields: Any) -> GitRemote:
        values = {
            "url": repository.url,
            "username": git_server.username,
            "password": git_server.password,
            "allowed_networks": LOCAL,
        }
        return GitRemote(**{**values, **fields})

    return make


def serve(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def names_of(archive: bytes) -> list[str]:
    return tarfile.open(fileobj=io.BytesIO(archive)).getnames()


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if each.status() != "zombie"]


# --- what works ---------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.4")
def test_a_tag_is_fetched_with_the_password(
    remote: Callable[..., GitRemote], repository: Repository, tmp_path: Path
) -> None:
    got = fetch_tag(remote(), TAG, folder=tmp_path, timeout=60, max_bytes=LARGE)
    assert got.commit == got.tag_object == repository.head()
    with got.archive(timeout=60) as stream:
        assert names_of(stream.read()) == ["Dockerfile", "app", "app/main.py"]
    assert got.read("./app/main.py", max_bytes=100) == b"print(1)\n"
    assert got.read("app/nothing.py", max_bytes=100) is None
    assert abs(got.committed_at() - time.time()) < 24 * 3600
    secret = remote().password.encode()
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]


@pytest.mark.slow("1 s")
def test_tags_are_listed_highest_version_first_with_their_commits(
    git_server: GitServer, remote: Callable[..., GitRemote]
) -> None:
    made = git_server.make_repository("many-tags")
    assert list_tags(remote(url=made.url)) == []
    commit = made.commit({"a": "1"})
    for tag in ("v1.9", "v1.10"):
        made.tag(tag)
    run_git("tag", "-a", "-m", "annotated", "v2.0", folder=made.work)
    made.push("refs/tags/v2.0")
    tags = list_tags(remote(url=made.url))
    assert [each.name for each in tags] == ["v2.0", "v1.10", "v1.9"]
    assert {each.commit for each in tags} == {commit}


@pytest.mark.slow("1 s")
def test_an_annotated_tag_leads_to_its_commit_and_some_tags_to_none(
    git_server: GitServer, remote: Callable[..., GitRemote], tmp_path: Path
) -> None:
    made = git_server.make_repository("annotated")
    commit = made.commit({"a": "1"})
    run_git("tag", "-a", "-m", "said", TAG, folder=made.work)
    made.push(f"refs/tags/{TAG}")
    run_git("tag", "tree", "HEAD^{tree}", folder=made.work)
    made.push("refs/tags/tree")
    wanted = remote(url=made.url)
    got = fetch_tag(wanted, TAG, folder=tmp_path / "1", timeout=60, max_bytes=LARGE)
    assert got.commit == commit != got.tag_object
    call = lambda: fetch_tag(wanted, "tree", folder=tmp_path / "2", timeout=60, max_bytes=LARGE)  # noqa: E731
    assert refusal(call).code == "git_no_commit"


def test_a_name_is_asked_at_the_address_that_was_judged(
    remote: Callable[..., GitRemote], repository: Repository
) -> None:
    asked: list[str] = []

    def resolve(name: str) -> list[str]:
        # A second look-up would be told another address.
        asked.append(name)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    # No resolver of this machine knows the name, so it is only found through the pin.
    url = repository.url.replace("127.0.0.1", "git.crawlyard.invalid")
    assert [each.name for each in list_tags(remote(url=url, resolve=resolve))] == [TAG]
    assert asked == ["git.crawlyard.invalid"]


# --- how it fails -------------------------------------------------------------------------------


def refusal(call: Callable[[], object]) -> ProjectInputError:
    with pytest.raises(ProjectInputError) as caught:
        call()
    return caught.value


def test_each_failure_has_its_own_words(
    remote: Callable[..., GitRemote], repository: Repository, tmp_path: Path
) -> None:
    def fetch(tag: str) -> ProjectInputError:
        folder = tmp_path / tag
        call = lambda: fetch_tag(remote(), tag, folder=folder, timeout=60, max_bytes=LARGE)  # noqa: E731
        return refusal(call)

    refusals = {
        "git_auth": refusal(lambda: list_tags(remote(password="wrong"))),
        "git_not_found": refusal(lambda: list_tags(remote(url=repository.url + "x"))),
        "git_unreachable": refusal(lambda: list_tags(remote(url="http://127.0.0.1:9/x.git"))),
        "url_unresolved": refusal(lambda: list_tags(remote(url="https://git.invalid/x.git"))),
        "url_blocked": refusal(lambda: list_tags(remote(allowed_networks=()))),
        "git_tag_missing": fetch("prod/news/9.9"),
    }
    assert {name: each.code for name, each in refusals.items()} == {name: name for name in refusals}
    texts = [text_of(each) for each in refusals.values()]
    assert len(set(texts)) == len(texts)
    assert not [text for text in texts if "Refused:" in text]
    assert refusal(lambda: list_tags(remote(username="", password=""))).code == "git_auth"


@pytest.mark.parametrize("url", CORPUS["refused_clone_urls"])
def test_hostile_addresses_reach_no_git(url: str, remote: Callable[..., GitRemote]) -> None:
    before = {each.pid for each in children()}
    with pytest.raises(AddressProblem):
        list_tags(remote(url=url, allowed_networks=LOCAL, resolve=lambda name: ["127.0.0.1"]))
    assert {each.pid for each in children()} <= before


@pytest.mark.parametrize("tag", [*CORPUS["refused_tags"], ""])
def test_hostile_tags_reach_no_git(
    tag: str, remote: Callable[..., GitRemote], tmp_path: Path
) -> None:
    with pytest.raises(RefRefused):
        fetch_tag(remote(), tag, folder=tmp_path / "f", timeout=60, max_bytes=LARGE)
    assert not (tmp_path / "f").exists()


def test_a_redirect_is_not_followed(
    remote: Callable[..., GitRemote], git_server: GitServer, repository: Repository
) -> None:
    def away(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", git_server.address + request.path)
        request.end_headers()

    asked = len(git_server.requests)
    for address in serve(away):
        url = repository.url.replace(git_server.address, address)
        assert refusal(lambda: list_tags(remote(url=url))).code == "git_redirect"  # noqa: B023
    assert len(git_server.requests) == asked


def test_what_a_server_says_is_told_without_the_password(remote: Callable[..., GitRemote]) -> None:
    password = "hunter two/ü"

    def gossip(request: BaseHTTPRequestHandler) -> None:
        given = request.headers.get("Authorization", "")
        request.send_response(500 if given else 401)
        request.send_header("WWW-Authenticate", 'Basic realm="git"')
        request.send_header("Content-Type", "text/plain; charset=utf-8")
        request.end_headers()
        request.wfile.write(f"you said {given} {password}\n".encode())

    for address in serve(gossip):
        failure = refusal(lambda: list_tags(remote(url=f"{address}/x.git", password=password)))  # noqa: B023
    assert failure.code == "git_failed"
    shown = f"{failure} {failure.params} {failure!r} {failure.__context__!r} {text_of(failure)}"
    assert password not in shown
    assert "hunter" not in shown
    assert password not in repr(remote(password=password))


@pytest.mark.slow("1 s")
def test_time_is_limited_and_nothing_stays_running(remote: Callable[..., GitRemote]) -> None:
    released = threading.Event()

    def silence(request: BaseHTTPRequestHandler) -> None:
        released.wait(60)

    for address in serve(silence):
        url = f"{address}/x.git"
        failure = refusal(lambda: list_tags(remote(url=url), timeout=1.0))  # noqa: B023
        released.set()
    assert failure.code == "git_timeout"
    assert not [each for each in children() if "git" in each.name()]


def test_a_process_list_shows_no_secret_and_git_sees_none_of_ours(
    remote: Callable[..., GitRemote], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "our own key")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_TRACE_CURL", "/tmp/never")
    arrived, released = threading.Event(), threading.Event()

    def silence(request: BaseHTTPRequestHandler) -> None:
        arrived.set()
        released.wait(60)

    for address in serve(silence):
        with ThreadPoolExecutor() as pool:
            url = f"{address}/x.git"
            done = pool.submit(list_tags, remote(url=url, password="very-secret"), timeout=60)
            assert arrived.wait(60)
            gits = [each for each in children() if "git" in each.name()]
            lines = [" ".join(each.cmdline()) for each in gits]
            environments = [each.environ() for each in gits]
            released.set()
            assert done.exception(60) is not None
    assert lines
    assert not [line for line in lines if "very-secret" in line or "our own key" in line]
    for environment in environments:
        assert {"SECRET_KEY", "GIT_TRACE_CURL"}.isdisjoint(environment)
        assert environment.get("GIT_DIR") != "/nowhere"


@pytest.mark.slow("2 s")
def test_the_size_is_limited_while_it_grows(
    git_server: GitServer, remote: Callable[..., GitRemote], tmp_path: Path
) -> None:
    made = git_server.make_repository("large")
    made.commit({"blob": os.urandom(3 * 1024**2)})
    made.tag(TAG)
    wanted = remote(url=made.url)
    call = lambda: fetch_tag(wanted, TAG, folder=tmp_path, timeout=60, max_bytes=1024**2)  # noqa: E731
    assert refusal(call).code == "git_too_large"


def test_what_the_watcher_raises_ends_the_fetch(
    remote: Callable[..., GitRemote], tmp_path: Path
) -> None:
    def cancelled() -> None:
        raise InterruptedError("cancelled")

    with pytest.raises(InterruptedError, match="cancelled"):
        fetch_tag(remote(), TAG, folder=tmp_path, timeout=60, max_bytes=LARGE, watch=cancelled)
    # The server's own end of it is a child of this process too, and may be there a moment longer.
    ours = [each for each in children() if "git" in each.name() and "http-back" not in each.name()]
    assert not ours


# --- what a hostile repository, or this machine's own configuration, cannot do -----------------


def test_neither_hooks_nor_filters_nor_submodules_nor_links_of_a_repository_do_anything(
    git_server: GitServer, remote: Callable[..., GitRemote], tmp_path: Path
) -> None:
    made, mark = git_server.make_repository("hostile"), tmp_path / "mark"
    os.symlink("/etc/passwd", made.work / "Dockerfile")
    os.symlink("../../../../etc", made.work / "etc")
    made.commit(
        {
            ".gitattributes": "* filter=evil\nhidden export-ignore\nid export-subst\n",
            ".gitmodules": f'[submodule "x"]\n path = x\n url = ext::sh -c touch% {mark}\n',
            "hooks/post-checkout": f"#!/bin/sh\ntouch {mark}\n",
            ".gitconfig": f'[filter "evil"]\n smudge = touch {mark}\n',
            "hidden": "seen",
            "id": "$Format:%H$",
        }
    )
    made.tag(TAG)
    got = fetch_tag(remote(url=made.url), TAG, folder=tmp_path / "f", timeout=60, max_bytes=LARGE)
    with got.archive(timeout=60) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        members = {each.name: each for each in archive}
    assert {"hidden", "id", "etc", "Dockerfile"} <= set(members)
    assert members["etc"].issym()
    assert got.read("id", max_bytes=100) == b"$Format:%H$"
    assert not mark.exists()
    # Nothing of it lies on this machine as files, let alone as links.
    assert not [path for path in (tmp_path / "f").rglob("*") if path.is_symlink()]
    link = refusal(lambda: got.read("Dockerfile", max_bytes=100_000))
    assert link.code == "git_no_plain_file"
    assert refusal(lambda: got.read("hidden", max_bytes=1)).code == "git_file_too_large"


def test_the_configuration_of_this_machine_does_not_count(
    remote: Callable[..., GitRemote], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    config = tmp_path / ".gitconfig"
    config.write_text(
        f'[url "ext::sh -c touch% {mark}"]\n insteadOf = http://\n'
        f'[credential]\n helper = "!touch {mark}; echo"\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"touch {mark}")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.sshCommand'='touch {mark}'")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert [each.name for each in list_tags(remote())] == [TAG]
    assert not mark.exists()


def test_a_password_with_a_line_break_is_refused(remote: Callable[..., GitRemote]) -> None:
    failure = refusal(lambda: list_tags(remote(password="two\nlines")))
    assert isinstance(failure, GitFailed)
    assert failure.code == "git_password_characters"

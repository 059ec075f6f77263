"""The client of registries, against one that answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apps.projects.engine import registry as client
from apps.projects.engine.addresses import AddressProblem
from apps.projects.engine.registry import RegistryClient, RegistryProblem, choices
from tests.projects.registry_double import LOOPBACK, RegistryDouble, digest_of, running_registry

LIST = "/v2/team/spiders/tags/list"


@pytest.fixture
def double() -> Iterator[RegistryDouble]:
    with running_registry() as running:
        yield running


def ask(double: RegistryDouble, repository: str = "team/spiders", **options: Any) -> RegistryClient:
    values = {**double.credentials(), "allowed_networks": LOOPBACK, **options}
    return RegistryClient(double.url, repository, **values)


def problem(double: RegistryDouble, **options: Any) -> RegistryProblem:
    with pytest.raises(RegistryProblem) as refusal, ask(double, **options) as registry:
        registry.tags()
    return refusal.value


@pytest.mark.covers("S1.7")
def test_latest_first_then_descending_at_most_twenty() -> None:
    tags = [f"1.{number}" for number in range(30)] + ["latest", "2.0-rc1", "no good", "abc"]
    found = choices(tags)
    assert found[0] == "latest"
    assert "no good" not in found
    assert len(found) == 20
    assert found.index("1.29") < found.index("1.14")
    assert found.index("2.0-rc1") < found.index("1.29")
    assert choices(["1.9", "1.10", "1.9"]) == ["1.10", "1.9"]
    assert choices([]) == []
    assert choices(["9" * 100, "v1", "1" * 19])


@pytest.mark.covers("S1.7")
@pytest.mark.parametrize("auth", ["bearer", "basic", "none"])
def test_tags_and_digests(double: RegistryDouble, auth: str) -> None:
    double.auth = auth
    digest = double.push("team/spiders", "1.2")
    double.push("team/spiders", "latest")
    with ask(double) as registry:
        assert registry.tags() == ["latest", "1.2"]
        assert registry.digest("1.2") == digest
    tokens = [each for each in double.asked if "/token" in each]
    assert len(tokens) == (1 if auth == "bearer" else 0)
    assert "pass" not in "".join(double.asked)


def test_tags_come_in_pages(double: RegistryDouble) -> None:
    double.page_size = 2
    for number in range(7):
        double.push("team/spiders", f"v{number}")
    with ask(double) as registry:
        assert registry.tags() == [f"v{number}" for number in range(6, -1, -1)]


def test_a_wrong_password_and_an_unknown_repository(double: RegistryDouble) -> None:
    double.push("team/spiders", "1")
    wrong = problem(double, password="other")
    assert (wrong.code, wrong.params["status"]) == ("registry_refused", 401)
    assert "other" not in str(wrong)
    missing = problem(double, repository="team/other")
    assert (missing.code, missing.params["status"]) == ("registry_refused", 404)
    double.auth = "basic"
    assert problem(double, username="").code == "registry_refused"
    with ask(double) as registry, pytest.raises(RegistryProblem):
        registry.digest("2")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((302, {"Location": "http://169.254.169.254/"}, b""), "registry_redirects"),
        ((200, {}, b"{"), "registry_nonsense"),
        ((200, {}, b"[]"), "registry_nonsense"),
        ((200, {}, b"[" * 100_000), "registry_nonsense"),
        ((200, {}, json.dumps({"tags": "1.2"}).encode()), "registry_nonsense"),
        ((500, {}, b""), "registry_refused"),
        ((401, {"WWW-Authenticate": "Digest x"}, b""), "registry_nonsense"),
    ],
)
def test_nonsense(double: RegistryDouble, answer: Any, code: str) -> None:
    double.instead[LIST] = answer
    assert problem(double).code == code


def test_an_answer_that_is_too_long(
    double: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 1000)
    double.instead[LIST] = (200, {}, b" " * 1001)
    assert problem(double).code == "registry_too_much"


def test_a_registry_that_does_not_answer(double: RegistryDouble) -> None:
    double.hold.set()
    assert problem(double, timeout=0.3).code == "registry_too_slow"


def test_a_registry_that_is_not_there() -> None:
    with running_registry() as gone:
        pass
    assert problem(gone).code == "registry_away"


def test_the_inside_is_not_asked(double: RegistryDouble) -> None:
    with pytest.raises(AddressProblem) as refusal:
        ask(double, allowed_networks=[])
    assert refusal.value.code == "url_blocked"
    assert not double.asked


@pytest.mark.parametrize(
    "realm", ["http://169.254.169.254/token", "http://10.0.0.1/token", "file:///etc/passwd", ""]
)
def test_nor_for_a_token(double: RegistryDouble, realm: str) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'}
    double.instead[LIST] = (401, challenge, b"")
    with pytest.raises(AddressProblem), ask(double) as registry:
        registry.tags()


def test_a_challenge_without_end_holds_nobody_up(double: RegistryDouble) -> None:
    double.instead[LIST] = (401, {"WWW-Authenticate": f"Bearer {'a' * 40_000}"}, b"")
    began = time.process_time()
    with pytest.raises(AddressProblem), ask(double) as registry:
        registry.tags()
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "link",
    [
        '<http://169.254.169.254/v2/team/spiders/tags/list?n=1>; rel="next"',
        '</v2/other/tags/list>; rel="next"',
        '<//evil.example.com/v2/team/spiders/tags/list>; rel="next"',
        "nonsense",
    ],
)
def test_pages_lead_nowhere_else(double: RegistryDouble, link: str) -> None:
    double.auth = "none"
    double.instead[LIST] = (200, {"Link": link}, b'{"tags": ["1"]}')
    with ask(double) as registry:
        assert registry.tags() == ["1"]
    assert len(double.asked) == 1


def test_pages_without_an_end(double: RegistryDouble) -> None:
    double.auth = "none"
    double.instead[LIST] = (200, {"Link": f'<{LIST}?last=x>; rel="next"'}, b'{"tags": ["1"]}')
    with ask(double) as registry:
        assert registry.tags() == ["1"]
    assert len(double.asked) == client.MAX_PAGES


def test_digests_that_are_none(double: RegistryDouble) -> None:
    double.auth = "none"
    double.instead["/v2/team/spiders/manifests/1"] = (200, {"Docker-Content-Digest": "x"}, b"")
    with ask(double) as registry:
        with pytest.raises(RegistryProblem) as refusal:
            registry.digest("1")
        assert refusal.value.code == "registry_no_digest"
        with pytest.raises(RegistryProblem) as refusal:
            registry.digest("../../x")
        assert refusal.value.code == "image_tag_malformed"
    assert digest_of("x").startswith("sha256:")

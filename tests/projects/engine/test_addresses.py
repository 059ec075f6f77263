"""Which addresses git and registries are asked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.projects.engine.addresses import (
    AddressProblem,
    check_clone_url,
    check_registry_url,
    check_repository,
)

CORPUS = Path(__file__).parents[2] / "data" / "corpus"
REFUSED_URLS = json.loads((CORPUS / "git.json").read_text())["refused_clone_urls"]
HOSTS = json.loads((CORPUS / "addresses.json").read_text())
LOOPBACK = ["127.0.0.0/8"]


def code_of(url: str, **options: object) -> str:
    with pytest.raises(AddressProblem) as refusal:
        check_clone_url(url, **options)  # type: ignore[arg-type]
    return refusal.value.code


@pytest.mark.covers("S1.1")
@pytest.mark.parametrize("url", REFUSED_URLS)
def test_hostile_clone_addresses(url: str) -> None:
    # Also where the installation has opened every network there is.
    assert code_of(url)
    if "169.254" not in url:
        assert code_of(url, allowed_networks=["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "url_empty"),
        ("https://", "url_scheme"),
        ("https:///x", "url_scheme"),
        ("https://example.com", "url_without_path"),
        ("https://example.com/", "url_without_path"),
        ("https://user:word@example.com/x", "url_credentials"),
        ("https://user@example.com/x", "url_credentials"),
        ("https://:word@example.com/x", "url_credentials"),
        ("ssh://git:word@example.com/x", "url_credentials"),
        ("ssh://-oProxyCommand=id@example.com/x", "url_user"),
        ("ssh://-oProxyCommand=id/x", "url_host"),
        ("ssh://git@-x/y", "url_host"),
        ("https://example.com/x?y", "url_query"),
        ("https://example.com/x?", "url_query"),
        ("https://example.com/x#y", "url_query"),
        ("https://example.com/x y", "url_character"),
        ("https://example.com/x\n", "url_character"),
        ("https://example.com/x\t", "url_character"),
        ("https://example.com\\@evil.example/x", "url_character"),
        ("https://example.com/%2e%2e/x", "url_path"),
        ("https://example.com/a/../x", "url_path"),
        ("https://example.com/--upload-pack=x", "url_path"),
        ("https://example.com/$(id)", "url_path"),
        ("https://example.com/a;b", "url_path"),
        ("https://example.com:0/x", "url_malformed"),
        ("https://example.com:99999/x", "url_malformed"),
        ("https://[::1/x", "url_malformed"),
        ("https://" + "a" * 500 + "/x", "url_too_long"),
        ("EXT::sh -c id", "url_character"),
        ("ext::sh", "url_scheme"),
        ("http::https://example.com/x", "url_scheme"),
        ("git@example.com:team/x.git", "url_scp_form"),
        ("FILE:///etc", "url_scheme"),
        ("ftp://example.com/x", "url_scheme"),
        ("https://exa_mple..com/x", "url_host"),
    ],
)
def test_other_refusals(url: str, code: str) -> None:
    assert code_of(url) == code


def test_the_form_of_scp_is_refused_with_what_is_meant() -> None:
    with pytest.raises(AddressProblem) as refusal:
        check_clone_url("git@example.com:team/x.git")
    assert refusal.value.params == {"meant": "ssh://git@example.com/team/x.git"}


@pytest.mark.parametrize("host", HOSTS["blocked"])
def test_addresses_of_the_inside(host: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    assert code_of(f"https://{shown}/x.git") in ("url_blocked", "url_host")


@pytest.mark.parametrize("host", HOSTS["allowed"])
def test_public_addresses(host: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    assert check_clone_url(f"https://{shown}/x.git").addresses == (host,)


def test_a_name_is_looked_up_only_where_a_resolver_is_given() -> None:
    def inside(name: str) -> list[str]:
        return ["10.0.0.7"]

    url = "https://git.example.com:8443/team/x_y.git"
    assert check_clone_url(url).addresses == ()
    assert code_of(url, resolve=inside) == "url_blocked"
    opened = check_clone_url(url, resolve=inside, allowed_networks=["10.0.0.0/8"])
    assert (opened.host, opened.port, opened.path) == ("git.example.com", 8443, "/team/x_y.git")
    assert opened.addresses == ("10.0.0.7",)

    def nowhere(name: str) -> list[str]:
        return []

    assert code_of(url, resolve=nowhere) == "url_unresolved"


def test_an_installation_may_open_its_own_networks() -> None:
    assert code_of("http://127.0.0.1:3000/x.git") == "url_blocked"
    opened = check_clone_url("http://127.0.0.1:3000/x.git", allowed_networks=LOOPBACK)
    assert opened.addresses == ("127.0.0.1",)
    assert check_clone_url("ssh://git@example.com/x").user == "git"


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://registry.example.com", "registry.example.com"),
        ("https://registry.example.com/", "registry.example.com"),
        ("https://registry.example.com:5000", "registry.example.com:5000"),
        ("http://registry.example.com:80", "registry.example.com"),
    ],
)
def test_registries(url: str, authority: str) -> None:
    assert check_registry_url(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "registry.example.com",
        "ssh://registry.example.com",
        "https://registry.example.com/v2",
        "https://a:b@registry.example.com",
        "https://127.0.0.1:5000",
        "https://registry.example.com?x=1",
    ],
)
def test_no_registries(url: str) -> None:
    with pytest.raises(AddressProblem):
        check_registry_url(url)


@pytest.mark.parametrize("name", ["spiders", "team/spiders", "a/b/c", "a__b/c-d.e", "a--b"])
def test_repositories(name: str) -> None:
    assert check_repository(name) == name


@pytest.mark.parametrize("name", ["", "A", "/a", "a/", "a//b", "../a", "a b", "a?b", "a:b", "-a"])
def test_no_repositories(name: str) -> None:
    with pytest.raises(AddressProblem):
        check_repository(name)

"""When two seeds are one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies
from w3lib.url import canonicalize_url

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.keys import HASH_BYTES, canonical, key_hash, key_resolver

URL = "http://www.virjar.com/resource.html"


@pytest.mark.covers("S3.9")
def test_the_default_is_the_whole_text() -> None:
    assert key_resolver("whole")(f"{URL}#test") == f"{URL}#test"


@pytest.mark.covers("S3.9")
def test_parts_of_a_page_are_one_page() -> None:
    page = key_resolver("page")
    assert page(URL) == page(f"{URL}#test") == page(f"{URL}#a#b") == URL
    assert page(f"{URL}?x=1") != page(URL)


@pytest.mark.covers("S3.9")
def test_parameters_that_a_server_only_gives_back_are_left_out() -> None:
    resolve = key_resolver("canonical")
    assert resolve("http://h/a?id=7&callback=jQuery_123&_=1719") == "http://h/a?id=7"
    assert resolve("http://h/a?callback=x") == "http://h/a"
    timed = key_resolver("canonical", ["t", "callback"])
    assert timed("http://h/a?t=1&id=7&_=2") == timed("http://h/a?_=2&id=7&t=9")
    assert timed("http://h/a?t=1&id=7&_=2") == "http://h/a?_=2&id=7"
    assert key_resolver("canonical", [])("http://h/a?callback=x") == "http://h/a?callback=x"


def test_urls_that_mean_one_page_have_one_key() -> None:
    resolve = canonical()
    same = ["http://Host/a?b=2&a=1", "http://host/a?a=1&b=2#part", " http://host/a?a=1&b=2"]
    assert {resolve(one) for one in same} == {"http://host/a?a=1&b=2"}


def test_urls_that_differ_keep_their_keys() -> None:
    resolve = canonical()
    others = [
        "http://h/a?id=1",
        "http://h/a?id=1&id=2",
        "http://h/a?id=2",
        "http://h/a?id=",
        "http://h/A?id=1",
        "https://h/a?id=1",
        "http://h/a/?id=1",
        "http://h/a?callbacks=1",
        "http://h/a?q=中文",
        "http://h/a?q=中",
    ]
    assert len({resolve(one) for one in others}) == len(others)


@given(
    names=strategies.lists(strategies.sampled_from(["a", "b", "_", "callback", "x y", "中"])),
    value=strategies.text("ab/&=%+ ü#?", max_size=6),
)
def test_a_canonical_key_is_its_own_key(names: list[str], value: str) -> None:
    resolve = canonical()
    once = resolve("http://host/p?" + "&".join(f"{name}={value}" for name in names))
    assert resolve(once) == once


@pytest.mark.slow("2 s")
@settings(max_examples=500, deadline=None)
@given(
    host=strategies.text("a1.-", max_size=5),
    path=strategies.text("aB9/._~-%", max_size=8),
    query=strategies.text("aB_=&.-?", max_size=8),
)
def test_what_is_taken_as_it_is_was_canonical(host: str, path: str, query: str) -> None:
    url = f"http://{host}/{path}" + (f"?{query}" if query else "")
    try:
        expected = canonicalize_url(url)
    except ValueError:
        return
    assert canonical([])(url) == expected


def test_settings_of_keys_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidFrontierSetting, match="there are: canonical, page, whole"):
        key_resolver("wholly")
    with pytest.raises(InvalidFrontierSetting, match="only canonical"):
        key_resolver("whole", ["t"])


@given(strategies.text(), strategies.text())
def test_the_hash_of_a_key_stands_for_it(one: str, other: str) -> None:
    assert len(key_hash(one)) == HASH_BYTES
    assert (key_hash(one) == key_hash(other)) == (one == other)

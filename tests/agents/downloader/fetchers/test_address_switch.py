"""Answers that say "banned": another proxy, another line, or a failure that says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apps.agents.downloader.fetchers.address_switch import BANNED, BanPattern
from apps.agents.downloader.fetchers.redial import RedialOptions
from tests.agents.downloader.fetchers.conftest import Opener, get
from tests.agents.downloader.fetchers.proxy_server import serve_proxy
from tests.agents.downloader.fetchers.test_proxies import parsed
from tests.agents.downloader.fetchers.test_types import HTML, of_every_type
from tests.yardkit.web_server import Seen, WebServer, page, serve
from yardkit.fetched import Fetched
from yardkit.protocol import FailureKind, header_pairs

PATTERN = r"^HTTP 403\n|captcha|请验证"
BUSY = page(b"captcha", status="429 Slow down", headers=HTML | {"Retry-After": "17"})
GOOD = page(b"<p>wanted</p>", headers=HTML)


def answer(body: bytes, status: int = 200, content_type: str = "") -> Fetched:
    headers = [("Content-Type", content_type)] if content_type else []
    return Fetched(
        "http://a/", status, header_pairs(headers), body, FailureKind.NONE, "", 0.0, False
    )


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": GOOD}) as server:
        yield server


class Turns:
    """Answers that change with every request."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    async def __call__(self, seen: Seen) -> bytes:
        return self.answers.pop(0)


# --- the expression -----------------------------------------------------------------------------


@pytest.mark.covers("S1.28")
async def test_it_is_searched_in_status_and_text() -> None:
    switch = BanPattern(PATTERN)
    for fetched in (
        answer(b"anything", 403),
        answer(b"solve this captcha"),
        answer("请验证您是人".encode()),
        answer("请验证您是人".encode("gb18030"), content_type="text/html; charset=gb2312"),
        answer(b"x" * 300_000 + b"captcha"),
    ):
        assert await switch.matches(fetched, ""), fetched.body[:40]
    assert await switch.matches(answer("请验证".encode("big5hkscs", "replace")), "") is False
    assert await switch.matches(answer("请验证".encode("gb18030")), "gb18030")
    for fetched in (answer(b"HTTP 403"), answer(b"", 404), answer(b"\xff\xfe\x00", 200)):
        assert not await switch.matches(fetched, "")
    assert not await BanPattern("").matches(answer(b"", 403), "")


async def test_its_time_grows_with_the_text_alone() -> None:
    switch = BanPattern(r"(a+)+$")
    started = time.process_time()
    assert not await switch.matches(answer(b"a" * 200_000 + b"b"), "")
    assert time.process_time() - started < 5.0


async def test_an_odd_character_set_is_no_failure() -> None:
    for name in ("idna", "punycode", "unicode_escape", "base64", "no-such", "rot13", "utf-7"):
        assert await BanPattern("captcha").matches(
            answer(b"captcha \\u12", content_type=f"text/html; charset={name}"), ""
        )


@pytest.mark.parametrize("bad", ["(", "a{2", r"(?=look)", "x{1000}{1000}"])
def test_expressions_that_are_none(bad: str) -> None:
    if bad == "a{2":
        BanPattern(bad)  # a brace that opens nothing is a brace
        return
    with pytest.raises(ValueError, match="switch_pattern is no expression"):
        BanPattern(bad)


# --- what follows -------------------------------------------------------------------------------


@of_every_type
@pytest.mark.covers("S1.28", "S1.30")
async def test_without_another_address_it_is_a_failure(
    kind: str, site: WebServer, opener: Opener
) -> None:
    site.answers["/busy"] = BUSY
    fetched = await get(opener(kind, switch_pattern=PATTERN), site.url("/busy"))
    assert (fetched.failure, fetched.error) == (FailureKind.BANNED, BANNED)
    assert (fetched.busy_status, fetched.retry_after) == (429, "17")
    assert site.paths().count("/busy") == 1
    good = await get(opener(kind, switch_pattern=PATTERN), site.url("/"))
    assert (good.status, good.busy_status) == (200, 0)


@pytest.mark.covers("S1.28", "S1.29")
async def test_the_next_proxy_is_taken(site: WebServer, opener: Opener) -> None:
    site.answers["/turns"] = Turns(BUSY, page(b"no", status="403 No"), GOOD)
    async with serve_proxy() as a, serve_proxy() as b, serve_proxy("socks5") as c:
        equipment = opener.equip(proxies=parsed(a, b, c))
        fetcher = opener(use_proxy=True, switch_pattern=PATTERN)
        fetched = await get(fetcher, site.url("/turns"))
        assert (fetched.status, fetched.body) == (200, b"<p>wanted</p>")
        # The host is to be spared all the same.
        assert (fetched.busy_status, fetched.retry_after) == (429, "17")
        assert [len(one.targets) for one in (a, b, c)] == [1, 1, 1]
        assert len(equipment._pool.addresses) == 1, "those that are banned are dropped"


async def test_retries_are_bounded(site: WebServer, opener: Opener) -> None:
    site.answers["/busy"] = BUSY
    async with serve_proxy() as a, serve_proxy() as b, serve_proxy() as c:
        opener.equip(proxies=parsed(a, b, c), proxy_wait_seconds=0.0)
        fetcher = opener(use_proxy=True, switch_pattern=PATTERN, switch_retries=1)
        fetched = await get(fetcher, site.url("/busy"))
        assert fetched.failure == FailureKind.BANNED
        assert (fetched.busy_status, len(site.seen)) == (429, 2)
        # One proxy is left, and then none.
        again = await get(fetcher, site.url("/busy"))
        assert (again.failure, again.error) == (FailureKind.PROXY, "no proxy is free")
        assert again.busy_status == 429


@pytest.mark.covers("S1.28")
async def test_the_line_is_redialled(site: WebServer, opener: Opener, tmp_path: Path) -> None:
    site.answers["/turns"] = Turns(BUSY, GOOD)
    dialled = tmp_path / "dialled"
    options = RedialOptions(
        ("sh", "-c", f"echo x >> {dialled}"), tmp_path / "lock", site.url("/"), 0.0
    )
    opener.equip(redial=options)
    fetched = await get(opener(redial=True, switch_pattern=PATTERN), site.url("/turns"))
    assert (fetched.status, fetched.busy_status) == (200, 429)
    assert dialled.read_text() == "x\n"
    assert site.paths() == ["/turns", "/", "/turns"]


@pytest.mark.covers("S1.28")
async def test_many_banned_downloads_redial_once(
    site: WebServer, opener: Opener, tmp_path: Path
) -> None:
    dialled = tmp_path / "dialled"

    async def until_dialled(seen: Seen) -> bytes:
        await asyncio.sleep(0.01)
        return GOOD if dialled.exists() else page(b"no", status="403 No")

    site.answers["/page"] = until_dialled
    options = RedialOptions(("sh", "-c", f"echo x >> {dialled}"), tmp_path / "lock", "", 60.0)
    opener.equip(redial=options)
    fetchers = [opener(redial=True, switch_pattern=PATTERN) for _ in range(3)]
    answers = await asyncio.gather(
        *(get(fetchers[number % 3], site.url("/page")) for number in range(20))
    )
    assert [one.status for one in answers] == [200] * 20
    assert dialled.read_text() == "x\n"


async def test_a_redial_that_fails_is_a_ban(
    site: WebServer, opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.downloader.fetchers.redial._RETRY_SECONDS", 0.0)
    site.answers["/busy"] = BUSY
    opener.equip(redial=RedialOptions(("false",), tmp_path / "lock", "", 0.0))
    fetched = await get(opener(redial=True, switch_pattern=PATTERN), site.url("/busy"))
    assert fetched.failure == FailureKind.BANNED
    assert len(site.seen) == 1

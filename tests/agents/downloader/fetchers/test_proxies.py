"""Proxies of an agent: real ones, their logins, their deaths, and the pool's choice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apps.agents.downloader.fetchers import proxies
from apps.agents.downloader.fetchers.dialer import ProxyAddress
from apps.agents.downloader.fetchers.options import read_fetch_options
from apps.agents.downloader.fetchers.proxies import NoProxyFree, ProxyPool, ProxySource
from tests.agents.downloader.fetchers.conftest import Opener, get
from tests.agents.downloader.fetchers.proxy_server import ProxyServer, serve_proxy
from tests.agents.downloader.fetchers.test_types import HTML, of_every_type
from tests.yardkit.web_server import WebServer, page, redirect, serve
from yardkit.env import Env, EnvError
from yardkit.protocol import FailureKind

ONE = ProxyAddress("http", "one.example", 80)
OTHER = ProxyAddress("http", "other.example", 80)
LOGIN = ("user", "s3cret")


class Clock:
    """A clock that tests move."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(b"<p>hello</p>", headers=HTML)}) as server:
        yield server


@pytest.fixture
async def proxy() -> AsyncIterator[ProxyServer]:
    async with serve_proxy() as server:
        yield server


def parsed(*servers: ProxyServer) -> tuple[ProxyAddress, ...]:
    return tuple(ProxyAddress.parse(server.address) for server in servers)


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


# --- through real proxies -----------------------------------------------------------------------


@of_every_type
@pytest.mark.parametrize("login", [None, LOGIN])
@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.covers("S1.28")
async def test_pages_come_through_a_proxy(
    kind: str,
    scheme: str,
    login: tuple[str, str] | None,
    site: WebServer,
    opener: Opener,
    names: dict[str, list[str]],
) -> None:
    names |= {"here.example": ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"]}
    async with serve_proxy(scheme, login) as proxy:
        opener.equip(proxies=parsed(proxy))
        fetched = await get(opener(kind, use_proxy=True), f"http://here.example:{site.port}/")
        assert (fetched.failure, fetched.status) == ("", 200), fetched
        # By its name: the proxy looks it up itself.
        assert set(proxy.targets) == {("here.example", site.port)}
        asked = len(proxy.targets)
        assert not [name for name in site.seen[0].headers if name.startswith("proxy-")]
        direct = await get(opener(kind), site.url("/"))
        assert direct.status == 200
        assert len(proxy.targets) == asked


@pytest.mark.parametrize("kind", ["http", "impersonate"])
async def test_tls_goes_through_a_tunnel(
    kind: str, opener: Opener, proxy: ProxyServer, site: WebServer
) -> None:
    opener.equip(proxies=parsed(proxy))
    url = f"https://127.0.0.1:{closed_port()}/"
    fetched = await get(opener(kind, use_proxy=True), url)
    # The proxy works, and says that the target does not.
    assert fetched.failure == FailureKind.CONNECTION, fetched
    assert len(proxy.targets) == 1


@of_every_type
async def test_the_guard_holds_through_a_proxy(
    kind: str, site: WebServer, opener: Opener, proxy: ProxyServer, names: dict[str, list[str]]
) -> None:
    names |= {"inside.example": ["10.0.0.1"], "here.example": ["127.0.0.1"]}
    names["127.0.0.1"] = ["127.0.0.1"]
    site.answers |= {
        "/inside": redirect("http://10.0.0.1/"),
        "/metadata": redirect("https://169.254.169.254/"),
    }
    opener.equip(proxies=parsed(proxy))
    fetcher = opener(kind, use_proxy=True)
    here = f"http://here.example:{site.port}"
    for url in (
        f"http://inside.example:{site.port}/",
        "http://[::1]:8000/",
        f"{here}/inside",
        f"{here}/metadata",
    ):
        fetched = await get(fetcher, url)
        assert fetched.failure == FailureKind.ADDRESS_REFUSED, (url, fetched)
    assert {host for host, _ in proxy.targets} == {"here.example"}


@of_every_type
@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_wrong_login(kind: str, scheme: str, site: WebServer, opener: Opener) -> None:
    async with serve_proxy(scheme, LOGIN) as proxy:
        wrong = ProxyAddress(scheme, "127.0.0.1", proxy.port, "user", "wr0ng-pass")
        opener.equip(proxies=(wrong,), proxy_wait_seconds=0.0)
        fetched = await get(opener(kind, use_proxy=True, switch_retries=0), site.url("/"))
        assert fetched.failure == FailureKind.PROXY, fetched
        assert "wr0ng-pass" not in fetched.error
        assert proxy.refused == 1
        assert proxy.targets == []


@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
@pytest.mark.parametrize("kind", ["http", "impersonate"])
async def test_a_dead_proxy_is_passed_over(
    kind: str, scheme: str, site: WebServer, opener: Opener, proxy: ProxyServer
) -> None:
    """What never left is sent again through the next one, whatever its method."""
    dead = ProxyAddress(scheme, "127.0.0.1", closed_port())
    opener.equip(proxies=(dead, *parsed(proxy)))
    fetcher = opener(kind, use_proxy=True)
    for _ in range(3):
        fetched = await get(fetcher, site.url("/"), method="POST", body=b"a")
        assert fetched.status == 200, fetched
    assert len(site.seen) == 3


async def test_one_that_hangs_up(site: WebServer, opener: Opener, proxy: ProxyServer) -> None:
    proxy.broken = True
    opener.equip(proxies=parsed(proxy), proxy_wait_seconds=0.0)
    fetched = await get(opener(use_proxy=True), f"https://127.0.0.1:{site.port}/")
    # It rests after its failure, and there is no other.
    assert (fetched.failure, fetched.error) == (FailureKind.PROXY, "no proxy is free")


async def test_cookies_survive_a_change_of_proxy(site: WebServer, opener: Opener) -> None:
    site.answers["/login"] = page(b"", headers={"Set-Cookie": "session=abc; Path=/"})
    async with serve_proxy() as one, serve_proxy() as other:
        opener.equip(proxies=parsed(one, other))
        fetcher = opener(use_proxy=True)
        await get(fetcher, site.url("/login"))
        for _ in range(3):
            await get(fetcher, site.url("/"))
        assert one.targets
        assert other.targets
    assert [seen.headers.get("cookie") for seen in site.seen[1:]] == ["session=abc"] * 3


async def test_nobody_else_gets_out_through_the_gate(site: WebServer, opener: Opener) -> None:
    fetcher = opener("impersonate")
    assert (await get(fetcher, site.url("/"))).status == 200
    (gate,) = fetcher._gates.values()  # type: ignore[attr-defined]
    asked = len(site.seen)
    for login in ("", "Proxy-Authorization: Basic YWdlbnQ6\r\n"):
        reader, writer = await asyncio.open_connection(*gate.address)
        writer.write(f"GET {site.url('/')} HTTP/1.1\r\n{login}\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 407")
        writer.close()
    assert len(site.seen) == asked


async def test_use_proxy_without_any(opener: Opener) -> None:
    with pytest.raises(ValueError, match=r"no proxy: set AGENT_PROXIES"):
        opener(use_proxy=True)


# --- the pool -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def pool_of(
    *addresses: ProxyAddress, works: list[bool] | None = None
) -> AsyncIterator[tuple[ProxyPool, Clock]]:
    clock = Clock()

    async def validate(address: ProxyAddress) -> bool:
        assert works is not None
        return works.pop(0)

    pool = ProxyPool(addresses, clock=clock, validate=validate if works is not None else None)  # type: ignore[arg-type]
    yield pool, clock
    await pool.close()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.covers("S1.29")
async def test_the_one_with_the_fewest_failures_is_next() -> None:
    async with pool_of(ONE, OTHER) as (pool, clock):
        taken = []
        for _ in range(4):
            clock.seconds += 1
            taken.append(await pool.take(0))
        assert sorted(map(str, taken[:2])) == sorted(map(str, taken[2:])) == [str(ONE), str(OTHER)]
        pool.failed(ONE)
        clock.seconds += 60
        assert [await pool.take(0) for _ in range(3)] == [OTHER] * 3
        pool.succeeded(ONE)
        clock.seconds += 1
        assert await pool.take(0) == ONE


@pytest.mark.covers("S1.29")
async def test_a_failed_one_rests_half_a_second_a_failure() -> None:
    async with pool_of(ONE) as (pool, clock):
        for failures in range(1, 6):
            pool.failed(ONE)
            clock.seconds += 0.5 * failures - 0.01
            with pytest.raises(NoProxyFree, match="no proxy is free"):
                await pool.take(0)
            clock.seconds += 0.02
            assert await pool.take(0) == ONE


@pytest.mark.covers("S1.29")
async def test_six_failures_drop_it(caplog: pytest.LogCaptureFixture) -> None:
    async with pool_of(ONE, OTHER) as (pool, clock):
        for _ in range(5):
            pool.failed(ONE)
        assert set(pool.addresses) == {ONE, OTHER}
        pool.failed(ONE)
        assert pool.addresses == (OTHER,)
        assert "one.example:80 dropped: 6 failures; 1 left" in caplog.text
        # Ten minutes later it has another chance, if its list still has it.
        clock.seconds += proxies.DROPPED_SECONDS - 1
        pool.set_listed(())
        assert pool.addresses == (OTHER,)
        clock.seconds += 2
        await pool.take(0)
        assert set(pool.addresses) == {ONE, OTHER}


@pytest.mark.covers("S1.29")
async def test_every_third_failure_is_checked() -> None:
    async with pool_of(ONE, works=[True, True, False]) as (pool, _):
        assert pool.blames_the_way
        for _ in range(2):
            for _ in range(3):
                pool.failed(ONE)
            with pytest.raises(NoProxyFree):
                await pool.take(0)  # not while it is being checked
            await settle()
            assert await pool.take(0) == ONE
        for _ in range(3):
            pool.failed(ONE)
        await settle()
        assert pool.addresses == ()


@pytest.mark.covers("S1.29")
async def test_a_proxy_is_waited_for() -> None:
    async with pool_of() as (pool, _):
        waiting = asyncio.ensure_future(pool.take(60))
        await settle()
        assert not waiting.done()
        pool.set_listed([ONE])
        assert await asyncio.wait_for(waiting, 30) == ONE


@pytest.mark.covers("S1.29")
async def test_checks_and_source_by_real_servers(
    site: WebServer, opener: Opener, proxy: ProxyServer, caplog: pytest.LogCaptureFixture
) -> None:
    site.answers["/list"] = page(
        f"# mine\n{proxy.address.replace('//', '//user:pw-in-list@')}\n\nftp://x:1\n".encode()
    )
    validate = proxies.validator(site.url("/"))
    assert validate is not None
    pool = ProxyPool((), clock=Clock(), validate=validate)  # type: ignore[arg-type]
    source = ProxySource(site.url("/list"), 0.01, pool)
    source.start()
    address = await pool.take(60)
    assert address.port == proxy.port
    assert await validate(address)
    assert proxy.targets == [("127.0.0.1", site.port)]
    site.answers["/"] = page(b"", status="500 Broken")
    assert not await validate(address)
    site.answers["/list"] = page(b"", status="500 Broken")
    await source.fetch()
    assert pool.addresses == (address,), "a source that is away changes nothing"
    site.answers["/list"] = page(b"")
    async with asyncio.timeout(30):
        while pool.addresses:
            await asyncio.sleep(0.01)
    await source.close()
    await pool.close()
    proxy.broken = True
    assert not await validate(address)
    assert "proxy source has 1 invalid lines" in caplog.text
    assert "pw-in-list" not in caplog.text


# --- settings -----------------------------------------------------------------------------------


def test_addresses(tmp_path: Path) -> None:
    options = read_fetch_options(
        Env({"AGENT_PROXIES": "http://u:p%2C%40s@a.example:81, b.example\nsocks5h://[::1]"}),
        tmp_path,
    )
    assert options.proxies == (
        ProxyAddress("http", "a.example", 81, "u", "p,@s"),
        ProxyAddress("http", "b.example", 80),
        ProxyAddress("socks5", "::1", 1080),
    )
    assert [str(one) for one in options.proxies] == [
        "http://a.example:81",
        "http://b.example:80",
        "socks5://[::1]:1080",
    ]
    assert "p,@s" not in repr(options)
    file = tmp_path / "proxies"
    file.write_text("http://a.example:1\nhttp://b.example:2\n")
    assert len(read_fetch_options(Env({"AGENT_PROXIES_FILE": str(file)}), tmp_path).proxies) == 2


@pytest.mark.parametrize(
    "bad", ["ftp://u:s3cret@h", "http://u:s3cret@", "http://u:s3cret@h/path", "http://u:s3cret@h:x"]
)
def test_bad_addresses_are_refused_without_their_password(bad: str, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="AGENT_PROXIES: number 2: ") as caught:
        read_fetch_options(Env({"AGENT_PROXIES": f"http://a.example,{bad}"}), tmp_path)
    assert "s3cret" not in str(caught.value)


async def test_no_password_is_logged(
    site: WebServer, opener: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dead = ProxyAddress("http", "127.0.0.1", closed_port(), "user", "pr0xy-pass")
    opener.equip(proxies=(dead,), proxy_wait_seconds=0.0)
    equipment = opener.equipments[0]
    fetched = await get(opener(use_proxy=True), site.url("/"))
    assert fetched.failure == FailureKind.PROXY
    equipment._pool.drop(dead, "test")
    for text in (caplog.text, fetched.error, repr(dead), str(dead), repr(equipment.options)):
        assert "pr0xy-pass" not in text

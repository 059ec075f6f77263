"""The web that ``bench download --profile web`` crawls: its addresses and pages, and their parser.

All sides use ``parse``, so that they differ in what surrounds it.
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec
from selectolax.lexbor import LexborHTMLParser

from yardspider.links import resolve_all

HOSTS: Final = 5000
# One in twenty is dead, and one in twenty slow.
DEAD_HOSTS: Final = HOSTS // 20
LIVING_HOSTS: Final = HOSTS - DEAD_HOSTS
SLOW_EVERY: Final = LIVING_HOSTS * 20 // HOSTS
SLOW_SECONDS: Final = 1.5
TIMEOUT_SECONDS: Final = 10.0
# Limits of one host, the same for all sides.
REQUESTS_PER_SECOND: Final = 2
HOST_CONCURRENCY: Final = 1
CONCURRENCY: Final = 128
USER_AGENT: Final = "CrawlyardBench"
PAGE_BYTES: Final = 100_000
LINKS: Final = 50
ROBOTS: Final = b"User-agent: *\nDisallow: /private/\n"
_PRIVATE_EVERY: Final = 100
_VARIANTS: Final = 32
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


class Web(msgspec.Struct, frozen=True):
    """A web of ``pages`` pages on living hosts.

    ``ports``: of the servers. ``refusing``, ``silent``: of the two kinds of dead hosts.
    """

    pages: int
    ports: list[int]
    refusing: int
    silent: int

    @property
    def first(self) -> str:
        """Address of the page from which all others are reached."""
        return self.address(0)

    def address(self, number: int) -> str:
        """Return the address of a page on a living host."""
        host = number % LIVING_HOSTS
        return f"https://h{host}.localhost:{self.ports[host % len(self.ports)]}/p/{number}.html"

    def dead_address(self, number: int) -> str:
        """Return an address on a dead host."""
        host = number % DEAD_HOSTS
        port = self.silent if host % 2 else self.refusing
        return f"https://d{host}.localhost:{port}/p/{number}.html"

    def links(self, number: int) -> Iterator[str]:
        """Yield the links of a page: to other hosts, and on its own as most sites have them."""
        for step in range(1, LINKS + 1):
            yield self.address((number * LINKS + step) % self.pages)
        if number % SLOW_EVERY == 0:
            yield self.dead_address(number // SLOW_EVERY)
        if number % _PRIVATE_EVERY == 3:
            yield f"/private/{number}.html"
        yield from (f"{number}.html#part-{part}" for part in range(LINKS))


def is_slow(path_number: int) -> bool:
    """Return whether the host of this page is slow."""
    return path_number % LIVING_HOSTS % SLOW_EVERY == 7


def compressed_page(web: Web, number: int) -> bytes:
    """Return a page as gzip: its own beginning, and the rest as one of a few variants.

    The rest is compressed once, so that a server costs little beside its clients.
    """
    links = "".join(
        f'<li class="menu-item"><a class="menu-link" href="{address}">Article</a></li>\n'
        for address in web.links(number)
    )
    head = (
        f"<!doctype html>\n<html><head><meta charset=utf-8><title>Page {number}</title></head>\n"
        f"<body><nav><ul>{links}</ul></nav>\n"
    ).encode()
    deflate = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
    begun = deflate.compress(head) + deflate.flush(zlib.Z_FULL_FLUSH)
    rest, ended = _rest(number % _VARIANTS)
    check = zlib.crc32(rest, zlib.crc32(head))
    size = len(head) + len(rest)
    tail = check.to_bytes(4, "little") + size.to_bytes(4, "little")
    return b"".join((_GZIP_HEADER, begun, ended, tail))


@functools.cache
def _rest(variant: int) -> tuple[bytes, bytes]:
    """Return the text of a page and the end of a deflate stream with it."""
    chance = random.Random(variant)  # noqa: S311 - the same pages for every run
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(3000)]
    ranks = [1 / (rank + 3) for rank in range(len(words))]
    parts: list[str] = []
    size, number = 0, 0
    while size < PAGE_BYTES - 12_000:
        number += 1
        text = " ".join(chance.choices(words, ranks, k=chance.randint(15, 60)))
        part = (
            f'<div class="row entry entry-{number}" data-id="{chance.getrandbits(32):08x}">'
            f'<h2 class="entry-title">{chance.choice(words)}</h2>\n'
            f'<p class="entry-text">{text}</p>\n<span class="entry-meta meta">'
            f'<time datetime="2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}">'
            f"{chance.choice(words)}</time></span></div>\n"
        )
        parts.append(part)
        size += len(part)
    rest = ("".join(parts) + "</body></html>\n").encode()
    deflate = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
    return rest, deflate.compress(rest) + deflate.flush()


def parse(url: str, body: bytes) -> tuple[str, list[str]]:
    """Return the title of a page and its links, absolute and each once."""
    document = LexborHTMLParser(body)
    hrefs = [node.attributes.get("href") for node in document.css("a[href]")]
    title = document.css_first("title")
    return (title.text() if title is not None else "", resolve_all(url, hrefs))

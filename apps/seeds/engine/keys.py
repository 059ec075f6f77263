"""Key resolvers (seed S3.9): from a seed to the key that identifies it, and the key's hash."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from w3lib.url import canonicalize_url, url_query_cleaner

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.extensions import load_extension

GROUP: Final = "crawlyard.resolvers"
HASH_BYTES: Final = 16

# What a server only gives back (JSONP) or what only keeps caches away (jQuery's "_"). Names that
# some server may read are not among them: a wrong guess would merge different pages.
IGNORED_PARAMETERS: Final = ("callback", "jsonp", "jsoncallback", "jsonpcallback", "_")

# Fast path for URLs that are canonical already, ten times as fast.
_PLAIN: Final = re.compile(
    r"https?://[a-z0-9][a-z0-9.-]*(?:/(?!\.)[A-Za-z0-9._~-]*)+(?:\?([A-Za-z0-9_-]+)=[A-Za-z0-9_.-]+)?"
)

# From a seed's data to its key. Any exception refuses that one seed.
KeyResolver = Callable[[str], str]


def whole(data: str) -> str:
    """The key is the whole text."""
    return data


def page(data: str) -> str:
    """Everything before ``#``: a page is one seed, whichever part of it a link leads to."""
    return data.partition("#")[0]


def canonical(ignored: Sequence[str] = IGNORED_PARAMETERS) -> KeyResolver:
    """The URL as Scrapy compares it, without the ``ignored`` parameters.

    Parameters are sorted, the fragment goes, the host is in lower case, letters are escaped alike.
    """
    names = tuple(ignored)

    def resolve(data: str) -> str:
        plain = _PLAIN.fullmatch(data)
        if plain and plain[1] not in names:
            return data
        url: str = canonicalize_url(data)
        if names and "?" in url:
            # unique would merge ?id=1&id=2 with ?id=1.
            url = url_query_cleaner(url, names, remove=True, unique=False)
        return url

    return resolve


def key_resolver(name: str, ignored: Sequence[str] | None = None) -> KeyResolver:
    """The resolver called ``name``: ``whole``, ``page``, ``canonical``, or an entry point.

    ``ignored``: parameters for ``canonical``; None: ``IGNORED_PARAMETERS``.

    Raises:
        InvalidFrontierSetting: nothing has that name, or it cannot be loaded.
    """
    if name != "canonical" and ignored is not None:
        raise InvalidFrontierSetting(f"only canonical leaves out parameters, {name!r} does not")
    if name == "canonical":
        return canonical(IGNORED_PARAMETERS if ignored is None else ignored)
    built_in: dict[str, KeyResolver] = {"whole": whole, "page": page}
    if name in built_in:
        return built_in[name]
    resolver: KeyResolver = load_extension(GROUP, name, (*built_in, "canonical"))
    return resolver


def key_hash(key: str) -> bytes:
    """Return a 16-byte collision-resistant hash of ``key``."""
    # Half characters, which no stored key has, are only looked for in vain.
    return blake2b(key.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()

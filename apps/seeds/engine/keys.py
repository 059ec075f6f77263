"""Key resolvers: compute the key that identifies a seed, and its hash."""

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

# Parameters that a server only echoes (JSONP) or that only defeat caches (jQuery's "_"). Names that
# some server may read are left out: a wrong guess would merge different pages.
IGNORED_PARAMETERS: Final = ("callback", "jsonp", "jsoncallback", "jsonpcallback", "_")

# Fast path for URLs that are already canonical, ten times as fast.
_PLAIN: Final = re.compile(
    r"https?://[a-z0-9][a-z0-9.-]*(?:/(?!\.)[A-Za-z0-9._~-]*)+(?:\?([A-Za-z0-9_-]+)=[A-Za-z0-9_.-]+)?"
)

# Computes a seed's key from its data. Any exception rejects that one seed.
KeyResolver = Callable[[str], str]


def whole(data: str) -> str:
    """Return the whole text as the key."""
    return data


def page(data: str) -> str:
    """Return everything before ``#``: all fragments of a page are one seed."""
    return data.partition("#")[0]


def canonical(ignored: Sequence[str] = IGNORED_PARAMETERS) -> KeyResolver:
    """Return a resolver that normalizes URLs as Scrapy does and drops the ``ignored`` parameters.

    Parameters are sorted, the fragment is dropped, the host is lower-cased, escapes are normalized.
    """
    names = tuple(ignored)

    def resolve(data: str) -> str:
        plain = _PLAIN.fullmatch(data)
        if plain and plain[1] not in names:
            return data
        url: str = canonicalize_url(data)
        if names and "?" in url:
            # unique=True would treat ?id=1&id=2 as ?id=1.
            url = url_query_cleaner(url, names, remove=True, unique=False)
        return url

    return resolve


def key_resolver(name: str, ignored: Sequence[str] | None = None) -> KeyResolver:
    """Return the resolver called ``name``: ``whole``, ``page``, ``canonical``, or an entry point.

    ``ignored``: parameters for ``canonical``; None: ``IGNORED_PARAMETERS``.

    Raises:
        InvalidFrontierSetting: the name is unknown, or the resolver cannot be loaded.
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
    # Lone surrogates occur in no stored key, so such a lookup finds nothing.
    return blake2b(key.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()

"""Signed addresses of objects."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.plugins.s3_server import Bucket
from yardkit.objects import BadObjectsURL, ObjectStoreUnavailable, open_objects
from yardkit.objects.signing import AddressInvalid, AddressSigner

BASE = "https://objects.example/objects"
KEY = "bodies/p1/run-7/b a%20价"


def parts(address: str) -> tuple[str, str]:
    found = urlsplit(address.removeprefix(f"{BASE}/"))
    return found.path, found.query


@pytest.mark.covers("OB.1")
def test_an_address_gives_its_method_on_its_object_until_it_expires() -> None:
    signer = AddressSigner(BASE, "s3cret")
    path, query = parts(signer.sign("GET", KEY, 1000))
    assert signer.key_of("GET", path, query, 999.9) == KEY
    with pytest.raises(AddressInvalid, match="expired"):
        signer.key_of("GET", path, query, 1000)
    for method in ("PUT", "DELETE", "POST", "HEAD"):
        with pytest.raises(AddressInvalid, match="signature"):
            signer.key_of(method, path, query, 0)
    with pytest.raises(AddressInvalid, match="signature"):
        AddressSigner(BASE, "another").key_of("GET", path, query, 0)


@pytest.mark.covers("OB.1")
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("bodies/p1/run-7/another", "{query}"),
        ("{path}", "{query}0"),
        ("{path}", "e=99999999999&{query}"),
        ("{path}", "{query}&e=99999999999"),
        ("{path}", "e=2000"),
        ("{path}", ""),
        ("{path}/..", "{query}"),
        ("../{path}", "{query}"),
        ("bodies//p1", "{query}"),
        ("bodies/%2e%2e/secret", "{query}"),
        ("bodies/%FF", "{query}"),
        ("", "{query}"),
        ("{path}", "e=x&s=%ff%ff"),
    ],
)
def test_what_is_altered_is_refused(path: str, query: str) -> None:
    signer = AddressSigner(BASE, "s3cret")
    good_path, good_query = parts(signer.sign("GET", KEY, 1000))
    with pytest.raises(AddressInvalid):
        signer.key_of("GET", path.format(path=good_path), query.format(query=good_query), now=500.0)


def test_bad_keys_and_methods_are_not_signed() -> None:
    signer = AddressSigner(BASE, "s3cret")
    for method, key in (("GET", "../a"), ("GET", "a//b"), ("POST", "a"), ("GET", ".hidden")):
        with pytest.raises(ValueError, match=r"no key|no method"):
            signer.sign(method, key, 1000)
    with pytest.raises(ValueError, match="secret"):
        AddressSigner(BASE, "")


def test_a_folder_signs_only_with_an_object_server(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreUnavailable, match="OBJECTS_PUBLIC_URL"):
        open_objects(f"file://{tmp_path}").sign("GET", "a", 60)
    store = open_objects(f"file://{tmp_path}", public_url=f"{BASE}/", signing_secret="s3cret")
    address = store.sign("GET", "a/b", 60)
    assert address.startswith(f"{BASE}/a/b?")
    key = AddressSigner(BASE, "s3cret").key_of("GET", *parts(address), time.time() + 58)
    assert key == "a/b"
    for bad in ("objects.example", "ftp://a", "https://u:p@a", "https://a?b", "http://a:0"):
        with pytest.raises(BadObjectsURL, match="public address"):
            open_objects(f"file://{tmp_path}", public_url=bad)


@pytest.mark.covers("OB.1")
async def test_addresses_of_a_bucket(s3_bucket: Bucket) -> None:
    store = s3_bucket.open()
    async with aiohttp.ClientSession() as session:
        # moto checks expiry, not signatures: those are S3's.
        put = await session.put(store.sign("PUT", "bodies/p1/a b", 60), data=b"content")
        assert put.status == 200
        assert store.get("bodies/p1/a b") == b"content"
        got = await session.get(store.sign("GET", "bodies/p1/a b", 60))
        assert await got.read() == b"content"
        gone = await session.delete(store.sign("DELETE", "bodies/p1/a b", 60))
        assert gone.status == 204
    public = open_objects(
        s3_bucket.url,
        access_key="key",
        secret_key="never shown",
        public_url="https://public.example",
    )
    address = public.sign("GET", "a", 60)
    assert address.startswith("https://public.example/")
    assert "never" not in address

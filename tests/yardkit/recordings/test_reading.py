"""Recordings of every kind are read alike: by request, in order, as received."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.yardkit.recordings.writers import WarcRecorder
from yardkit.recordings import Recorded, Recording, RecordingError, open_recording
from yardkit.recordings.base import canonical

pytestmark = pytest.mark.covers("OB.5")

SHOP = "https://shop.example"


def get(recording: Recording, url: str, nth: int = 0, limit: int = 1000) -> Recorded:
    found = recording.find("GET", url, b"", nth, limit)
    assert found is not None, url
    return found


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTPS://Shop.Example:443", f"{SHOP}/"),
        (f"{SHOP}/a/../b?y=2&x=1#part", f"{SHOP}/b?x=1&y=2"),
        (f"{SHOP}/a%7eb c?q=%e4%BD%a0", f"{SHOP}/a~b%20c?q=你"),
        ("https://user:secret@shop.example/", f"{SHOP}/"),
        ("http://shop.example:8080/", "http://shop.example:8080"),
    ],
)
def test_addresses_are_compared_in_canonical_form(url: str, same: str) -> None:
    assert canonical(url) == canonical(same)


def test_other_addresses_differ() -> None:
    forms = {canonical(url) for url in (SHOP, "http://shop.example", f"{SHOP}:8443", f"{SHOP}/?a")}
    assert len(forms) == 4


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_warc_responses_are_as_received(tmp_path: Path, name: str) -> None:
    packed = gzip.compress(b"<p>packed</p>")
    warc = WarcRecorder(tmp_path / name)
    headers = (("Content-Type", "text/html"), ("X-A", "1"), ("X-A", "2"), ("X-B", "é"))
    warc.add(f"{SHOP}/1", b"<p>one</p>", headers=headers)
    warc.add(f"{SHOP}/2", packed, headers=(("Content-Encoding", "gzip"),))
    chunked = (("Transfer-Encoding", "chunked"),)
    warc.add(f"{SHOP}/3", b"5\r\nhello\r\n0\r\n\r\n", headers=chunked)
    warc.add(f"{SHOP}/4", b"joined already", headers=chunked)
    fields = {"WARC_IP_Address": "192.0.2.7", "Crawlyard_Final_URI": f"{SHOP}/last"}
    warc.add(f"{SHOP}/5", b"gone", status="404 Not Found", **fields)
    warc.add(f"{SHOP}/6", b"par", WARC_Truncated="disconnect")
    recording = open_recording(tmp_path / name)
    one = get(recording, f"{SHOP}/1")
    assert (one.status, one.body, one.protocol) == (200, b"<p>one</p>", "HTTP/1.1")
    assert one.headers[1:] == [(b"X-A", b"1"), (b"X-A", b"2"), (b"X-B", "é".encode())]
    assert get(recording, f"{SHOP}/2").body == packed
    assert get(recording, f"{SHOP}/3").body == b"hello"
    assert get(recording, f"{SHOP}/4").body == b"joined already"
    gone = get(recording, f"{SHOP}/5")
    assert (gone.status, gone.peer, gone.url) == (404, "192.0.2.7", f"{SHOP}/last")
    assert get(recording, f"{SHOP}/6").cut == "disconnect"
    assert recording.find("GET", f"{SHOP}/7", b"", 0, 10) is None
    assert get(recording, f"{SHOP}/1", limit=4).body == b"<p>on"
    recording.close()


@pytest.mark.parametrize("request_first", [True, False])
def test_warc_requests_are_told_apart_by_method_and_body(
    tmp_path: Path, request_first: bool
) -> None:
    warc = WarcRecorder(tmp_path / "a.warc.gz")
    warc.add(f"{SHOP}/s", b"form", method="GET", request_first=request_first)
    for word in (b"q=1", b"q=2"):
        warc.add(f"{SHOP}/s", word, method="POST", sent=word, request_first=request_first)
    warc.add(f"{SHOP}/s", b"", method="HEAD", request_first=request_first)
    recording = open_recording(tmp_path / "a.warc.gz")
    assert get(recording, f"{SHOP}/s").body == b"form"
    assert get(recording, f"{SHOP}/s").is_last
    for word in (b"q=1", b"q=2"):
        found = recording.find("POST", f"{SHOP}/s", word, 0, 100)
        assert found is not None
        assert found.body == word
    assert recording.find("POST", f"{SHOP}/s", b"q=3", 0, 100) is None
    assert recording.find("HEAD", f"{SHOP}/s", b"", 0, 100) is not None


def test_repeated_fetches_come_in_order_over_files(tmp_path: Path) -> None:
    for number, name in enumerate(("1.warc.gz", "sub/2.warc", "sub/3.har")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name.endswith(".har"):
            write_har(tmp_path / name, entry(f"{SHOP}/", text=f"{number}"))
            continue
        warc = WarcRecorder(tmp_path / name)
        warc.add(f"{SHOP}/", f"{number}".encode())
    recording = open_recording(tmp_path)
    found = [get(recording, f"{SHOP}/", nth) for nth in range(3)]
    assert [each.body for each in found] == [b"0", b"1", b"2"]
    assert [each.is_last for each in found] == [False, False, True]


def test_a_revisit_has_the_body_of_the_record_it_names(tmp_path: Path) -> None:
    warc = WarcRecorder(tmp_path / "a.warc.gz")
    warc.add(f"{SHOP}/a", b"same body")
    warc.add(f"{SHOP}/b", status="203 Other", revisits=b"same body")
    found = get(open_recording(tmp_path / "a.warc.gz"), f"{SHOP}/b")
    assert (found.status, found.body) == (203, b"same body")


def entry(url: str, *, text: str = "", method: str = "GET", **response: Any) -> dict[str, Any]:
    """Return an entry of a HAR file; ``sent``: body of the request."""
    request: dict[str, Any] = {"url": url, "method": method, "headers": []}
    sent = response.pop("sent", None)
    if sent is not None:
        request["postData"] = {"mimeType": "x", "text": sent}
    content = {"size": 1, "mimeType": "text/html", "text": text}
    content |= response.pop("content", {})
    whole = {"status": 200, "httpVersion": "h2", "headers": [], "content": content} | response
    return {"request": request, "response": whole, "serverIPAddress": "[2001:db8::1]"}


def write_har(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))


def test_har_files(tmp_path: Path) -> None:
    pixel = bytes(range(256))
    headers = [
        {"name": ":status", "value": "200"},
        {"name": "content-type", "value": "text/html; charset=gbk"},
        {"name": "content-encoding", "value": "br"},
        {"name": "set-cookie", "value": "a=1\nb=2"},
    ]
    binary = {"text": base64.b64encode(pixel).decode(), "encoding": "base64"}
    write_har(
        tmp_path / "a.har",
        entry(f"{SHOP}/zh", text="中文", headers=headers),
        entry(f"{SHOP}/zh", text="第二", headers=headers),
        entry(f"{SHOP}/p.png", content=binary, headers=headers[1:2]),
        entry(f"{SHOP}/api", method="POST", sent='{"q": 1}', text="[]"),
        entry(f"{SHOP}/blocked", status=0),
    )
    recording = open_recording(tmp_path / "a.har")
    page = get(recording, f"{SHOP}/zh")
    assert page.body.decode() == "中文"
    assert page.headers == [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]
    assert (page.peer, page.is_last) == ("2001:db8::1", False)
    assert get(recording, f"{SHOP}/zh", 1).body.decode() == "第二"
    image = get(recording, f"{SHOP}/p.png")
    assert (image.body, image.headers) == (pixel, [(b"content-type", b"text/html; charset=gbk")])
    answer = recording.find("POST", f"{SHOP}/api", b'{"q": 1}', 0, 100)
    assert answer is not None
    assert answer.body == b"[]"
    assert recording.find("GET", f"{SHOP}/blocked", b"", 0, 100) is None
    recording.close()


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("/", "index.html"),
        ("/", "index.json"),
        ("/list", "list"),
        ("/list", "list.xml"),
        ("/list", "list/index.html"),
        ("/list/", "list/index.html"),
        ("/list.html?page=2", "list.html?page=2"),
        ("/list?page=2&a=1", "list?a=1&page=2.html"),
        ("/list?page=2", "list@page=2"),
        ("/?page=2", "index.html?page=2"),
        ("/list/?page=2", "list/?page=2.json"),
        ("/a b/中", "a b/中.html"),
        ("/a%20b", "a%20b"),
        ("/s?u=x/y", "s?u=x%2Fy"),
    ],
)
def test_folders_are_mapped_to_addresses(tmp_path: Path, url: str, file: str) -> None:
    path = tmp_path / "shop.example" / file
    path.parent.mkdir(parents=True)
    path.write_text("content")
    recording = open_recording(tmp_path)
    assert get(recording, SHOP + url).body == b"content"
    assert recording.find("POST", SHOP + url, b"", 0, 100) is None
    assert recording.find("GET", f"{SHOP}:444{url}", b"", 0, 100) is None
    assert recording.find("GET", f"{SHOP}/other?{url}", b"", 0, 100) is None


def test_types_and_statuses_of_a_folder(tmp_path: Path) -> None:
    host = tmp_path / "shop.example:8443"
    host.mkdir()
    for name in ("a", "b.json", "c.json?q=1", "d?q=1.xml", "e.bin.gz", "f.unknown"):
        (host / name).write_text("x")
    (host / "gone.html").write_text("no")
    (host / "gone.html.headers").write_text("HTTP/1.0 404 Not Found\nX-A: 1\nContent-Type: a/b\n")
    (host / "moved.headers").write_text("301\nLocation: /a\n")
    recording = open_recording(tmp_path)
    base = f"{SHOP}:8443"
    types = {
        "/a": b"text/html",
        "/b.json": b"application/json",
        "/c.json?q=1": b"application/json",
        "/d?q=1": b"text/xml",
        "/e.bin.gz": b"application/gzip",
        "/f.unknown": b"application/octet-stream",
    }
    found = {url: get(recording, base + url).headers for url in types}
    expected = {url: [(b"Content-Type", kind)] for url, kind in types.items()}
    expected["/d?q=1"] = found["/d?q=1"]  # text/xml or application/xml, by the system's list
    assert found == expected
    assert b"xml" in found["/d?q=1"][0][1]
    gone = get(recording, f"{base}/gone")
    assert (gone.status, gone.protocol, gone.body) == (404, "HTTP/1.0", b"no")
    assert gone.headers == [(b"X-A", b"1"), (b"Content-Type", b"a/b")]
    moved = get(recording, f"{base}/moved")
    assert (moved.status, moved.header(b"location"), moved.body) == (301, "/a", b"")


@pytest.mark.parametrize(
    "url",
    [
        "https://../secret",
        f"{SHOP}/%2e%2e/%2e%2e/secret",
        f"{SHOP}/..%2F..%2Fsecret",
        f"{SHOP}/link/secret",
        f"{SHOP}/a%00b",
        f"{SHOP}/{'x' * 300}",
        f"{SHOP}/{'x' * 300}/y",
    ],
)
def test_no_address_leads_out_of_the_folder(tmp_path: Path, url: str) -> None:
    (tmp_path / "secret").write_text("secret")
    host = tmp_path / "recording" / "shop.example"
    host.mkdir(parents=True)
    (host / "link").symlink_to(tmp_path)
    assert open_recording(tmp_path / "recording").find("GET", url, b"", 0, 100) is None


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"nowhere: there is no such file"):
        open_recording(tmp_path / "nowhere")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(RecordingError, match=r"a\.txt: use a folder, or a file \.warc"):
        open_recording(tmp_path / "a.txt")
    with pytest.raises(RecordingError, match=r"it holds no \.warc"):
        open_recording(tmp_path)
    for name in ("b.warc", "b.warc.gz", "b.har", "empty.har"):
        (tmp_path / name).write_text("" if "empty" in name else "{no such thing")
        with pytest.raises(RecordingError, match=name.replace(".", r"\.")):
            open_recording(tmp_path / name)
    whole = tmp_path / "whole.warc.gz"
    warc = WarcRecorder(tmp_path / "c.warc")
    warc.add(f"{SHOP}/1", b"one")
    warc.add(f"{SHOP}/2", b"two")
    whole.write_bytes(gzip.compress((tmp_path / "c.warc").read_bytes()))
    with pytest.raises(RecordingError, match=r"whole\.warc\.gz: ERROR: non-chunked gzip"):
        open_recording(whole)


@pytest.mark.slow("2 s")
def test_memory_is_flat(tmp_path: Path) -> None:
    body = b"x" * 10_000
    path = tmp_path / "large.warc"
    with path.open("wb") as file:
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
        for number in range(2_000):
            file.write(
                b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:%d>\r\n"
                b"WARC-Target-URI: https://shop.example/%d\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n"
                % (number, number, len(block), block)
            )
    tracemalloc.start()
    recording = open_recording(path)
    assert get(recording, f"{SHOP}/1999", limit=20_000).body == body
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1024 * 1024

"""Downloads in the spider's own process treat texts as agents do."""

from __future__ import annotations

import pytest

from tests.yardspider.sites import serve
from yardkit.protocol import (
    CutRule,
    DownloaderSettings,
    DownloadRequest,
    DownloadResults,
    FailureKind,
    RequestItem,
    encode_request,
)
from yardspider import Response
from yardspider.errors import RunFailed
from yardspider.transports.local import ANYWHERE, LocalTransport


@pytest.mark.covers("S1.27", "S1.30")
async def test_settings_for_texts_are_kept_to() -> None:
    rules = [CutRule(start="<p>", end="</p>", start_offset=3, end_offset=-4)]
    settings = DownloaderSettings(
        allowed_networks=ANYWHERE, cut=rules, decode_html=True, encoding="gbk"
    )
    transport = LocalTransport(settings)
    html = {"Content-Type": "text/html"}
    pages = {
        "/0": (200, html, "<body><p>中&copy;</p></body>".encode("gbk")),
        "/1": (200, html, b"<body></body>"),
    }
    with serve(pages) as site:
        await transport.allocate()
        for number in (0, 1):
            request = encode_request(DownloadRequest(url=f"{site.url}/{number}"))
            transport.send([RequestItem(number, 1, "h", "", request)])
        found = {}
        while len(found) < 2:
            for answer in await transport.receive():
                assert isinstance(answer, DownloadResults)
                found |= {result.id: result for result in answer.items}
        await transport.close()
    cut = found[0]
    assert Response(cut.url, headers=cut.headers, body=cut.body).text == "中©"
    assert (found[1].failure, found[1].status) == (FailureKind.BAD_RULE, 0)
    assert found[1].error == "cut rule 1: start '<p>' was not found"


async def test_bad_rules_end_the_run_before_it_starts() -> None:
    with pytest.raises(RunFailed, match=r"bad downloader settings: cut rule 1: bad pattern"):
        await LocalTransport(DownloaderSettings(cut=[CutRule(pattern="(")])).allocate()

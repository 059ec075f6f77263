"""Results of agents as responses and exceptions, without a run."""

from __future__ import annotations

import datetime
import logging

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, random_serial_number
from cryptography.x509.oid import NameOID
from scrapy import Request
from scrapy.exceptions import UnsupportedURLSchemeError
from scrapy.utils.test import get_crawler

from yardkit.protocol import DownloadResult, FailureKind
from yardscrapy.client import ClientResult
from yardscrapy.handler import AgentDownloads
from yardscrapy.responses import ResponseMaker


def certificate() -> bytes:
    """Return the DER of a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = Name(
        [
            NameAttribute(NameOID.ORGANIZATION_NAME, "Shop"),
            NameAttribute(NameOID.COMMON_NAME, "a.test"),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    made = (
        CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, SHA256())
    )
    return made.public_bytes(Encoding.DER)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_certificate_of_a_server_is_logged_on_demand(
    caplog: pytest.LogCaptureFixture, wanted: bool
) -> None:
    crawler = get_crawler(settings_dict={"DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING": wanted})
    result = DownloadResult(
        *(1, 1, "https://a.test/", 200, [], b"", FailureKind.NONE, "", 1.0),
        protocol="HTTP/1.1",
        certificate=certificate(),
    )
    maker = ResponseMaker(crawler, chained=False)
    answer = ClientResult(result, "agent-1", "", FailureKind.NONE)
    with caplog.at_level(logging.DEBUG, "scrapy"):
        response = maker.response(Request("https://a.test/"), "https://a.test/", answer)
    assert response.certificate is not None
    line = 'SSL connection certificate: issuer "CN=a.test,O=Shop", subject "CN=a.test,O=Shop"'
    assert (line in caplog.text) is wanted


def test_a_scheme_that_agents_do_not_download_is_unsupported() -> None:
    downloads = object.__new__(AgentDownloads)
    with pytest.raises(UnsupportedURLSchemeError, match="gopher"):
        downloads.download(Request("gopher://a.test/"))

"""Verification of server certificates."""

from __future__ import annotations

import ssl
from typing import Final

from yardkit.protocol import DownloaderSettings

_TLS_VERSIONS: Final = {version.name: version for version in ssl.TLSVersion}


def server_verification(settings: DownloaderSettings) -> ssl.SSLContext | bool:
    """Return how servers are verified. Raises ``ValueError``."""
    wanted = (settings.tls_minimum, settings.tls_maximum)
    if settings.verify_tls and not (any(wanted) or settings.tls_ciphers):
        return True
    context = ssl.create_default_context()
    if not settings.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        for name, field in zip(wanted, ("minimum_version", "maximum_version"), strict=True):
            if name:
                setattr(context, field, _TLS_VERSIONS[name.replace(".", "_")])
        if settings.tls_ciphers:
            context.set_ciphers(settings.tls_ciphers)
    except KeyError:
        raise ValueError(f"tls_minimum, tls_maximum: {name!r}; use TLSv1.2 or TLSv1.3") from None
    except ssl.SSLError as error:
        raise ValueError(f"tls_ciphers: {settings.tls_ciphers[:80]!r}: {error}") from error
    return context

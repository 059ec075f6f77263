"""Settings of outgoing mail; without a server it is written into files."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parseaddr
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from yardkit.env import Env, EnvError

FILES: Final = "django.core.mail.backends.filebased.EmailBackend"
SMTP: Final = "django.core.mail.backends.smtp.EmailBackend"
_USE: Final = "use smtp://user:password@host:587/?tls=1, smtps://host or file:///folder"


@dataclass(frozen=True, slots=True)
class Mail:
    """Values of Django's EMAIL_... settings; ``folder`` is "" with a server."""

    backend: str
    sender: str
    folder: str = ""
    host: str = ""
    port: int = 25
    user: str = ""
    password: str = ""
    # TLS from the first byte, or by STARTTLS.
    is_ssl: bool = False
    is_tls: bool = False

    def __repr__(self) -> str:
        return f"Mail({self.backend!r}, {self.host!r})"


def mail(env: Env, data_dir: Path) -> Mail:
    """Read EMAIL_URL and EMAIL_FROM. Raises ``EnvError``, whose texts omit the URL."""
    url = env.secret("EMAIL_URL", default="")
    sender = env.str("EMAIL_FROM", default="crawlyard@localhost")
    if "@" not in parseaddr(sender)[1] or any(sign in sender for sign in "\r\n"):
        raise EnvError("EMAIL_FROM: no address; use crawlyard@example.com")
    if not url:
        return Mail(FILES, sender, folder=str(data_dir / "mail"))
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise EnvError(f"EMAIL_URL: not understood; {_USE}") from None
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1:
        return Mail(FILES, sender, folder=unquote(parts.path))
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise EnvError(f"EMAIL_URL: not understood; {_USE}")
    is_ssl = parts.scheme == "smtps"
    return Mail(
        SMTP,
        sender,
        host=parts.hostname,
        port=port or (465 if is_ssl else 25),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        is_ssl=is_ssl,
        is_tls=not is_ssl and _tls(parts),
    )


def _tls(parts: SplitResult) -> bool:
    query = parse_qs(parts.query, keep_blank_values=True)
    if set(query) - {"tls"} or query.get("tls", ["0"])[-1] not in ("0", "1"):
        raise EnvError("EMAIL_URL: after the ? only tls=1 or tls=0 is understood")
    return query.get("tls", ["0"])[-1] == "1"

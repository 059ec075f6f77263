"""Sign-in by name and password against a directory (LDAP), with the groups of an entry."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings

from apps.access.models import ExternalIdentity
from apps.access.services.sign_on.identities import ProviderAway, Refused, SignedIn

TIMEOUT_SECONDS: Final = 5
_ATTRIBUTES: Final = ("uid", "sAMAccountName", "mail", "givenName", "sn", "cn")


def verify(name: str, password: str) -> SignedIn:
    """Return the account of this name and password. Raises ``ProviderAway`` and ``Refused``."""
    if not name or not password:
        # A bind with an empty password succeeds as anonymous.
        raise Refused("empty")
    with _bound(settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD) as connection:
        account = _found(connection, name)
    try:
        with _bound(account.subject, password):
            return account
    except Refused:
        raise Refused("wrong password") from None


def check(identity: ExternalIdentity, tokens: Mapping[str, str]) -> SignedIn:
    """Return the account as the directory has it now. Raises ``ProviderAway`` and ``Refused``."""
    with _bound(settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD) as connection:
        account = _found(connection, tokens.get("name", ""))
    if account.subject != identity.subject:
        raise Refused("another entry")
    return account


class _bound:
    """Connection that is bound as ``user``."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password
        self._connection: Any = None

    def __enter__(self) -> Any:
        import ldap3
        from ldap3.core.exceptions import LDAPException

        try:
            server = ldap3.Server(
                settings.LDAP_URL,
                connect_timeout=TIMEOUT_SECONDS,
                # The library's own default verifies nothing. A private authority: SSL_CERT_FILE.
                tls=ldap3.Tls(validate=ssl.CERT_REQUIRED),
            )
            self._connection = ldap3.Connection(
                server,
                user=self._user or None,
                password=self._password or None,
                receive_timeout=TIMEOUT_SECONDS,
                read_only=True,
            )
            if settings.LDAP_START_TLS:
                self._connection.start_tls()
            is_bound = self._connection.bind()
        except LDAPException as error:
            self.__exit__()
            raise ProviderAway(type(error).__name__) from error
        if not is_bound:
            self.__exit__()
            if self._user == settings.LDAP_BIND_DN:
                raise ProviderAway("LDAP_BIND_DN is refused")
            raise Refused("bind")
        return self._connection

    def __exit__(self, *_error: object) -> None:
        from ldap3.core.exceptions import LDAPException

        if self._connection is not None:
            with contextlib.suppress(LDAPException):
                self._connection.unbind()
            # One that could not connect is left open by the library.
            if self._connection.socket is not None:
                self._connection.socket.close()


def _filter(template: str, **values: str) -> str:
    from ldap3.utils.conv import escape_filter_chars

    return template.format(**{name: escape_filter_chars(text) for name, text in values.items()})


def _found(connection: Any, name: str) -> SignedIn:
    """Return the one entry of this name, with its groups."""
    from ldap3.core.exceptions import LDAPException

    try:
        where = _filter(settings.LDAP_USER_FILTER, name=name)
        entries = _search(connection, settings.LDAP_USERS, where, _ATTRIBUTES)
        if len(entries) != 1:
            raise Refused(f"{len(entries)} entries")
        dn, entry = str(entries[0]["dn"]), entries[0]["attributes"]
        groups: list[str] = []
        if settings.LDAP_GROUPS:
            where = _filter(settings.LDAP_GROUP_FILTER, dn=dn, name=_first(entry, "uid"))
            rows = _search(connection, settings.LDAP_GROUPS, where, ("cn",))
            groups = [_first(row["attributes"], "cn") for row in rows]
    except LDAPException as error:
        raise ProviderAway(type(error).__name__) from error
    return SignedIn(
        source=ExternalIdentity.Source.LDAP,
        issuer=settings.LDAP_URL,
        subject=dn,
        username=_first(entry, "uid") or _first(entry, "sAMAccountName"),
        email=_first(entry, "mail"),
        first_name=_first(entry, "givenName"),
        last_name=_first(entry, "sn"),
        groups=groups,
        tokens={"name": name},
    )


def _search(connection: Any, base: str, where: str, names: tuple[str, ...]) -> list[Any]:
    """Return entries with the attributes of these names that the directory's schema knows."""
    known = connection.server.schema
    wanted = [name for name in names if known is None or name in known.attribute_types]
    if not connection.search(base, where, attributes=wanted) and connection.result["result"]:
        raise ProviderAway(str(connection.result["description"]))
    return [entry for entry in connection.response if entry.get("type") == "searchResEntry"]


def _first(entry: Any, name: str) -> str:
    value = entry.get(name)
    if isinstance(value, list):
        value = value[0] if value else ""
    return str(value or "")

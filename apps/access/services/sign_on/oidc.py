"""OpenID Connect: authorization code with PKCE, discovery, and checks by refresh or userinfo."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import requests
from django.conf import settings

from apps.access.models import ExternalIdentity
from apps.access.services.sign_on.identities import ProviderAway, Refused, SignedIn

logger = logging.getLogger(__name__)
TIMEOUT_SECONDS: Final = 10.0
# Clocks of provider and server may differ by this much.
LEEWAY_SECONDS: Final = 60
# Answers of a token endpoint that say that the account, not the service, is at fault.
_GONE: Final = frozenset({"invalid_grant", "access_denied"})
_ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "EdDSA",
]


class OidcProvider:
    """Client of the provider that ``OIDC_URL`` names."""

    def __init__(self) -> None:
        # The library is an extra, and only an installation with OIDC_URL needs it.
        from authlib.integrations.requests_client import OAuth2Session

        self._session: Any = OAuth2Session(
            settings.OIDC_CLIENT_ID,
            settings.OIDC_CLIENT_SECRET or None,
            scope=settings.OIDC_SCOPES,
            token_endpoint_auth_method="client_secret_basic"
            if settings.OIDC_CLIENT_SECRET
            else "none",
            code_challenge_method="S256",
        )
        self._known: dict[str, Any] = {}

    def start(self, redirect_uri: str) -> tuple[str, dict[str, str]]:
        """Return the address of the sign-in page, and what the answer is compared with.

        Raises ``ProviderAway``.
        """
        from authlib.common.security import generate_token

        kept = {name: generate_token(48) for name in ("state", "nonce", "verifier")}
        self._session.redirect_uri = redirect_uri
        url, _state = self._session.create_authorization_url(
            self._about()["authorization_endpoint"],
            state=kept["state"],
            nonce=kept["nonce"],
            code_verifier=kept["verifier"],
        )
        return url, kept | {"redirect_uri": redirect_uri}

    def finish(self, code: str, kept: Mapping[str, str]) -> SignedIn:
        """Exchange the code of the answer. Raises ``ProviderAway`` and ``Refused``."""
        token = self._token(
            self._session.fetch_token,
            code=code,
            code_verifier=kept["verifier"],
            redirect_uri=kept["redirect_uri"],
        )
        claims = self._claims(str(token.get("id_token", "")), kept["nonce"])
        account = self._account(claims, token)
        return replace(account, groups=account.groups or ())

    def check(self, identity: ExternalIdentity, tokens: Mapping[str, str]) -> SignedIn:
        """Ask whether the account still exists. Raises ``ProviderAway`` and ``Refused``."""
        token: dict[str, Any] = {"access_token": tokens.get("access_token", "")}
        if refresh := tokens.get("refresh_token"):
            token = self._token(self._session.refresh_token, refresh_token=refresh)
            token.setdefault("refresh_token", refresh)
        return self._account({"sub": identity.subject}, token)

    def _about(self) -> dict[str, Any]:
        """Return the provider's own description, read once."""
        if not self._known:
            url = f"{settings.OIDC_URL.rstrip('/')}/.well-known/openid-configuration"
            about = self._json(url)
            if about.get("issuer") != settings.OIDC_URL:
                raise ProviderAway("the issuer is not OIDC_URL")
            if not about.keys() >= {"authorization_endpoint", "token_endpoint", "jwks_uri"}:
                raise ProviderAway("the description is incomplete")
            self._known = about
        return self._known

    def _claims(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Validate the ID token: signature, issuer, audience, time and nonce."""
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        key_set: Any = self._json(self._about()["jwks_uri"])
        try:
            keys = KeySet.import_key_set(key_set)
            token = jwt.decode(id_token, keys, algorithms=_ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_SECONDS,
                iss={"essential": True, "value": settings.OIDC_URL},
                aud={"essential": True, "value": settings.OIDC_CLIENT_ID},
                exp={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(token.claims)
        except (JoseError, ValueError) as error:
            raise Refused(f"ID token: {type(error).__name__}") from error
        return dict(token.claims)

    def _account(self, claims: Mapping[str, Any], token: Mapping[str, Any]) -> SignedIn:
        access = str(token.get("access_token", ""))
        about = self._about()
        if "userinfo_endpoint" in about:
            more = self._json(about["userinfo_endpoint"], {"Authorization": f"Bearer {access}"})
            if more.get("sub") != claims["sub"]:
                raise Refused("userinfo is of another subject")
            claims = {**claims, **more}
        groups = claims.get(settings.OIDC_GROUPS_CLAIM)
        names = ("access_token", "refresh_token")
        return SignedIn(
            source=ExternalIdentity.Source.OIDC,
            issuer=settings.OIDC_URL,
            subject=str(claims["sub"]),
            username=str(claims.get("preferred_username") or claims.get("email") or ""),
            email=str(claims.get("email") or ""),
            first_name=str(claims.get("given_name") or ""),
            last_name=str(claims.get("family_name") or ""),
            groups=_texts(groups),
            tokens={name: str(token[name]) for name in names if token.get(name)},
        )

    def _token(self, exchange: Any, **values: Any) -> dict[str, Any]:
        from authlib.common.errors import AuthlibBaseError

        try:
            return dict(
                exchange(self._about()["token_endpoint"], timeout=TIMEOUT_SECONDS, **values)
            )
        except AuthlibBaseError as error:
            if error.error in _GONE:
                raise Refused(str(error.error)) from error
            raise ProviderAway(f"token endpoint: {error.error}") from error
        except requests.RequestException as error:
            raise ProviderAway(type(error).__name__) from error
        finally:
            # Kept open it would stay until the garbage collector comes.
            self._session.close()

    def _json(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            got = requests.get(url, headers=headers, timeout=TIMEOUT_SECONDS)
            if headers and got.status_code in (401, 403):
                raise Refused(f"HTTP {got.status_code}")
            got.raise_for_status()
            data = got.json()
        except requests.RequestException as error:
            raise ProviderAway(type(error).__name__) from error
        if not isinstance(data, dict):
            raise ProviderAway("no JSON object")
        return data


def _texts(claim: object) -> list[str] | None:
    """Return the groups of a claim; None if the claim is absent."""
    if claim is None:
        return None
    return [str(group) for group in claim] if isinstance(claim, list) else [str(claim)]

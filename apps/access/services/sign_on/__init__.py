"""Sign-in by accounts of an identity provider: OpenID Connect or LDAP."""

from apps.access.services.sign_on.identities import ProviderAway, Refused, SignedIn, sign_in

__all__ = ["ProviderAway", "Refused", "SignedIn", "sign_in"]

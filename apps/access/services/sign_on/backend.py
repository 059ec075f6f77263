"""Authentication backend of names and passwords that a directory checks."""

from __future__ import annotations

import logging
from typing import Any

from django.utils import timezone

from apps.access.errors import SignInRefused
from apps.access.models import User
from apps.access.services.login_backend import SessionBackend
from apps.access.services.sign_on import ldap
from apps.access.services.sign_on.identities import ProviderAway, Refused, sign_in

logger = logging.getLogger(__name__)


class DirectoryBackend(SessionBackend):
    """Check names and passwords at the directory, after local ones.

    Local users can sign in while the directory is unreachable.
    """

    def authenticate(
        self, request: Any, username: Any = None, password: Any = None, **_kwargs: Any
    ) -> User | None:
        """Return the user of an account of the directory, or None."""
        if not isinstance(username, str) or not isinstance(password, str):
            return None
        try:
            return sign_in(ldap.verify(username, password), now=timezone.now())
        except ProviderAway as error:
            logger.warning("directory unreachable: %s", error)
        except (Refused, SignInRefused):
            pass
        return None

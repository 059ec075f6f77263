"""Logins are recorded too."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver

from apps.access.models import User
from apps.access.services import record


@receiver(user_logged_in, dispatch_uid="access.record_login")
def record_login(sender: object, user: User, **kwargs: Any) -> None:
    """Somebody proved with a password who they are."""
    record(actor=user, action="access.log_in", obj=user)

"""Receiver that records logins in the audit trail."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from apps.access.models import User
from apps.access.services import record
from apps.access.services.sessions import begin


@receiver(user_logged_in, dispatch_uid="access.record_login")
def record_login(sender: object, request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Record a login by password."""
    begin(request)
    record(actor=user, action="access.log_in", obj=user)

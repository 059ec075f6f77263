"""Authentication backend of sessions."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend

from apps.access.models import User
from apps.access.services.second_factor import with_project_admin


class SessionBackend(ModelBackend):
    """Django's backend; loads the second factor with the user, since every page needs both."""

    def get_user(self, user_id: Any) -> User | None:
        """Return the active user in one query, or None."""
        people = with_project_admin(User.objects.select_related("second_factor"))
        user = people.filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None

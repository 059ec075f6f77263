"""Who a session belongs to."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend

from apps.access.models import User
from apps.access.services.second_factor import with_project_admin


class SessionBackend(ModelBackend):
    """Django's own, which brings the second factor with the person: every page asks for both."""

    def get_user(self, user_id: Any) -> User | None:
        """The person, in one query; None when there is none, or none who may log in."""
        people = with_project_admin(User.objects.select_related("second_factor"))
        user = people.filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None

"""The page on which people change their own password."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpResponse
from django.urls import reverse_lazy
from django.utils.translation import gettext as _
from unfold.forms import AdminOwnPasswordChangeForm

from apps.access.models import User
from apps.access.services import password_was_set


class OwnPasswordChange(PasswordChangeView):
    """Like the admin's; recorded, and it leads on to the first page."""

    form_class = AdminOwnPasswordChangeForm
    success_url = reverse_lazy("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With what the admin's frame needs."""
        context = {**admin.site.each_context(self.request), **super().get_context_data(**kwargs)}
        if cast(User, self.request.user).must_change_password:
            context["title"] = _("Choose your own password first")
        return context

    def form_valid(self, form: Any) -> HttpResponse:
        """Save and record."""
        response = super().form_valid(form)
        user = cast(User, form.user)
        password_was_set(actor=user, user=user)
        messages.success(self.request, _("Your password has been changed."))
        return response

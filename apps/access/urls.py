"""URLs of the account page, saved filters, the second factor and one-time links."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from apps.access import pages
from apps.access.pages import account, second_factor, sign_on, welcome

view = admin.site.admin_view

app_name = "access"
urlpatterns = [
    path("admin/account/", view(account.show), name="account"),
    path("admin/account/sessions/end", view(account.end), name="session-end"),
    path("admin/account/sessions/end-others", view(account.end_others), name="sessions-end"),
    # Public: its visitors have no account yet.
    path("admin/welcome/", welcome.welcome, name="welcome"),
    # Public: who comes here is about to sign in.
    path("admin/sign-on/", sign_on.start, name="sign-on"),
    path("admin/sign-on/answer", sign_on.answer, name="sign-on-answer"),
    path("admin/second-factor/", view(second_factor.verify), name="second-factor"),
    path("admin/second-factor/add", view(second_factor.add), name="second-factor-add"),
    path("admin/second-factor/remove", view(second_factor.remove), name="second-factor-remove"),
    path("admin/filters/add", view(pages.add_filter), name="filter-add"),
    path("admin/filters/<int:pk>/rename", view(pages.rename_saved_filter), name="filter-rename"),
    path("admin/filters/<int:pk>/delete", view(pages.delete_saved_filter), name="filter-delete"),
]

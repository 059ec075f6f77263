"""What a browser is told about the pages: nothing runs in them but the platform's own files."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders
from django.test import AsyncClient, Client
from django.urls import NoReverseMatch, reverse

from apps.access.middleware import POLICY
from tests.access.factories import make_superuser

pytestmark = pytest.mark.django_db
HEADER = "Content-Security-Policy"


def inline_code(html: str) -> list[str]:
    """Scripts and handlers that a page would carry itself; data in script elements is none."""
    scripts = [
        tag
        for tag in re.findall(r"<script\b[^>]*>", html)
        if "src=" not in tag and 'type="application/json"' not in tag
    ]
    return scripts + re.findall(r"<[a-z][^<>]*\son[a-z]+=[^<>]*>|href=\"javascript:[^\"]*", html)


def addresses() -> list[str]:
    """Lists and forms of the whole admin, and the pages around it."""
    found = ["/admin/", "/admin/password_change/", "/api/v1/docs", "/api/v1/redoc"]
    for model in admin.site._registry:
        for page in ("changelist", "add"):
            try:
                name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
                found.append(reverse(name))
            except NoReverseMatch:
                continue
    return found


@pytest.mark.slow("15 s")
def test_no_page_needs_an_inline_script(client: Client) -> None:
    assert inline_code(client.get("/admin/login/").content.decode()) == []
    client.force_login(make_superuser())
    seen = 0
    for address in addresses():
        page = client.get(address, follow=True)
        if page.status_code == 403:
            continue  # read-only models have no form to add one
        assert page.status_code == 200, address
        assert page[HEADER].startswith(POLICY), address
        assert inline_code(page.content.decode()) == [], address
        seen += 1
    assert seen > 20


def test_answers_of_every_kind_carry_the_policy(client: Client) -> None:
    for address in ("/admin/login/", "/admin/", "/healthz", "/api/v1/me", "/nowhere", "/"):
        assert client.get(address)[HEADER] == POLICY, address
    assert "'unsafe-inline'" not in POLICY.partition("script-src")[2].partition(";")[0]


async def test_so_do_those_of_an_async_server(async_client: AsyncClient) -> None:
    response = await async_client.get("/healthz")
    assert response.headers[HEADER] == POLICY


def test_pages_for_developers_keep_their_scripts(client: Client, settings: Any) -> None:
    settings.DEBUG = True
    assert HEADER not in client.get("/nowhere").headers
    assert client.get("/admin/login/")[HEADER] == POLICY


def test_the_icon_is_where_browsers_look_for_it(client: Client) -> None:
    moved = client.get("/favicon.ico")
    assert moved.status_code == 302
    assert finders.find(moved["Location"].removeprefix("/static/"))

"""Keyset pages."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from apps.access.admin.lists import page_links
from apps.access.api.errors import BadRequest
from apps.access.api.pagination import KeysetPagination
from apps.access.models import ApiToken, AuditRecord, User
from apps.access.services import record
from tests.access.factories import Api, make_project, make_superuser, make_user

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class View:
    """What the paginator asks a view for."""

    def __init__(self, *ordering: str) -> None:
        self.ordering = ordering


def page(rows: Any, *ordering: str, **query: Any) -> tuple[list[Any], str | None]:
    request = Request(APIRequestFactory().get("/", query))
    paginator = KeysetPagination()
    view: Any = View(*ordering)
    found = paginator.paginate_queryset(rows, request, view)
    return found, paginator.get_paginated_response([]).data["next"]


def walk(rows: Any, *ordering: str, limit: int) -> list[Any]:
    seen: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        found, cursor = page(rows, *ordering, limit=limit, **({"after": cursor} if cursor else {}))
        seen += found
    return seen


@pytest.fixture
def user() -> User:
    return make_user()


def make_tokens(user: User, *offsets: int) -> None:
    """Tokens made at NOW plus so many microseconds; equal numbers are ties."""
    for index, offset in enumerate(offsets):
        ApiToken.objects.create(
            user=user,
            name=f"{offset}",
            prefix=f"p{index}",
            digest="0" * 64,
            created_at=NOW + timedelta(microseconds=offset),
        )


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
@pytest.mark.parametrize(
    "ordering",
    [
        ("-id",),
        ("id",),
        ("created_at",),
        ("-created_at",),
        ("name", "-created_at"),
        ("-name", "id"),
    ],
)
def test_every_row_once_over_ties(user: User, ordering: tuple[str, ...], limit: int) -> None:
    make_tokens(user, 5, 1, 5, 5, 2, 1, 999_999, 5)
    rows = ApiToken.objects.all()
    seen = walk(rows, *ordering, limit=limit)
    tie = [] if ordering[-1].lstrip("-") == "id" else ["-id" if ordering[-1][0] == "-" else "id"]
    assert [each.pk for each in seen] == [each.pk for each in rows.order_by(*ordering, *tie)]


@pytest.mark.slow("1 s")
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(offsets=st.lists(st.integers(0, 5), max_size=12), limit=st.integers(1, 5))
def test_every_row_once_whatever_the_ties(user: User, offsets: list[int], limit: int) -> None:
    ApiToken.objects.all().delete()
    make_tokens(user, *offsets)
    seen = walk(ApiToken.objects.all(), "-created_at", limit=limit)
    assert len({each.pk for each in seen}) == len(seen) == len(offsets)


def test_new_rows_do_not_shift_the_pages(user: User) -> None:
    make_tokens(user, 1, 2, 3, 4)
    first, cursor = page(ApiToken.objects.all(), "-created_at", limit=2)
    ApiToken.objects.create(user=user, name="new", prefix="new", digest="0" * 64)
    first[0].delete()
    second, _cursor = page(ApiToken.objects.all(), "-created_at", limit=2, after=cursor)
    assert [each.name for each in first + second] == ["4", "3", "2", "1"]


def test_one_query_a_page(user: User, django_assert_num_queries: Any) -> None:
    make_tokens(user, 1, 2, 3)
    _first, cursor = page(ApiToken.objects.all(), "-created_at", limit=2)
    with django_assert_num_queries(1):
        page(ApiToken.objects.all(), "-created_at", limit=2, after=cursor)


def packed(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "%%%",
        "é",
        "A" * 3_000,
        packed(),
        packed(["-id"]),
        packed(["-created_at", "-id"], ["2026-01-01T00:00:00Z", 1]),
        packed(["-id"], [1, 2]),
        packed(["-id"], ["no number"]),
        packed(["-id"], [None]),
        packed(["-id"], [True]),
        packed(["-id"], [[1]]),
        packed(["-id"], {"a": 1}),
        base64.urlsafe_b64encode(b"[" * 1_400).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_bad_cursors(user: User, cursor: str) -> None:
    make_tokens(user, 1, 2)
    with pytest.raises(BadRequest) as refusal:
        page(ApiToken.objects.all(), "-id", after=cursor)
    assert refusal.value.get_codes() == "bad_cursor"


def test_a_cursor_beyond_every_id_finds_nothing(user: User) -> None:
    make_tokens(user, 1, 2)
    assert page(ApiToken.objects.all(), "id", after=packed(["id"], [10**30])) == ([], None)


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "٣", "1e3", "9" * 12])
def test_bad_limits(user: User, limit: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        page(ApiToken.objects.all(), limit=limit)
    assert refusal.value.get_codes() == "bad_limit"


def test_limits(user: User) -> None:
    make_tokens(user, *range(210))
    assert len(page(ApiToken.objects.all())[0]) == 50
    assert len(page(ApiToken.objects.all(), limit=100_000)[0]) == 200
    assert len(page(ApiToken.objects.all(), limit="")[0]) == 50


def test_over_rest() -> None:
    project = make_project()
    for _each in range(3):
        record(actor=None, action="test.x", obj=project)
    api = Api(make_superuser())
    first = api.get("audit?limit=2&action=test.x").json()
    second = api.get(f"audit?limit=2&action=test.x&after={first['next']}").json()
    assert second["next"] is None
    ids = [each["id"] for each in first["results"] + second["results"]]
    assert ids == list(
        AuditRecord.objects.filter(action="test.x").order_by("-id").values_list("id", flat=True)
    )
    bad = api.get("audit?after=x")
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_cursor")
    assert api.get("audit?limit=x").json()["code"] == "bad_limit"


@pytest.mark.parametrize(
    ("query", "following", "links"),
    [
        ("", None, ("", "")),
        ("?state=failed", 5, ("", "?state=failed&after=5")),
        ("?after=7&state=failed", "", ("?state=failed", "")),
        ("?after=7", "8.9", ("?", "?after=8.9")),
    ],
)
def test_links_between_the_pages_of_a_list(
    query: str, following: object, links: tuple[str, str]
) -> None:
    found = page_links(RequestFactory().get(f"/{query}"), "after", following)
    assert (found["first"], found["following"]) == links

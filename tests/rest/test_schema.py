"""The schema is sound OpenAPI, made without a warning, and shows how the main calls are made."""

from __future__ import annotations

from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from tests.access.factories import make_user

MAIN_CALLS = (
    "/api/v1/builds",
    "/api/v1/config/versions",
    "/api/v1/frontiers/{id}/add",
    "/api/v1/jobs/{id}/start",
    "/api/v1/requests",
    "/api/v1/routing/projects/{id}/explain",
    "/api/v1/routing/projects/{id}/task",
)


@pytest.fixture(scope="module")
def schema() -> Any:
    with GENERATOR_STATS.silence():
        GENERATOR_STATS.reset()
        made = SchemaGenerator().get_schema(request=None, public=True)
        assert [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache] == []
    return made


@pytest.mark.slow("3 s")
def test_it_is_valid(schema: Any) -> None:
    validate_schema(schema)


@pytest.mark.parametrize("path", MAIN_CALLS)
def test_main_calls_have_examples(schema: Any, path: str) -> None:
    bodies = schema["paths"][path]["post"]["requestBody"]["content"]
    assert bodies["application/json"]["examples"]


def test_what_is_only_read_may_be_empty_where_its_column_may(schema: Any) -> None:
    problem = schema["components"]["schemas"]["Notice"]["properties"]["problem"]
    assert {"$ref": "#/components/schemas/BlankEnum"} in problem["oneOf"]


@pytest.mark.slow("3 s")
@pytest.mark.django_db
def test_the_schema_and_its_viewers_are_for_people_who_are_logged_in(client: Any) -> None:
    assert client.get("/api/v1/schema").status_code == 401
    for page in ("docs", "redoc"):
        refused = client.get(f"/api/v1/{page}")
        assert refused.status_code == 302
        assert refused["Location"].startswith("/admin/login/")
    client.force_login(make_user())
    assert client.get("/api/v1/schema").status_code == 200
    for page in ("docs", "redoc"):
        text = client.get(f"/api/v1/{page}").content.decode()
        assert "drf_spectacular_sidecar" in text
        assert "https://" not in text

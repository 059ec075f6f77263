"""Tokens that are no good, and auditors, at every address."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.access.services import known_areas, revoke_token
from apps.access.states import Role
from tests.access.factories import Api, make_auditor
from tests.access.routes import ASKING, PERSONAL, Route
from tests.access.test_routes import (
    OWN,
    ROUTES,
    SAFE,
    World,
    answered,
    calls,
    impatient,
    path_of,
    send,
    world,
)

pytestmark = pytest.mark.django_db

__all__ = ["impatient", "world"]


@pytest.mark.slow("20 s")
@pytest.mark.parametrize("route", [r for r in ROUTES if not r.path.startswith(OWN)], ids=str)
def test_auditors_read_everything_and_write_nothing(route: Route, world: World) -> None:
    # A role above viewer changes nothing of that.
    auditor = Api(make_auditor(roles={world.project: Role.ADMIN}))
    path = path_of(route, world) if route.names else route.at()
    for method in calls(route):
        response = send(auditor, method, path)
        if method not in SAFE and route.path in PERSONAL:
            assert response.status_code != 403, (method, response.content)
        elif method not in SAFE and route.path not in ASKING:
            assert response.status_code == 403, (method, response.content)
            assert response.json()["code"] == "role_required"
        else:
            assert response.status_code == answered(route, sees_everything=True), response.content


@pytest.mark.slow("35 s")
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_tokens_that_are_no_good_are_refused(route: Route, world: World) -> None:
    """Expired, revoked, for another network, for another area: 401 or 403 and nothing else."""
    owner, path = world.owner, path_of(route, world) if route.names else route.at()
    expired = Api(owner, expires_at=timezone.now() - timedelta(seconds=1))
    revoked = Api(owner)
    assert revoked.token is not None
    revoke_token(actor=owner, token=revoked.token)
    elsewhere = Api(owner, allowed_networks=("10.20.0.0/16",))
    area = next(each for each in known_areas()[1:] if each != route.view.area)
    narrow = Api(owner, scopes=(f"{area}:write",))
    for method in calls(route):
        for api, status, code in (
            (expired, 401, "token_expired"),
            (revoked, 401, "token_revoked"),
            (elsewhere, 403, "network_not_allowed"),
            (narrow, 403, "scope_missing"),
        ):
            response = send(api, method, path)
            assert (response.status_code, response.json()["code"]) == (status, code), method

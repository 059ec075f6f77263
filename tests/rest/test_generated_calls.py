"""Whatever the schema allows, and what it does not, as each role: no 500, nobody else's data."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from typing import Any

import pytest
from django.db.models import Model

from apps.access.models import User
from apps.access.states import Role
from apps.seeds.services import clients
from tests.access.factories import (
    bearer,
    make_auditor,
    make_project,
    make_superuser,
    make_token,
    make_user,
)
from tests.access.test_routes import GLOBAL, MAKERS, World
from tests.plugins.long_tests import FULL_FUZZ
from tests.rest.generated_calls import (
    CANARY,
    FULL,
    TOTAL,
    Caller,
    Ids,
    area_of,
    make_up,
    operations,
    read_schema,
)
from yardkit.seeds import SeedClient

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.fuzz,
    pytest.mark.timeout(900),
    # Logs are streamed as an ASGI server reads them.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),
]

SCHEMA = read_schema()
BY_AREA: dict[str, list[Any]] = defaultdict(list)
for _each in operations(SCHEMA):
    BY_AREA[area_of(_each)].append(_each)
OPERATIONS = sum(map(len, BY_AREA.values()))
ROLES = ["stranger", *Role.values, "auditor", "superuser"]
SEE_EVERYTHING = {"auditor": make_auditor, "superuser": make_superuser}
EACH = ceil(TOTAL / len(ROLES) / OPERATIONS)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of refusals are logged; only the answers count here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a service that does not run here, however long the call says."""
    ask, ask_once = SeedClient._ask, SeedClient._ask_once

    def ask_impatiently(client: SeedClient, *words: Any) -> Any:
        client._patience = 0.0
        return ask(client, *words)

    def ask_shortly(client: SeedClient, call: Any, kind: Any, timeout: float) -> Any:
        return ask_once(client, call, kind, min(timeout, 0.02))

    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.02)
    monkeypatch.setattr(SeedClient, "_ask", ask_impatiently)
    monkeypatch.setattr(SeedClient, "_ask_once", ask_shortly)


def rows_of(world: World, known: dict[str, int | str]) -> dict[str, int | str]:
    """One row of every kind that a path names, by the start of the path.

    Of kinds that belong to no project there is one alone, which may be ``known``.
    """
    made: dict[str, int | str] = {}
    for start, make in MAKERS.items():
        kind = start.removeprefix("api/v1/").partition("/{")[0]
        if kind in made:
            continue
        if f"api/v1/{kind}" in GLOBAL and kind in known:
            made[kind] = known[kind]
            continue
        row = make(world)
        made[kind] = row.pk
        if known and isinstance(row, Model) and hasattr(row, "name"):
            rows = type(row)._default_manager.filter(pk=row.pk)
            rows.update(name=f"{row.name}-{CANARY}"[:60])
    return made


def caller_of(role: str) -> Caller:
    """Somebody with this role in one project of two."""
    mine, theirs = make_project(slug="ours"), make_project(name=f"Far {CANARY}", slug=CANARY)
    owner = make_user(roles={mine: Role.ADMIN})
    other = make_user(roles={theirs: Role.ADMIN}, username=CANARY)
    own = rows_of(World(mine, owner), {})
    ids = Ids(own, rows_of(World(theirs, other), own))
    if role == "stranger":
        return Caller({}, ids)
    if role in SEE_EVERYTHING:
        person: User = SEE_EVERYTHING[role]()
    else:
        person = make_user(roles={mine: Role(role)})
    return Caller(bearer(make_token(person)), ids, sees_theirs=role in SEE_EVERYTHING)


def chosen(area: str, role: str) -> list[Any]:
    """All of the area in a full run, else one of three, another for each role."""
    turn = 0 if FULL_FUZZ else ROLES.index(role) % 3
    return BY_AREA[area][turn :: 1 if FULL_FUZZ else 3]


@pytest.mark.parametrize("area", sorted(BY_AREA))
@pytest.mark.parametrize("role", ROLES)
def test_no_call_fails(
    role: str,
    area: str,
    request_nodes: dict[str, str],
    settings: Any,
    django_capture_on_commit_callbacks: Any,
) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": {"user": None}}
    caller = caller_of(role)
    made = 0
    tried = chosen(area, role)
    for operation in tried:
        made += make_up(
            operation,
            caller,
            count=EACH,
            committing=lambda: django_capture_on_commit_callbacks(execute=True),
        )
    assert not caller.wrong, "\n\n".join(f"{k}\n{v}" for k, v in sorted(caller.wrong.items()))
    assert made == EACH * len(tried)
    if role == "stranger":
        assert set(caller.statuses) <= {401, 404, 405}
    if role == "auditor":
        assert not {202, 204} & set(caller.statuses)


def test_there_are_as_many_calls_as_promised() -> None:
    assert EACH * len(ROLES) * OPERATIONS >= TOTAL
    assert FULL == 20_000
    assert {each.label for area in BY_AREA for role in ROLES for each in chosen(area, role)} == {
        each.label for all_of_it in BY_AREA.values() for each in all_of_it
    }

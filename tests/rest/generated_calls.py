"""Calls made up from the OpenAPI schema, by somebody of each role, and what is wrong with answers.

Half of the ids are those of rows that exist: in a project where the caller has the role, or in
another one, whose every name has ``CANARY`` in it. Each call is undone before the next.
"""

from __future__ import annotations

import functools
import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from django.core.signals import got_request_exception
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from drf_spectacular.renderers import OpenApiJsonRenderer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)

from tests.plugins.long_tests import examples
from tests.rest.openapi_schema import published

FULL = 20_000
TOTAL = examples(FULL)
CANARY = "zq7canary"
# What a refusal may be, whatever the call; 503 where another process would have to answer.
REFUSALS = {400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 415, 422, 429, 503}
LANGUAGES = ["en", "zh-hans", "zh-CN,zh;q=0.9", "xx;q=oops"]
CHECKS = [content_type_conformance, response_headers_conformance, response_schema_conformance]
# Fields and parameters that name rows: by what path rows of that kind are found.
REFERENCES = {
    "project": "projects",
    "job": "jobs",
    "after_job": "jobs",
    "run": "runs",
    "image": "images",
    "frontier": "frontiers",
    "pool": "resource-pools",
    "biz": "bizzes",
    "build": "builds",
    "agent": "agents",
}


@dataclass
class Ids:
    """By the start of a path, such as ``jobs``: ids of one's own project and of another."""

    mine: dict[str, int | str]
    theirs: dict[str, int | str]


@dataclass
class Caller:
    """Somebody with a role, and the ids that they may try."""

    headers: dict[str, str]
    ids: Ids
    sees_theirs: bool = False
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)


@functools.cache
def read_schema() -> Any:
    """The schema as clients get it, as schemathesis reads it, with the platform behind it."""
    plain = json.loads(OpenApiJsonRenderer().render(published(), renderer_context={}))
    schema = schemathesis.openapi.from_dict(plain)
    schema.app = get_wsgi_application()
    return schema


def operations(schema: Any) -> list[APIOperation]:
    """All of them, sorted."""
    found = [each.ok() for each in schema.get_all_operations()]
    return sorted(found, key=lambda each: each.label)


def area_of(operation: APIOperation) -> str:
    """The part of the platform that answers."""
    tags: list[str] = operation.tags
    return tags[0]


def make_up(
    operation: APIOperation, caller: Caller, *, count: int, committing: Callable[[], Any]
) -> int:
    """Call ``count`` times; the number of calls made. Faults go to ``caller.wrong``."""
    made = 0
    cases = operation.as_strategy() | operation.as_strategy(GenerationMode.NEGATIVE)

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, choose=st.data())
    def call(case: Case, choose: st.DataObject) -> None:
        nonlocal made
        _name_real_rows(case, caller.ids, choose)
        headers = caller.headers | {"Accept-Language": choose.draw(st.sampled_from(LANGUAGES))}
        # Never the same call twice: else a call without choices would be made once only.
        headers["X-Request-Id"] = f"made-up-{choose.draw(st.integers(0, 2**60))}"
        made += 1
        _call(case, caller, headers, committing)

    call()
    return made


def _name_real_rows(case: Case, ids: Ids, choose: st.DataObject) -> None:
    kind = _kind_of(case.operation.path)
    for name in list(case.path_parameters or ()):
        known = choose.draw(st.sampled_from([ids.mine, ids.mine, ids.theirs, {}]))
        if kind in known:
            case.path_parameters[name] = known[kind]
    for holder in (case.query, case.body):
        if not isinstance(holder, dict):
            continue
        for name in REFERENCES.keys() & holder.keys():
            known = choose.draw(st.sampled_from([ids.mine, ids.theirs, {}]))
            if REFERENCES[name] in known:
                holder[name] = known[REFERENCES[name]]


def _kind_of(path: str) -> str:
    return path.removeprefix("/api/v1/").partition("/{")[0]


def _call(
    case: Case, caller: Caller, headers: dict[str, str], committing: Callable[[], Any]
) -> None:
    with _exceptions() as raised, transaction.atomic(), _undone():
        with committing():
            response = case.call(headers=headers)
        caller.statuses[response.status_code] += 1
        for fault, more in _faults(case, response, caller):
            key = f"{case.operation.label}: {fault}"
            caller.wrong.setdefault(key, "\n".join([more, _told(case, response, raised)]))


@contextmanager
def _undone() -> Iterator[None]:
    yield
    transaction.set_rollback(True)


@contextmanager
def _exceptions() -> Iterator[list[str]]:
    raised: list[str] = []

    def hear(**_kwargs: Any) -> None:
        raised.append(traceback.format_exc(limit=-6))

    got_request_exception.connect(hear)
    try:
        yield raised
    finally:
        got_request_exception.disconnect(hear)


def _faults(case: Case, response: Any, caller: Caller) -> Iterator[tuple[str, str]]:
    status = response.status_code
    documented = case.operation.definition.raw["responses"]
    if str(status) not in documented and status not in REFUSALS:
        yield f"status {status}", ""
        return
    if status >= 400 and response.content:
        body = response.json()
        if set(body) != {"code", "detail", "fields", "request_id"}:
            yield "error of another shape", ""
    if not caller.sees_theirs and _leaks(case, response.text):
        yield "shows what is of another project", ""
    try:
        case.validate_response(response, checks=CHECKS)
    except (Failure, FailureGroup) as failure:
        for each in getattr(failure, "exceptions", [failure]):
            yield each.title, each.message[:500]


def _leaks(case: Case, text: str) -> bool:
    # What the caller has sent themselves may come back in a message.
    sent = f"{case.formatted_path}{case.query}{case.body}"
    return CANARY in text and CANARY not in sent


def _told(case: Case, response: Any, raised: list[str]) -> str:
    body = case.body if isinstance(case.body, dict | list | str | int) else type(case.body).__name__
    asked = f"{case.method} {case.formatted_path} query={case.query!r} body={body!r}"
    return "\n".join([asked[:1500], f"-> {response.status_code} {response.text[:800]}", *raised])

"""The center hands out signed addresses of objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings as django_settings

from apps.agents.center.addresses import MAX_OBJECTS, VALID_SECONDS
from apps.agents.models import Allocation
from apps.agents.services.allocation import downloader_settings
from apps.jobs.models import Run
from apps.jobs.states import ReplayMissing
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.conftest import running
from tests.jobs.factories import make_run
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.broker.gateway import GATEWAY, gateway_key
from yardkit.objects import open_objects
from yardkit.protocol import (
    Addresses,
    AddressesWanted,
    DownloaderType,
    ObjectKind,
    SignedObject,
    encode,
    unpack_objects,
)
from yardkit.tokens import sign_run_token

pytestmark = pytest.mark.django_db(transaction=True)

BODIES, PAGES = ObjectKind.BODIES, ObjectKind.PAGES


@pytest.fixture(autouse=True)
def public_url(settings: Any, tmp_path: Path) -> None:
    settings.OBJECTS_URL = f"file://{tmp_path}"
    settings.OBJECTS_PUBLIC_URL = "http://objects.test"


@pytest.fixture
def served(harness: CenterHarness, run: Run) -> Run:
    """A run that agent ``a1`` serves."""
    harness.agent("a1")
    assert harness.allocate(run).agents == ["a1"]
    return run


def ask(harness: CenterHarness, message: AddressesWanted) -> Addresses:
    queue = topology.agent_addresses(message.agent) if message.agent else topology.QueueSpec(REPLY)
    harness.broker.declare(queue)
    harness.send(topology.CENTER_ADDRESSES.name, message)
    answer = harness.receive(queue.name)
    while not isinstance(answer, Addresses):
        answer = harness.receive(queue.name)
    return answer


def token_of(run: Run) -> str:
    return sign_run_token(django_settings.SECRET_KEY, run.pk)


@pytest.mark.covers("OB.1")
def test_an_agent_of_the_run_gets_addresses_of_new_objects(
    harness: CenterHarness, served: Run
) -> None:
    answer = ask(harness, AddressesWanted(run=served.pk, kind=BODIES, count=3, agent="a1"))
    assert (answer.run, answer.kind, answer.error) == (served.pk, BODIES, "")
    assert answer.seconds == VALID_SECONDS
    objects = unpack_objects(answer.packed)
    below = f"bodies/p{served.job.project_id}/run-{served.pk}/"
    assert len({one.key for one in objects}) == 3
    for one in objects:
        assert one.key.startswith(below)
        for address in (one.put, one.get, one.delete):
            assert address.startswith(f"http://objects.test/{below}")
    pages = ask(harness, AddressesWanted(run=served.pk, kind=PAGES, count=1, agent="a1"))
    (page,) = unpack_objects(pages.packed)
    assert page.key.startswith(f"pages/p{served.job.project_id}/run-{served.pk}/a1-")
    assert page.put
    assert (page.get, page.delete) == ("", "")


def test_one_question_gets_a_limited_number(harness: CenterHarness, served: Run) -> None:
    answer = ask(harness, AddressesWanted(run=served.pk, kind=BODIES, count=10**6, agent="a1"))
    assert len(unpack_objects(answer.packed)) == MAX_OBJECTS
    # Compressed, an address costs little.
    assert len(answer.packed) < 160 * MAX_OBJECTS


@pytest.mark.covers("OB.1")
def test_a_run_gets_addresses_of_what_is_its_own(harness: CenterHarness, served: Run) -> None:
    key = f"bodies/p{served.job.project_id}/run-{served.pk}/b1"
    wanted = AddressesWanted(
        run=served.pk, kind=BODIES, keys=[key], reply_to=REPLY, token=token_of(served)
    )
    (found,) = unpack_objects(ask(harness, wanted).packed)
    assert found == SignedObject(key, get=found.get, delete=found.delete)
    assert found.get
    assert found.delete


@pytest.mark.covers("OB.1")
def test_foreign_objects_are_refused(harness: CenterHarness, served: Run) -> None:
    harness.agent("a2")  # joins later, and does not serve the run yet
    project, run = served.job.project_id, served.pk
    own = f"bodies/p{project}/run-{run}/b1"
    for keys in ([f"bodies/p{project}/run-{run}1/b"], [own, "datasets/p1/d"], [f"pages/{own[7:]}"]):
        answer = ask(
            harness,
            AddressesWanted(
                run=run, kind=BODIES, keys=keys, reply_to=REPLY, token=token_of(served)
            ),
        )
        assert (answer.packed, "is not below" in answer.error) == (b"", True)
    for agent, why in (("a2", "not allocated"), ("a9", "not allocated")):
        answer = ask(harness, AddressesWanted(run=run, kind=BODIES, count=1, agent=agent))
        assert answer.packed == b""
        assert why in answer.error
    other = running()
    answer = ask(harness, AddressesWanted(run=other.pk, kind=BODIES, count=1, agent="a1"))
    assert "no agents are allocated" in answer.error
    written = AddressesWanted(run=run, kind=BODIES, count=1, reply_to=REPLY, token=token_of(served))
    assert "writes no objects" in ask(harness, written).error


@pytest.mark.covers("OB.1")
def test_questions_in_the_name_of_others_are_dead_letters(
    harness: CenterHarness, served: Run
) -> None:
    wrong = AddressesWanted(run=served.pk, kind=BODIES, reply_to=REPLY, token="r1.0")
    harness.send(topology.CENTER_ADDRESSES.name, wrong)
    assert f"not that of run {served.pk}" in harness.refused()
    as_agent = AddressesWanted(run=served.pk, kind=BODIES, count=1, agent="a1")
    own = f"run.{served.pk}.boot"
    harness.broker.publish(
        [
            Outgoing(
                body=encode(as_agent),
                exchange=GATEWAY,
                key=gateway_key(topology.CENTER_ADDRESSES.name, own),
            )
        ]
    ).result(10)
    assert f"{own} asks for agent a1" in harness.refused()
    harness.broker.publish([Outgoing(body=b"\x01", key=topology.CENTER_ADDRESSES.name)]).result(10)
    assert "not a message" in harness.refused()


def test_without_an_object_server_the_answer_says_so(harness: CenterHarness, served: Run) -> None:
    django_settings.OBJECTS_PUBLIC_URL = ""
    answer = ask(harness, AddressesWanted(run=served.pk, kind=BODIES, count=1, agent="a1"))
    assert "OBJECTS_PUBLIC_URL" in answer.error


@pytest.mark.slow("5 s")
@pytest.mark.covers("OB.5")
def test_agents_of_a_replay_read_the_kept_pages_of_the_recorded_run(
    harness: CenterHarness, run: Run
) -> None:
    """The center chooses how the run is served; the run cannot."""
    recorded = make_run(job=run.job)
    Run.objects.filter(pk=run.pk).update(replay_of=recorded)
    harness.agent("old")
    assert "replay" in harness.allocate(run).error
    harness.agent("a1", types=[DownloaderType.HTTP, DownloaderType.REPLAY])
    assert harness.allocate(run).agents == ["a1"]
    given = downloader_settings(Allocation.objects.get(owner=run.owner))
    assert (given.type, given.obey_robots) == (DownloaderType.REPLAY, False)
    assert (given.replay.run, given.replay.fetch_missing) == (recorded.pk, False)
    store = open_objects(django_settings.OBJECTS_URL)
    below = f"pages/p{run.job.project_id}/run-"
    for name in ("a", "b"):
        store.put(f"{below}{recorded.pk}/{name}.warc.gz", b"pages")
    store.put(f"{below}{run.pk}/own.warc.gz", b"pages")
    question = AddressesWanted(
        run=recorded.pk, kind=ObjectKind.RECORDED, agent="a1", token=given.replay.token
    )
    answer = ask(harness, question)
    objects = unpack_objects(answer.packed)
    assert [place.key for place in objects] == [
        f"{below}{recorded.pk}/a.warc.gz",
        f"{below}{recorded.pk}/b.warc.gz",
    ]
    assert all(place.get and not place.put and not place.delete for place in objects)
    foreign = ask(harness, msgspec.structs.replace(question, run=run.pk))
    assert (foreign.packed, "token" in foreign.error) == (b"", True)


@pytest.mark.covers("OB.5")
def test_a_replay_that_may_fetch_keeps_its_way_of_downloading(
    harness: CenterHarness, run: Run
) -> None:
    recorded = make_run(job=run.job)
    Run.objects.filter(pk=run.pk).update(replay_of=recorded, replay_missing=ReplayMissing.FETCH)
    harness.agent("a1")
    assert harness.allocate(run).agents == ["a1"]
    given = downloader_settings(Allocation.objects.get(owner=run.owner))
    assert (given.type, given.replay.run, given.replay.fetch_missing) == (
        DownloaderType.HTTP,
        recorded.pk,
        True,
    )

"""Responses of record APIs and their effect on an import."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from apps.sources.services import save_credential
from tests.sources import octoparse_double as faults
from tests.sources.collector_setup import CollectorHarness
from tests.sources.octoparse_double import PASSWORD, TASK, USER, OctoparseDouble, record

MakeYard = Callable[..., CollectorHarness]

PASSING = {
    "429": faults.status(429, **{"Retry-After": "0"}),
    "500": faults.status(500),
    "502": faults.status(502),
    "503": faults.status(503, **{"Retry-After": "0"}),
    "html": faults.html,
    "half": faults.half,
    "list": faults.as_data([1, 2]),
    "null": faults.as_data(None),
    "no data": faults.as_data({"data": None, "error": "success"}),
    "an error": faults.as_data({"data": None, "error": "busy", "error_Description": "later"}),
    "records are no list": faults.instead(dataList={"0": 1}),
    "total is a text": faults.instead(total="many"),
    "total is longer than any number": faults.instead(total="9" * 5_000),
    "total is negative": faults.instead(total=-1),
    "total is missing": faults.instead(total=None),
    "no records where there are some": faults.instead(dataList=[]),
}


@pytest.mark.slow("9 s")
@pytest.mark.covers("S0.38")
@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_asked_again(
    harness: CollectorHarness, double: OctoparseDouble, name: str
) -> None:
    double.total = 250
    # One request for the total and two for batches.
    double.spoil(PASSING[name], PASSING[name])
    harvest = harness.harvest()
    assert (harvest.state, harvest.published, harvest.error) == ("completed", 250, "")
    assert sorted(harness.numbers()) == list(range(250))


@pytest.mark.slow("15 s")
@pytest.mark.parametrize("name", PASSING)
def test_what_does_not_pass_ends_a_harvest_that_goes_on_later(
    make_yard: MakeYard, double: OctoparseDouble, name: str
) -> None:
    harness = make_yard(retries=2)
    double.total = 350

    def spoil_from(number: int) -> dict[str, Any]:
        if number == 149 and not double.faults:
            double.spoil(*[PASSING[name]] * 40)
        return record(number)

    double.make = spoil_from
    harvest = harness.harvest()
    assert (harvest.state, harvest.reason) == ("failed", "error")
    assert "3 attempts" in harvest.error
    assert harness.state.problem == harvest.error
    assert PASSWORD not in harvest.error
    assert harness.state.marker is None
    assert harness.state.checkpoint is not None
    double.faults.clear()
    double.make = record
    again = harness.harvest()
    assert (again.state, again.resumed) == ("completed", True)
    assert harvest.published + again.published == 350
    assert sorted(harness.numbers()) == list(range(350))
    assert harness.state.problem == ""
    assert harness.state.marker == 250


@pytest.mark.slow("1 s")
@pytest.mark.covers("S0.37")
def test_one_token_is_used_for_all_requests_and_renewed_before_its_end(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 500
    harness.harvest()
    harness.harvest()
    assert double.logins == ["password"]
    # A token is renewed 60 s before it expires, or at half of a shorter life.
    double.revoke()
    double.life_seconds = 0.05
    double.latency = 0.01
    double.total = 1500
    harness.harvest()
    assert double.logins[:3] == ["password", "password", "refresh_token"]
    assert sorted(harness.numbers()) == list(range(1500))


@pytest.mark.covers("S0.37")
def test_a_token_that_is_refused_is_replaced_once(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 300
    harness.harvest()
    double.revoke()
    double.total = 400
    assert harness.harvest().state == "completed"
    assert double.logins == ["password", "password"]
    double.spoil(*[faults.status(401)] * 40)
    harvest = harness.harvest()
    assert harvest.state == "failed"
    assert "rejects a new token" in harvest.error


def test_changed_credentials_are_those_of_the_next_harvest(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    assert harness.harvest().error == ""
    save_credential(
        project_id=harness.project.pk, name="vendor", values={"password": "hunter2"}, actor=None
    )
    assert "rejects the user name or password" in harness.harvest().error
    save_credential(
        project_id=harness.project.pk, name="vendor", values={"password": PASSWORD}, actor=None
    )
    assert harness.harvest().error == ""
    # The import in between failed at its first request.
    assert double.logins == ["password"] * 3


def test_wrong_passwords_fail_at_once_and_are_not_told(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    save_credential(
        project_id=harness.project.pk, name="vendor", values={"password": "hunter2"}, actor=None
    )
    harvest = harness.harvest()
    assert "rejects the user name or password" in harvest.error
    assert "hunter2" not in harvest.error
    assert USER not in harvest.error
    assert double.logins == ["password"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"credentials": "gone"}, "credentials gone do not exist"),
        ({"base_url": "http://169.254.169.254"}, "SOURCES_ALLOWED_NETWORKS"),
        ({"task_id": "unknown"}, "task_invalid"),
        ({"base_url": "http://127.0.0.1:1", "retries": 1}, "no response (refused)"),
    ],
)
def test_settings_that_lead_nowhere_are_told(
    make_yard: MakeYard, fields: dict[str, Any], said: str
) -> None:
    harness = make_yard(**fields)
    harvest = harness.harvest()
    assert harvest.state == "failed"
    assert said in harvest.error


def test_a_redirect_is_not_followed(harness: CollectorHarness, double: OctoparseDouble) -> None:
    double.total = 10
    double.spoil(faults.status(302, Location="http://user:secret@elsewhere.example/x?token=1"))
    harvest = harness.harvest()
    assert harvest.error == "redirect not followed: http://elsewhere.example"


@pytest.mark.slow("1 s")
@pytest.mark.covers("S0.40")
def test_requests_are_spread_evenly_below_the_limit(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(rate_limit=20)
    harness.paced = True
    # More than the concurrent requests, and fewer than 22 requests without a limit.
    double.limit, double.burst = 20, 8
    double.latency = 0.12
    double.total = 2000
    harvest = harness.harvest()
    assert (harvest.published, double.refused) == (2000, 0)
    # Token, total and 20 batches, 50 ms apart; each response takes longer.
    assert len(double.times) == 22
    assert double.times[-1] - double.times[0] > 0.95
    assert double.most_at_once >= 2


@pytest.mark.slow("2 s")
@pytest.mark.covers("S0.40")
def test_over_the_limit_the_whole_account_pauses(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 700
    double.limit, double.burst = 10, 3
    harvest = harness.harvest()
    assert harvest.published == 700
    assert double.refused >= 1
    # Retry-After is one second.
    assert (
        max(after - before for before, after in zip(double.times, double.times[1:], strict=False))
        > 0.9
    )


@pytest.mark.parametrize("kept", [True, False])
def test_dates_that_are_none_are_counted(
    make_yard: MakeYard, double: OctoparseDouble, kept: bool
) -> None:
    harness = make_yard(bad_dates="keep" if kept else "refuse")
    double.total = 6
    dates = ["2026-01-15", "", None, "soon", "2036-01-01", "2025-01-01"]
    double.make = lambda number: record(number) | {"date": dates[number]}
    harvest = harness.harvest()
    assert (harvest.read, harvest.filtered, harvest.bad_dates) == (6, 1, 4)
    assert (harvest.published, harvest.refused) == ((5, 0) if kept else (1, 4))


def test_what_is_no_object_is_refused(harness: CollectorHarness, double: OctoparseDouble) -> None:
    double.total = 4
    strange: list[Any] = ["text", 7, None, record(3)]
    double.make = lambda number: strange[number]
    harvest = harness.harvest()
    assert (harvest.read, harvest.published, harvest.refused) == (4, 1, 3)


@pytest.mark.covers("S0.39")
def test_records_are_marked_as_exported_only_after_they_are_published(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(mode="not_exported")
    double.total = 250
    harvest = harness.harvest()
    assert (harvest.state, harvest.published, double.marks) == ("completed", 250, 3)
    assert harness.numbers() == list(range(250))
    double.total = 300
    assert harness.harvest().published == 50
    assert double.exported == 300


@pytest.mark.covers("S0.39")
def test_marks_that_do_nothing_end_the_harvest(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(mode="not_exported")
    double.total = 50
    double.marks_work = False
    harvest = harness.harvest()
    assert "same records after" in harvest.error
    assert (harvest.published, len(harness.numbers())) == (50, 50)


@pytest.mark.covers("S0.37")
def test_the_open_api_is_spoken_too(make_yard: MakeYard, double: OctoparseDouble) -> None:
    harness = make_yard(dialect="open")
    double.total = 150
    assert harness.harvest().published == 150
    assert sorted(harness.numbers()) == list(range(150))


@pytest.mark.slow("1 s")
def test_any_json_api_can_be_a_source(make_yard: MakeYard, double: OctoparseDouble) -> None:
    double.total = 250
    harness = make_yard()
    # The test server's responses, read as a generic API with a token.
    harness.harvest()
    harness.numbers()
    token = next(iter(double._tokens))
    save_credential(
        project_id=harness.project.pk, name="vendor", values={"token": token}, actor=None
    )
    harness.configure(
        kind="json",
        base_url=f"{double.url}/api/alldata/GetDataOfTaskByOffset",
        json={
            "total": "data.total",
            "records": "data.dataList",
            "parameters": {"taskId": TASK},
            "auth": "bearer",
        },
    )
    harvest = harness.harvest()
    assert harvest.notes == [{"code": "other_records"}]
    assert harvest.published == 250
    assert sorted(harness.numbers()) == list(range(250))


@pytest.mark.slow("2 s")
@pytest.mark.covers("S0.37", "S0.38", "S0.39")
def test_the_vendors_own_client_reads_the_double(
    double: OctoparseDouble, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor's own client accepts the test server."""
    # The package has no type hints.
    vendor: Any = importlib.import_module("octoparse.octoparse")
    monkeypatch.chdir(tmp_path)  # it stores its token there
    monkeypatch.setenv("OCTOPARSE_USERNAME", USER)
    # It sends them unencoded.
    monkeypatch.setenv("OCTOPARSE_PASSWORD", quote(PASSWORD))
    monkeypatch.setattr(vendor, "BASE_URL", double.url + "/")
    double.total = 250
    client = vendor.Octoparse()
    assert [each["编号"] for each in client.get_task_data(TASK, size=100)] == list(range(250))
    assert client.get_data_by_offset(TASK, size=100, offset=200) == [
        record(number) for number in range(200, 250)
    ]
    assert len(client.get_not_exported_data(TASK, size=20)["dataList"]) == 20
    assert client.update_data_status(TASK)["error"] == "success"
    assert client.get_not_exported_data(TASK, size=20)["dataList"][0] == record(20)
    client.refresh_token()
    assert client.get_data_by_offset(TASK, size=1) == [record(0)]
    assert double.logins == ["password", "refresh_token"]
    assert json.dumps(client.token_entity["token_type"]) == '"bearer"'

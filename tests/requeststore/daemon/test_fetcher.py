"""Fetchers as processes: what is stored becomes records (seed S4.20, S4.21)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.requeststore.daemon.fetcher_processes import RULES, Plant, urls
from tests.requeststore.daemon.pages_site import Site

pytestmark = [pytest.mark.slow("fetchers as processes"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module", autouse=True)
def fetcher(plant: Plant) -> Iterator[None]:
    """One serves all tests of this file but those that want their own."""
    plant.start()
    yield
    plant.stop()


@pytest.mark.covers("S4.20", "S4.21", "S4.13", "S4.10")
def test_requests_become_records_and_are_marked(plant: Plant, site: Site) -> None:
    plant.save(first={})
    ids = plant.submit("first", *urls(site.url, range(20)), meta={"shop": 1})
    plant.until_flags("first", {1: 20})

    fields = ("request_id", "position", "title", "price", "_rule", "url", "_meta")
    assert plant.rows("first", *fields) == [
        (int(one), 0, f"Title {n}", n, "page", f"{site.url}/p/{n}", {"shop": 1})
        for n, one in enumerate(ids)
    ]
    found = plant.find("first", ids[0])[0]
    result = found["result"]
    assert (result["status"], result["records"]) == (200, 1)
    assert result["bytes"] > 100
    assert result["ms"] >= 0
    assert [kind for kind, _text in found["steps"]] == ["stored", "queued", "taken", "finished"]
    plant.until(lambda: plant.waiting("first")[0] == 0, "an empty queue")


@pytest.mark.covers("S4.5")
def test_a_request_goes_out_as_it_was_stored(plant: Plant, site: Site) -> None:
    plant.save(asked={"fetch": {"headers": {"X-Biz": "b", "X-Both": "b"}}})
    plant.submit(
        "asked", f"{site.url}/p/1?a=1", headers={"X-Own": "o", "X-Both": "o"}, params={"q": "ä b"}
    )
    plant.until_flags("asked", {1: 1})
    sent = {name: site.headers.get(name) for name in ("x-biz", "x-own", "x-both")}
    assert sent == {"x-biz": "b", "x-own": "o", "x-both": "o"}
    assert site.hits["/p/1?a=1&q=%C3%A4+b"] == 1


@pytest.mark.covers("S4.6", "S4.22")
def test_failures_are_tried_again_and_end_with_their_reason(plant: Plant, site: Site) -> None:
    strict = {"fields": {"sold": {"css": ".sold", "required": True}}}
    plant.save(
        broken={
            "retry_seconds": 1,
            "max_tries": 2,
            "failed_flag": 7,
            "flags": {"7": "gone"},
            "rules": {**RULES, "strict": strict},
        }
    )
    paths = ["status/503", "once/1", "status/404"]
    ids = plant.submit("broken", *[f"{site.url}/{path}" for path in paths], "http://10.1.2.3/")
    ids += plant.submit("broken", f"{site.url}/p/1", rule="strict")
    plant.until_flags("broken", {1: 1, 7: 4})

    found = plant.find("broken", *ids)
    ends = [(one["flag"], one["tries"], one["result"].get("error", "")) for one in found]
    assert ends[:3] == [(7, 2, "HTTP 503"), (1, 2, ""), (7, 1, "HTTP 404")]
    assert ends[3][:2] == (7, 1)
    assert "10.1.2.3" in ends[3][2]
    assert ends[4][:2] == (7, 2)
    assert "sold" in ends[4][2]
    steps = [kind for kind, _text in found[0]["steps"]]
    assert steps.count("taken") == 2
    assert steps.count("returned") == 1


@pytest.mark.covers("S4.10", "S4.9")
def test_settings_are_followed_without_a_restart(plant: Plant, site: Site) -> None:
    plant.save(moving={})
    plant.submit("moving", f"{site.url}/p/1")
    plant.until_flags("moving", {1: 1})

    more = {"page": {"fields": {**RULES["page"]["fields"], "first": {"css": "li"}}}}
    plant.save(moving={"rules": more})
    plant.until(lambda: version(plant) == plant.version, "the new version runs")
    plant.submit("moving", f"{site.url}/p/2")
    plant.until_flags("moving", {1: 2})
    assert plant.rows("moving", "title", "first") == [("Title 1", None), ("Title 2", "one")]

    held = plant.submit("moving", *urls(site.url, range(50, 60), "wait"))
    plant.save(moving={"rules": more, "enabled": False})
    plant.until(lambda: version(plant) == plant.version, "the new version runs")
    flags = plant.until(lambda: without_taken(plant, "moving"), "all are given back or done")
    assert sum(flags.values()) == 2 + len(held)

    plant.save(moving={"rules": more, "fetch": {"concurrency": 3}})
    plant.until_flags("moving", {1: 12})
    assert len(set(plant.recorded("moving"))) == len(plant.recorded("moving")) == 12


@pytest.mark.covers("S4.3")
def test_a_fetcher_can_be_kept_to_some_bizzes(plant: Plant, site: Site) -> None:
    plant.stop()
    try:
        own = ("--name", "f-own", "--biz", "crawls/mine", "--biz", "nobody/theirs")
        plant.daemons.start("f-own", "run_fetcher", *own)
        plant.save(mine={}, theirs={})
        plant.submit("theirs", f"{site.url}/p/71")
        plant.submit("mine", f"{site.url}/p/72")
        plant.until_flags("mine", {1: 1})
        assert plant.flags("theirs") == {"0": 1}
        assert plant.waiting("theirs")[0] == 1
    finally:
        plant.stop("f-own")
        plant.start()
    plant.until_flags("theirs", {1: 1})


def without_taken(plant: Plant, biz: str) -> dict[str, int]:
    """Its flags, once nobody has any of its requests."""
    flags = plant.flags(biz)
    return {} if "-1" in flags else flags


def version(plant: Plant) -> int:
    """The one that the fetcher has said to run."""
    number: int = plant.ask("running", number=plant.project, name="f1")
    return number


@pytest.mark.covers("S4.20", "S4.22")
def test_what_is_no_request_is_set_aside_and_repeats_are_dropped(plant: Plant, site: Site) -> None:
    plant.save(strange={})
    (one,) = plant.submit("strange", f"{site.url}/wait/1")
    ts = plant.ask("ts", number=plant.project, biz="strange", one=one)
    plant.ask(
        "push",
        number=plant.project,
        biz="strange",
        entries=[
            *[[one, "strange", ts], [one, "strange", ts], [one, "strange", ts - 5]],
            *[["99", "strange", ts], ["5", "first", ts]],
        ],
    )
    plant.ask("push_junk", number=plant.project, biz="strange", body="no entry")
    plant.until_flags("strange", {1: 1})
    plant.until(lambda: plant.waiting("strange")[0] == 0, "an empty queue")

    assert site.hits["/wait/1"] == 1
    assert plant.recorded("strange") == [one]
    reasons = plant.until(lambda: reasons_of(plant, 4), "four dead letters")
    words = ["at another time", "no such request", "queue is that of the biz strange", "no entry"]
    for each in words:
        assert any(each in reason for reason in reasons), reasons


def reasons_of(plant: Plant, number: int) -> list[str]:
    """Those of all dead letters, once there are so many."""
    found: list[str] = plant.ask("dead_letters")
    return found if len(found) >= number else []


@pytest.mark.covers("S4.21", "DS.3")
def test_records_go_to_files_or_to_a_queue(plant: Plant, site: Site) -> None:
    plant.save(
        lines={"records": {"to": "json_lines"}},
        messages={"records": {"to": "queue", "name": "found"}},
        bare={"records": {"to": "nowhere"}, "rules": {}},
    )
    ids = plant.submit("lines", *urls(site.url, range(5)))
    sent = plant.submit("messages", *urls(site.url, range(5)))
    plant.submit("bare", *urls(site.url, range(5)), rule="")
    for biz in ("lines", "messages", "bare"):
        plant.until_flags(biz, {1: 5})

    assert plant.recorded("lines") == sorted(ids, key=int)
    assert plant.recorded("messages") == sorted(sent, key=int)
    assert plant.recorded("bare") == []
    folder = plant.folder / "data" / "records" / f"p{plant.project}" / "lines"
    files = sorted(folder.glob("*.jsonl"))
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert sorted(line["title"] for line in lines) == [f"Title {n}" for n in range(5)]
    queue = f"records.p{plant.project}.found"
    found = plant.ask("messages", queue=queue, count=5)
    assert sorted(one["request_id"] for one in found) == sorted(sent)


@pytest.mark.covers("S4.20")
def test_pages_lead_to_further_requests(plant: Plant, site: Site) -> None:
    follow = {"rule": "page", "xpath": "//a/@href"}
    plant.save(book={"rules": {**RULES, "list": {"follow": [follow]}}})
    (one,) = plant.submit("book", f"{site.url}/list/7", rule="list")
    plant.until_flags("book", {1: 4})
    assert plant.rows("book", "title") == [("Title 70",), ("Title 71",), ("Title 72",)]
    assert plant.find("book", one)[0]["result"]["followed"] == 3


def test_a_biz_that_cannot_be_served_says_why_and_harms_nobody(plant: Plant, site: Site) -> None:
    plant.save(odd={"fetch": {"downloader": {"type": "browser"}}}, fine={})
    plant.submit("odd", f"{site.url}/p/1")
    plant.submit("fine", f"{site.url}/p/1")
    plant.until_flags("fine", {1: 1})
    away = plant.until(lambda: plant.detail().get("away"), "told in its row")
    assert "needs an agent" in away[f"p{plant.project}.odd"]
    shown = plant.daemons.manage("run_fetcher", "--status").stdout
    assert "needs an agent" in shown
    plant.save(odd=None)
    plant.until(lambda: not plant.detail().get("away"), "not told any more")


def test_bizzes_of_higher_priority_get_more_but_not_everything(plant: Plant, site: Site) -> None:
    plant.save(low={"fetch": {"concurrency": 100}}, high={"priority": 9, "records": NOWHERE})
    plant.submit("low", *urls(site.url, range(300), "wait"))
    plant.submit("high", *urls(site.url, range(30), "p"))
    plant.until_flags("high", {1: 30})
    assert plant.flags("low").get("0", 0) + plant.flags("low").get("-1", 0) > 0
    plant.until_flags("low", {1: 300})


NOWHERE = {"to": "nowhere"}


@pytest.mark.covers("S4.22")
def test_a_fetcher_that_stops_loses_nothing_and_gives_back(plant: Plant, site: Site) -> None:
    plant.save(slow={"fetch": {"concurrency": 4}, "records": {"to": "table"}})
    plant.start("f2")
    addresses = [*urls(site.url, range(200, 240), "wait"), f"{site.url}/silent"]
    plant.submit("slow", *addresses)
    plant.until(lambda: plant.detail("f2").get("bizzes"), "f2 serves")
    plant.until(lambda: plant.flags("slow").get("1", 0) > 3, "it is under way")
    seconds = plant.stop("f2")
    assert seconds < 4.5
    left = plant.find("slow", *plant.ask("page_ids", number=plant.project, biz="slow"))
    assert not [one for one in left if one["flag"] == -1 and one["owner"].startswith("fetcher f2")]
    plant.until(lambda: plant.flags("slow").get("1", 0) == 40, "the other one does the rest")
    assert len(plant.recorded("slow")) == len(set(plant.recorded("slow"))) == 40
    # The one that is never answered would be tried for long.
    plant.save(slow=None)


def test_a_page_that_never_comes_ends_in_time(plant: Plant, site: Site) -> None:
    quick = {"take_seconds": 4, "max_tries": 2, "retry_seconds": 1}
    plant.save(mute={**quick, "fetch": {"timeout_seconds": 0.5}})
    (one,) = plant.submit("mute", f"{site.url}/silent")
    plant.until_flags("mute", {2: 1})
    found = plant.find("mute", one)[0]
    assert found["result"] == {"status": 0, "error": "timeout: no complete answer in time"}
    assert found["tries"] == 2


def test_once_ends_when_there_is_nothing_left(plant: Plant, site: Site) -> None:
    plant.save(single={})
    ids = plant.submit("single", *urls(site.url, range(30)))
    plant.daemons.manage("run_fetcher", "--once", "--name", "f3")
    assert plant.flags("single") == {"1": len(ids)}


def test_what_it_may_not_do_is_told_in_one_line(plant: Plant) -> None:
    done = plant.daemons.manage("run_fetcher", "--concurrency", "0", status=2)
    assert done.stderr.strip() == "--concurrency: use 1 or more"

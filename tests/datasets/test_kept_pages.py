"""Kept pages: index, accounting, viewer, REST, and retention."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from warcio.archiveiterator import ArchiveIterator

from apps.access.states import Role
from apps.agents.services import allocate
from apps.agents.services.allocation import downloader_settings
from apps.datasets.engine.page_rendering import difference, inert_html
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.kept_pages import NEVER_UPLOADED, page_accounting
from apps.datasets.services import retention
from apps.datasets.services.ingestion import store_items
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.queuestats.services.counters import store_counters
from apps.runtime.services.objects import shared_objects
from tests.access.factories import Api, enter, make_user
from tests.agents.factories import make_agent
from tests.datasets.factories import NOW, make_batch, make_items, store
from tests.datasets.kept import keep, page_of, token_of
from tests.datasets.test_data_pages import content_of
from tests.datasets.test_pipeline import compact_all
from tests.jobs.factories import make_job, make_run
from yardkit.protocol import Allocate, KeepPages, PageCounters, RunCounters
from yardkit.tokens import pages_project, sign_run_token

pytestmark = [pytest.mark.django_db, pytest.mark.covers("OB.2")]
SCRIPT = "<script>fetch('/evil')</script>"


@pytest.fixture
def run() -> Run:
    return make_run(state=RunState.EXITED)


@pytest.fixture
def viewer(run: Run) -> Client:
    return enter(make_user(roles={run.job.project: Role.VIEWER}))


def report(run: Run, seq: int, chosen: int, boot: str = "k1", **not_kept: int) -> None:
    message = PageCounters(run=run.pk, boot=boot, seq=seq, chosen=chosen, not_kept=not_kept)
    assert not store_counters(messages=[message], now=NOW)


def test_what_was_chosen_is_kept_not_kept_or_waiting(run: Run, tmp_path: Path) -> None:
    run.ended_at = None
    report(run, 2, 5, full=1)
    report(run, 1, 3)
    report(run, 1, 2, boot="k2")
    keep(run, [page_of("a"), page_of("b", url="https://shop.example/b")], tmp_path)
    found = page_accounting(run)
    assert (found.chosen, found.kept, found.not_kept, found.waiting) == (7, 2, 1, 4)
    assert found.reasons == {"full": 1}
    # The index may be here before the report.
    keep(run, [page_of(str(n), number=n) for n in range(6)], tmp_path)
    assert page_accounting(run).chosen == 9
    report(run, 3, 8, full=1)
    run.ended_at = timezone.now() - timedelta(hours=2)
    found = page_accounting(run)
    assert (found.chosen, found.kept, found.waiting) == (10, 8, 0)
    assert found.reasons == {"full": 1, NEVER_UPLOADED: 1}


def test_only_an_agent_stores_pages(run: Run) -> None:
    rows = [{"url": "https://shop.example/"}]
    for token in (sign_run_token("x", run.pk), make_batch(run, rows).token, "", "1.s1.abc"):
        batch = make_batch(run, rows, producer=f"pages:{run.pk}", token=token)
        assert len(store_items(messages=[batch], now=NOW)) == 1
    assert pages_project("secret", 7, "x") is None


@pytest.mark.parametrize("keep_pages", ["none", "failed", "sample", "all"])
def test_the_center_says_what_is_kept(keep_pages: str, settings: object) -> None:
    run = make_run(job=make_job(keep_pages=keep_pages, pages_sample=7), state=RunState.RUNNING)
    agent = make_agent()
    made = allocate(
        message=Allocate(run=run.pk, token="", reply_to="q"), alive=[agent.agent_id], now=NOW
    )
    policy = downloader_settings(made).pages
    assert (policy.keep, policy.sample) == (KeepPages(keep_pages), 7)
    assert policy.token == ("" if keep_pages == "none" else token_of(run))


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
def test_the_list_is_filtered_and_paged(run: Run, viewer: Client, tmp_path: Path) -> None:
    pages = [
        page_of("x", url=f"https://shop.example/{n}", status=404 if n % 2 else 200, number=n)
        for n in range(60)
    ]
    keep(run, pages, tmp_path)
    address = f"/runs/{run.pk}/pages"
    text = viewer.get(address).content.decode()
    assert text.count("data-kept-page") == 50
    assert 'rel="next"' in text
    text = viewer.get(address, {"status": "failed"}).content.decode()
    assert text.count("data-kept-page") == 30
    text = viewer.get(address, {"url": "/59", "status": "404"}).content.decode()
    assert text.count("data-kept-page") == 1
    text = viewer.get(address, {"request": "12"}).content.decode()
    assert "https://shop.example/12" in text
    assert text.count("data-kept-page") == 1
    assert "60 chosen = 60 kept + 0 not kept + 0 waiting." in viewer.get(address).content.decode()
    store_counters(messages=[RunCounters(run=run.pk, boot="b1", seq=1)], now=NOW)
    assert "60 chosen = 60 kept" in viewer.get(f"/runs/{run.pk}").content.decode()
    assert enter(make_user()).get(address).status_code == 404


def test_a_page_shows_headers_and_source_as_text(run: Run, viewer: Client, tmp_path: Path) -> None:
    warc = keep(run, [page_of(f"<p>hello</p>{SCRIPT}", status=500)], tmp_path)
    address = f"/runs/{run.pk}/pages/{warc}/1"
    text = viewer.get(address).content.decode()
    assert "X-Powered-By: &lt;b&gt;PHP&lt;/b&gt;" in text
    assert "GET / HTTP/1.1" in text
    assert "Accept: text/html" in text
    text = viewer.get(address, {"tab": "source"}).content.decode()
    assert "&lt;p&gt;hello&lt;/p&gt;&lt;script&gt;" in text
    assert SCRIPT not in text
    answer = viewer.get(f"{address}/body")
    assert answer.content == f"<p>hello</p>{SCRIPT}".encode()
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert viewer.get(f"/runs/{run.pk}/pages/{warc}/2").status_code == 404


def test_a_rendered_page_may_do_nothing(run: Run, viewer: Client, tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n123"
    pages = [
        page_of(f"<p>hello</p>{SCRIPT}", screenshot=b"\xff\xd8\xff1"),
        page_of("<svg onload=alert(1)>", content_type="image/svg+xml", number=2),
        page_of(png, content_type="text/html", number=3),
    ]
    warc = keep(run, pages, tmp_path)
    address = f"/runs/{run.pk}/pages/{warc}"
    answer = viewer.get(f"{address}/1/rendered", headers={"Sec-Fetch-Dest": "iframe"})
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "allow-" not in policy
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.content == b"<!DOCTYPE html><html><head></head><body><p>hello</p></body></html>"
    opened = viewer.get(f"{address}/1/rendered", headers={"Sec-Fetch-Dest": "document"})
    assert opened.status_code == 403
    assert b"hello" not in opened.content
    assert 'sandbox=""' in viewer.get(f"{address}/1", {"tab": "rendered"}).content.decode()
    shot = viewer.get(f"{address}/1/screenshot")
    assert (shot.headers["Content-Type"], shot.content) == ("image/jpeg", b"\xff\xd8\xff1")
    # What a site says of the type is not used.
    assert "<iframe" not in viewer.get(f"{address}/2", {"tab": "rendered"}).content.decode()
    assert viewer.get(f"{address}/2/rendered").headers["Content-Type"].startswith("text/html")
    assert viewer.get(f"{address}/3/rendered").headers["Content-Type"] == "image/png"


@pytest.mark.parametrize(
    "hostile",
    [
        SCRIPT,
        "<img src=x onerror=alert(1)>",
        "<link rel=preconnect href=//evil.example>",
        "<svg><style><p><link rel=preconnect href=//evil.example></style></svg>",
        "<base href=//evil.example><a href=x>y</a>",
        "<meta http-equiv=refresh content='0;url=//evil.example'>",
        "<iframe srcdoc='<script>1</script>'></iframe>",
        "<form action=//evil.example><button formaction=//evil.example>x</button></form>",
        "<a href=//evil.example target=_top ping=//evil.example>x</a>",
        "<noscript><p title='</noscript><img src=//evil.example onerror=alert(1)>'></noscript>",
        "<math><mtext><table><mglyph><style><img src=//evil.example onerror=1></style></table>",
        "<input type=image src=//evil.example><body background=//evil.example>",
        "<img src='data:image/svg+xml,<svg onload=alert(1)>'>",
        "<video poster=//evil.example><source src=//evil.example></video>",
        "<template><script>1</script></template><object data=//evil.example></object>",
    ],
)
def test_what_runs_or_loads_is_taken_out(hostile: str) -> None:
    text = inert_html(f"<p>before</p>{hostile}<p>after</p>")
    for part in ("<script", "evil.example", "onerror=", "onload=", "srcdoc", "svg+xml"):
        assert part not in text.replace("&lt;", "").partition("title=")[0], text
    assert "before" in text


def test_two_fetches_of_an_address_are_compared(run: Run, viewer: Client, tmp_path: Path) -> None:
    first = make_run(job=run.job, state=RunState.EXITED)
    old = keep(first, [page_of("<p>one</p><p>two</p>")], tmp_path)
    new = keep(run, [page_of("<p>one</p><p>three</p>")], tmp_path)
    other = keep(run, [page_of("<p>one</p><p>three</p>", number=2)], tmp_path)
    address = f"/runs/{run.pk}/pages/{new}/1"
    wanted = {"tab": "compare", "with": f"{first.pk}-{old}-1"}
    text = viewer.get(address, wanted).content.decode()
    assert '<span data-kind="-">-&lt;p&gt;two&lt;/p&gt;' in text
    assert '<span data-kind="+">+&lt;p&gt;three&lt;/p&gt;' in text
    text = viewer.get(address, wanted | {"with": f"{run.pk}-{other}-1"}).content.decode()
    assert "data-same" in text
    assert difference("a", "a") == []


def test_the_index_leads_to_pages_of_its_run_only(run: Run, viewer: Client, tmp_path: Path) -> None:
    shared_objects().put("datasets/p1/secret", b"secret")
    for key in ("datasets/p1/secret", f"pages/p9/run-{run.pk}/x", "pages/../x"):
        warc = keep(run, [page_of("x")], tmp_path, key=key)
        text = viewer.get(f"/runs/{run.pk}/pages/{warc}/1").content.decode()
        assert "The kept page cannot be read" in text
        assert viewer.get(f"/runs/{run.pk}/pages/{warc}/1/body").status_code == 404


# --- REST -----------------------------------------------------------------------------------------


def test_rest_lists_counts_and_downloads(run: Run, tmp_path: Path) -> None:
    keep(run, [page_of("a"), page_of("b", status=404, number=2)], tmp_path)
    keep(run, [page_of("c", number=3)], tmp_path)
    api = Api(make_user(roles={run.job.project: Role.VIEWER}))
    found = api.get(f"/api/v1/runs/{run.pk}/pages?filter=status:at_least:400")
    assert [row["item"]["url"] for row in found.json()["results"]] == ["https://shop.example/"]
    accounting = api.get(f"/api/v1/runs/{run.pk}/pages/accounting").json()
    assert (accounting["chosen"], accounting["kept"], accounting["waiting"]) == (3, 3, 0)
    answer = api.get(f"/api/v1/runs/{run.pk}/pages/warc")
    content = content_of(answer)
    kinds = [record.rec_type for record in ArchiveIterator(io.BytesIO(content))]
    assert kinds.count("response") == 3
    assert kinds.count("warcinfo") == 2
    assert api.get(f"/api/v1/runs/{run.pk}/items").json()["results"] == []
    other = make_run(state=RunState.EXITED)
    assert api.get(f"/api/v1/runs/{other.pk}/pages").status_code == 404
    assert api.get(f"/api/v1/runs/{other.pk}/pages/warc").status_code == 404


# --- retention ------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_pages_are_deleted_after_the_days_of_their_job(run: Run, tmp_path: Path) -> None:
    Job.objects.filter(pk=run.job_id).update(pages_days=3)
    store(run, make_items(2))
    keep(run, [page_of("a"), page_of("b", number=2)], tmp_path)
    later = NOW + timedelta(minutes=30)
    compact_all(later)
    DatasetRun.objects.update(settled_at=later)
    dataset = Dataset.objects.get(kind="pages")
    assert retention.apply(dataset=dataset, now=NOW + timedelta(days=2)) == 0
    assert retention.apply(dataset=dataset, now=NOW + timedelta(days=4)) == 1
    assert not list(shared_objects().list("pages/"))
    found = page_accounting(run)
    assert (found.chosen, found.kept, found.deleted) == (2, 2, 2)
    assert DatasetRun.objects.get(dataset__kind="items").deleted_at is None


@pytest.mark.django_db(transaction=True)
def test_pages_of_deleted_runs_are_swept(run: Run, tmp_path: Path) -> None:
    keep(run, [page_of("a")], tmp_path)
    shared_objects().put("pages/p99/run-99/agent-1-x.warc.gz", b"x")
    assert retention.sweep(now=NOW + timedelta(hours=3)) == 0
    assert retention.sweep(now=NOW + timedelta(days=2)) == 1
    assert len(list(shared_objects().list("pages/"))) == 1
    Dataset.objects.filter(kind="pages").delete()
    retention.sweep(now=NOW + timedelta(days=2))
    assert not list(shared_objects().list("pages/"))

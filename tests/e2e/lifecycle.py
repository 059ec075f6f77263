"""The life of one run as its operator sees it: started by its cron, paused, resumed, restarted,
stopped; at each step the state, the counters, the site's own count and the log are looked at."""

from __future__ import annotations

import time
from typing import Any

from tests.e2e.counting_site import CountingSite
from tests.e2e.rest import Rest

# So long a paused run is watched; at SPEED it would make sixty requests meanwhile.
WATCHED_SECONDS = 3.0
SPEED = 20.0
FINAL = {"exited", "failed", "lost", "cancelled"}


class Life:
    """One run of a job."""

    def __init__(self, rest: Rest, site: CountingSite, job: int) -> None:
        self.rest = rest
        self.site = site
        self.job = job
        self.run = 0

    # --- looking --------------------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        row: dict[str, Any] = self.rest.get(f"/runs/{self.run}")
        return row

    def books(self) -> dict[str, Any]:
        books: dict[str, Any] = self.rest.get(f"/runs/{self.run}/counters")
        return books

    def hits(self) -> int:
        """How often the site has been asked for a page; robots.txt is the center's question."""
        return sum(self.site.hits.values()) - self.site.hits["/robots.txt"]

    def until_state(self, *states: str) -> dict[str, Any]:
        """Wait for one of the states; an end that was not waited for fails the test at once."""

        def reached() -> dict[str, Any] | None:
            row = self.look()
            if row["state"] in states:
                return row
            assert row["state"] not in FINAL, (row, self.rest.explain())
            return None

        row: dict[str, Any] = self.rest.until(reached, f"run {self.run} to be {states}")
        return row

    def until_more_hits(self, count: int = 10) -> None:
        """Wait until the site has been asked so often from now on."""
        begun = self.hits()
        self.rest.until(lambda: self.hits() >= begun + count, f"{count} more requests")

    def asked(self, action: str) -> dict[str, Any]:
        """The latest command of this kind, once the run has answered it."""

        def answered() -> dict[str, Any] | None:
            commands = self.rest.rows(f"/runs/{self.run}/commands")
            mine = [each for each in commands if each["action"] == action]
            latest = max(mine, key=lambda each: each["id"], default=None)
            return latest if latest is not None and latest["answered_at"] else None

        command: dict[str, Any] = self.rest.until(answered, f"the answer to {action}")
        return command

    # --- steps ----------------------------------------------------------------------------------

    def is_started_by_its_cron(self) -> None:
        """Within a minute, by exactly one planned run."""

        def planned() -> dict[str, Any] | None:
            rows = self.rest.rows("/planned-runs", job=self.job)
            return next((row for row in rows if row["run"]), None)

        plan = self.rest.until(planned, "a planned run", 150)
        assert plan["outcome"] in ("started", "late"), plan
        self.run = plan["run"]
        row = self.until_state("running")
        assert row["trigger"] == "cron", row
        self.until_more_hits()
        self.rest.until(lambda: self.books()["success"] >= 10, "counted pages")
        self._check_books()

    def is_paused(self) -> None:
        """No request leaves while it is paused."""
        self.rest.act(f"/runs/{self.run}/pause")
        self.until_state("paused")
        assert self.asked("pause")["accepted"] is True
        # What was under way when it paused has come back, and has been reported.
        self.rest.until(self._is_settled, "all answers")
        before, books = self.hits(), self.books()
        time.sleep(WATCHED_SECONDS)
        assert self.hits() == before, "a paused run has asked the site"
        assert self.look()["state"] == "paused"
        after = self.books()
        for name in ("total", "success", "failed", "sent", "queued"):
            assert after[name] == books[name], (name, books, after)
        assert books["left"] > 0, books
        self._check_books()

    def _is_settled(self) -> bool:
        books = self.books()
        # A request succeeds once the broker has its items.
        answered = books["out"] == 0 and books["returned"] >= self.hits()
        return bool(answered and books["in_flight"] == 0)

    def is_resumed(self) -> None:
        before = self.books()["success"]
        self.rest.act(f"/runs/{self.run}/resume")
        self.until_state("running")
        assert self.asked("resume")["accepted"] is True
        self.until_more_hits()
        self.rest.until(lambda: self.books()["success"] > before, "more pages")

    def is_restarted(self) -> None:
        """The same run, executed anew."""
        home = self.site.hits["/"]
        self.rest.act(f"/runs/{self.run}/restart")

        def anew() -> dict[str, Any] | None:
            row = self.look()
            assert row["state"] not in FINAL, (row, self.rest.explain())
            return row if row["restarts"] == 1 and row["state"] == "running" else None

        self.rest.until(anew, "the second execution")
        self.rest.until(lambda: self.site.hits["/"] > home, "the start page asked again")
        self.until_more_hits()
        states = [move["to_state"] for move in self.look()["moves"]]
        assert states.count("starting") == 2, states
        assert states[-3:] == ["stopping", "starting", "running"], states

    def is_stopped(self) -> None:
        self.rest.act(f"/runs/{self.run}/stop")
        row = self.until_state("exited", "cancelled")
        assert row["ended_at"], row
        self.rest.until(lambda: self.books()["final"], "the last report")
        before = self.hits()
        time.sleep(WATCHED_SECONDS / 2)
        assert self.hits() == before, "a stopped run has asked the site"
        books = self.books()
        assert books["out"] == 0, books
        self._check_books()

    def has_told_its_story(self) -> None:
        """Moves, commands and the log, in the end."""
        states = [move["to_state"] for move in self.look()["moves"]]
        whole = "queued starting running pausing paused resuming running stopping starting running"
        assert states[:-1] == [*whole.split(), "stopping"], states
        commands = [each["action"] for each in self.rest.rows(f"/runs/{self.run}/commands")]
        assert sorted(commands) == sorted(["pause", "resume", "restart", "exit"]), commands
        boots = {line["boot"] for line in self.rest.until(self.log_lines, "log lines")}
        assert len(boots) <= 2, boots

    def log_lines(self) -> list[dict[str, Any]]:
        return self.rest.rows(f"/runs/{self.run}/logs")

    def _check_books(self) -> None:
        books = self.books()
        assert books["balanced"], books
        assert books["total"] == books["success"] + books["failed"] + books["left"], books

    def is_lived(self) -> None:
        """All steps, one after the other."""
        self.is_started_by_its_cron()
        self.is_paused()
        self.is_resumed()
        self.is_restarted()
        self.is_stopped()
        self.has_told_its_story()


def is_planned_no_more(rest: Rest, job: int) -> None:
    """A job without its cron leaves its past alone: each planned time once."""
    rest.change(f"/jobs/{job}", cron="")
    schedule = rest.get(f"/jobs/{job}/schedule")
    assert schedule["next_times"] == [], schedule
    rows = rest.rows("/planned-runs", job=job)
    times = [row["planned_at"] for row in rows]
    assert len(set(times)) == len(times) >= 1, rows

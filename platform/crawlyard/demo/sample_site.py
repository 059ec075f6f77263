"""Web sites to crawl: a folder of HTML, or a small sample timetable site."""

from __future__ import annotations

import asyncio
import html
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from aiohttp import web

STATIONS: Final = (
    "Alder Bay",
    "Birch Hill",
    "Cedar Cross",
    "Dune Sands",
    "Elm Park",
    "Fern Valley",
    "Gorse Moor",
    "Hazel Ford",
    "Iris Lake",
    "Juniper Rock",
    "Kelp Harbour",
    "Larch Wood",
)
LINES: Final = 8
TRAINS_PER_LINE: Final = 24


class SiteServer:
    """Serve a folder on a free port of 127.0.0.1, on its own thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="site", daemon=True)
        self._runner: web.AppRunner | None = None

    def start(self) -> str:
        """Listen; return the address of the first page."""
        self._thread.start()
        self.address = self._call(asyncio.run_coroutine_threadsafe(self._start(), self._loop))
        return self.address

    def stop(self) -> None:
        """Close every connection and end the thread."""
        if self._runner is not None:
            self._call(asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)
        self._loop.close()

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _call(future: Future[str] | Future[None]) -> str:
        return future.result(timeout=10.0) or ""

    async def _start(self) -> str:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._page)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        port = self._runner.addresses[0][1]
        return f"http://127.0.0.1:{port}/"

    async def _page(self, request: web.Request) -> web.StreamResponse:
        root = self.folder.resolve()
        path = (root / request.match_info["path"]).resolve()
        if path.is_dir():
            path = path / "index.html"
        if not path.is_relative_to(root) or not path.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path)


def write_sample(folder: Path) -> int:
    """Write the sample site; return the number of its pages."""
    pages = {"index.html": _index()}
    for line in range(1, LINES + 1):
        pages[f"line-{line}.html"] = _line(line)
        for train in range(1, TRAINS_PER_LINE + 1):
            pages[f"train-{line}-{train}.html"] = _train(line, train)
    for index in range(len(STATIONS)):
        pages[f"station-{index}.html"] = _station(index)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(pages)


def _document(title: str, body: str) -> str:
    title = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body><h1>{title}</h1><p><a href="index.html">Tern Valley Railway</a></p>{body}'
        "</body></html>\n"
    )


def _list(links: list[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="{href}">{html.escape(text)}</a></li>' for href, text in links)
    return f"<ul>{items}</ul>"


def _index() -> str:
    lines = [(f"line-{line}.html", f"Line {line}") for line in range(1, LINES + 1)]
    stations = [(f"station-{index}.html", name) for index, name in enumerate(STATIONS)]
    return _document("Tern Valley Railway", _list(lines) + _list(stations))


def _line(line: int) -> str:
    trains = [
        (f"train-{line}-{train}.html", f"Train {line}-{train:02}")
        for train in range(1, TRAINS_PER_LINE + 1)
    ]
    return _document(f"Line {line}", _list(trains))


def _stops(line: int, train: int) -> list[tuple[int, str]]:
    first = (line * 3 + train) % len(STATIONS)
    hour = 5 + train % 18
    return [((first + k * line) % len(STATIONS), f"{hour:02}:{k * 7:02}") for k in range(8)]


def _train(line: int, train: int) -> str:
    rows = "".join(
        f'<tr><td>{time}</td><td><a href="station-{index}.html#board">'
        f"{html.escape(STATIONS[index])}</a></td></tr>"
        for index, time in _stops(line, train)
    )
    following = train % TRAINS_PER_LINE + 1
    return _document(
        f"Train {line}-{train:02}",
        f'<table class="stops">{rows}</table>'
        f'<p><a href="train-{line}-{following}.html">next train</a> '
        f'<a href="line-{line}.html">line {line}</a></p>',
    )


def _station(index: int) -> str:
    others = [(f"station-{n}.html", name) for n, name in enumerate(STATIONS) if n != index]
    return _document(STATIONS[index], f'<section id="board">{_list(others)}</section>')

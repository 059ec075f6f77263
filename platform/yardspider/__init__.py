"""Write a spider, run it anywhere.

    from yardspider import Request, Response, Spider

    class Quotes(Spider):
        start_urls = ["https://quotes.example/"]

        def parse(self, response: Response):
            for quote in response.css("div.quote"):
                yield {"text": quote.css("span::text").get(), "page": response.url}
            for url in response.links("li.next a"):
                yield Request(url)

On your machine, without any service, as fast as the answers come:

    yardspider run quotes:Quotes --local --set speed=0 --output quotes.jsonl

On the platform a job runs ``yardspider run quotes:Quotes``: the same file, but the pages are
fetched by the run's agents, and every request is accounted for. In a test:

    from yardspider.testing import run_spider

    result = run_spider(Quotes, {"https://quotes.example/": "<div class=quote>..."})
    assert result.counters.failed == 0

What holds in all three:

- ``start`` and callbacks may be functions, generators, coroutines or asynchronous generators.
  They yield ``Request`` (a page to fetch), ``dict`` (a record to keep) and ``Seed`` (something
  to crawl later, or by others).
- A ``SeedSpider`` works on the seeds of a frontier: ``requests(seed)`` instead of ``start``.
- A request is made once a run, however often it is yielded, unless ``dont_filter`` is set.
- Every request ends as success or failed: total = success + failed + left. A refused connection,
  HTTP 429 and 5xx are tried again; other answers from 400 up have failed, unless your
  ``is_success`` says otherwise. A callback that raises fails its request, not the run.
- ``SpiderSettings`` says how fast and how often; the default is one request a second.
- Exit status: 0 exited, 2 failed (one line on stderr says why), 143 or 130 stopped by SIGTERM or
  Ctrl-C. A second signal kills.

The guide, with a table of the settings, is docs/spiders.md.

``yardspider.spiders:SiteSpider`` crawls a whole site and needs no code:
``yardspider run yardspider.spiders:SiteSpider --local --argument url=https://site.example/``.
"""

from yardspider.request import Request
from yardspider.response import Headers, Response
from yardspider.seeds.seed import Seed
from yardspider.seeds.task import SeedTask
from yardspider.settings import SpiderSettings
from yardspider.spider import SeedSpider, Spider

__all__ = [
    "Headers",
    "Request",
    "Response",
    "Seed",
    "SeedSpider",
    "SeedTask",
    "Spider",
    "SpiderSettings",
]

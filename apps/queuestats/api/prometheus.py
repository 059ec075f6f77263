"""/metrics: everything that can be measured, in the text format of Prometheus."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.db import OperationalError, connection
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from rest_framework.authentication import (
    BaseAuthentication,
    SessionAuthentication,
    get_authorization_header,
)
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.access.api.authentication import TokenAuthentication
from apps.access.api.base import ApiView
from apps.access.api.network import Guest
from apps.access.api.permissions import InsideScopes, SeesEverything
from apps.access.services import client_address, stands_in
from yardkit import metrics

# Many scrapers ask; one reading serves all of them for this long.
FRESH_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 8.0
PREFIX: Final = "crawlyard_"


def exposed_name(name: str) -> str:
    """``queue.ready`` -> ``crawlyard_queue_ready``; a counter ends in ``_total`` beside."""
    return PREFIX + name.replace(".", "_")


class ScrapeAuthentication(BaseAuthentication):
    """By ``METRICS_TOKEN``, or from a network of ``METRICS_FROM``; else others are asked."""

    def authenticate(self, request: Request) -> tuple[Guest, None] | None:
        """None for everybody else."""
        words = get_authorization_header(request).split()
        token = settings.METRICS_TOKEN.encode()
        if token and len(words) == 2 and words[0].lower() == b"bearer":
            if hmac.compare_digest(words[1], token):
                return Guest(), None
            return None
        known = stands_in(client_address(request), settings.METRICS_FROM)
        return (Guest(), None) if known and not words else None

    def authenticate_header(self, request: Request) -> str:
        """The challenge that goes with 401."""
        return 'Bearer realm="crawlyard"'


class MayScrape(BasePermission):
    """The scraper, or a person who sees everything; a token needs a scope for reading this."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Numbers of all projects are in it."""
        if isinstance(request.user, Guest):
            return True
        return InsideScopes().has_permission(request, view) and SeesEverything().has_permission(
            request, view
        )


class _Text(BaseRenderer):
    """Scrapers ask for formats of their own; they all understand this one."""

    media_type = "text/plain"
    format = "txt"
    charset = "utf-8"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Only errors come here."""
        detail = data.get("detail", "") if isinstance(data, dict) else ""
        return f"{detail}\n".encode()


class MetricsView(ApiView):
    """Everything that can be measured; see docs/metrics.md."""

    authentication_classes = (ScrapeAuthentication, TokenAuthentication, SessionAuthentication)
    permission_classes: Sequence[Any] = (MayScrape,)
    renderer_classes = (_Text,)
    # A scraper is no person whose calls are counted.
    throttle_classes: Sequence[Any] = ()

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """One format, whatever was asked for."""
        return _Text(), _Text.media_type

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """At most 5 s old."""
        return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def exposition() -> bytes:
    """Every number of every app, at most 5 s old.

    Raises:
        DatabaseError: the database is away; hardly anything could be told. Or somebody else's
            reading hangs: nobody waits for it longer than a few seconds.
    """
    if not _lock.acquire(timeout=WAIT_SECONDS):
        raise OperationalError("another reading has not ended")
    try:
        if time.monotonic() - _cached.at > FRESH_SECONDS:
            connection.ensure_connection()
            _cached.text = _read()
            _cached.at = time.monotonic()
        return _cached.text
    finally:
        _lock.release()


def _read() -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Everything())
    return generate_latest(registry)


class _Everything(Collector):
    """The metrics of this process's registry."""

    def collect(self) -> Iterable[Metric]:
        """By name; those without a number now are left out."""
        samples: dict[str, list[metrics.MetricSample]] = {}
        for sample in metrics.snapshot():
            samples.setdefault(sample.name, []).append(sample)
        yield from self._families(samples)

    def _families(self, samples: dict[str, list[metrics.MetricSample]]) -> Iterator[Metric]:
        for each in metrics.described():
            if each.name not in samples:
                continue
            kind = GaugeMetricFamily if each.kind == "gauge" else CounterMetricFamily
            family = kind(exposed_name(each.name), each.help, labels=each.labels)
            for sample in samples[each.name]:
                family.add_metric([sample.labels[name] for name in each.labels], sample.value)
            yield family


class _CachedText:
    text = b""
    at = float("-inf")


_cached = _CachedText()
_lock = threading.Lock()

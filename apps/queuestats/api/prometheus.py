"""/metrics: all metrics in the Prometheus text format."""

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

# The document is cached for this long, for several scrapers.
FRESH_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 8.0
PREFIX: Final = "crawlyard_"


def exposed_name(name: str) -> str:
    """Return the Prometheus name: ``queue.ready`` -> ``crawlyard_queue_ready``.

    The client library appends ``_total`` to counters.
    """
    return PREFIX + name.replace(".", "_")


class ScrapeAuthentication(BaseAuthentication):
    """Authenticates a scraper by ``METRICS_TOKEN`` or by a network of ``METRICS_FROM``."""

    def authenticate(self, request: Request) -> tuple[Guest, None] | None:
        """Return a guest for a scraper; None lets the next class authenticate."""
        words = get_authorization_header(request).split()
        token = settings.METRICS_TOKEN.encode()
        if token and len(words) == 2 and words[0].lower() == b"bearer":
            if hmac.compare_digest(words[1], token):
                return Guest(), None
            return None
        known = stands_in(client_address(request), settings.METRICS_FROM)
        return (Guest(), None) if known and not words else None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="crawlyard"'


class MayScrape(BasePermission):
    """Allows scrapers and users who see everything; an API token needs a scope for reading."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the permission: the document contains numbers of all projects."""
        if isinstance(request.user, Guest):
            return True
        return InsideScopes().has_permission(request, view) and SeesEverything().has_permission(
            request, view
        )


class _Text(BaseRenderer):
    """Plain text renderer, used whatever format the scraper prefers."""

    media_type = "text/plain"
    format = "txt"
    charset = "utf-8"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Render an error; the document itself is not rendered here."""
        detail = data.get("detail", "") if isinstance(data, dict) else ""
        return f"{detail}\n".encode()


class MetricsView(ApiView):
    """All metrics, see docs/metrics.md."""

    authentication_classes = (ScrapeAuthentication, TokenAuthentication, SessionAuthentication)
    permission_classes: Sequence[Any] = (MayScrape,)
    renderer_classes = (_Text,)
    # Scrapers are not throttled.
    throttle_classes: Sequence[Any] = ()

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        return _Text(), _Text.media_type

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """Return the metrics, at most 5 s old."""
        return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def exposition() -> bytes:
    """Return all metrics in the Prometheus text format, at most 5 s old.

    Raises:
        DatabaseError: the database is unreachable, or another thread has been collecting metrics
            for more than 8 s.
    """
    if not _lock.acquire(timeout=WAIT_SECONDS):
        raise OperationalError("another thread is still collecting metrics")
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
    registry.register(_MetricsCollector())
    return generate_latest(registry)


class _MetricsCollector(Collector):
    """Exposes the metrics registry of this process."""

    def collect(self) -> Iterable[Metric]:
        """Yield metric families; metrics without a value now are left out."""
        samples: dict[str, list[metrics.MetricSample]] = {}
        for sample in metrics.snapshot():
            samples.setdefault(sample.name, []).append(sample)
        yield from self._families(samples)

    def _families(self, samples: dict[str, list[metrics.MetricSample]]) -> Iterator[Metric]:
        for metric in metrics.described():
            if metric.name not in samples:
                continue
            kind = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
            family = kind(exposed_name(metric.name), metric.help, labels=metric.labels)
            for sample in samples[metric.name]:
                family.add_metric([sample.labels[name] for name in metric.labels], sample.value)
            yield family


class _CachedText:
    text = b""
    at = float("-inf")


_cached = _CachedText()
_lock = threading.Lock()

"""URLs of websockets."""

from __future__ import annotations

from django.urls import path, re_path

from apps.dashboard.consumers import (
    AgentsConsumer,
    HomeConsumer,
    LogConsumer,
    RunConsumer,
    UnknownPathConsumer,
)

websocket_urlpatterns = [
    path("ws/agents", AgentsConsumer.as_asgi()),
    path("ws/home", HomeConsumer.as_asgi()),
    path("ws/logs/<str:stream>", LogConsumer.as_asgi()),
    path("ws/runs/<int:run>", RunConsumer.as_asgi()),
    re_path("", UnknownPathConsumer.as_asgi()),
]

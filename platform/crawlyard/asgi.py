"""ASGI application of the web process: Django, Channels websockets, and the event relay."""

from __future__ import annotations

import os
import sys

from django.core.asgi import get_asgi_application

from yardkit.env import EnvError

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.web")
try:
    # Before the other imports, because it loads the settings and apps that they need.
    django_application = get_asgi_application()
except EnvError as error:
    print(error, file=sys.stderr)  # noqa: T201 - the settings that failed would have configured logging
    sys.exit(2)

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter

from crawlyard.body_limit import BodyLimit
from crawlyard.head_limit import HeadLimit
from crawlyard.lifespan import Lifespan
from crawlyard.proxies import behind_proxies
from crawlyard.same_origin import SameOrigin
from crawlyard.websockets import websocket_urlpatterns

http_application = HeadLimit(BodyLimit(django_application))
application = behind_proxies(
    ProtocolTypeRouter(
        {
            "http": http_application,
            "websocket": HeadLimit(
                SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
            ),
            "lifespan": Lifespan(http_application),
        }
    )
)

"""The Django project: settings, URLs, ASGI, Celery, and commands that concern the whole product."""

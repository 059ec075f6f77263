"""The Django project: settings, URLs, ASGI, Celery, and the commands of the whole."""

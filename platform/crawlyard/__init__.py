"""The Django project: settings, URLs, ASGI, and the commands of the whole."""

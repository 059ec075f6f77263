"""Base of every REST view of the platform.

``base``: view classes, ``errors``: the error format, ``pagination``: keyset pages, ``idempotency``,
``etags``, ``routers``: paths with and without trailing slash, ``fields``: serializer fields,
``schema``: OpenAPI.
"""

"""The foundation of every REST view of the platform.

``base`` the view classes, ``errors`` the one error shape, ``pagination`` keyset pages,
``idempotency`` and ``etags`` what their names say, ``routers`` paths with and without the last
slash, ``fields`` serializer fields, ``schema`` the OpenAPI side of all that.
"""

"""Serializer fields that other apps use."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class SecretCharField(serializers.CharField):
    """REST field of a ``SecretTextField``: write-only."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        kwargs.setdefault("allow_blank", True)
        kwargs.setdefault("trim_whitespace", False)
        super().__init__(**{**kwargs, "write_only": True})

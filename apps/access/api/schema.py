"""OpenAPI schema of tokens, errors and common headers."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import FieldDoesNotExist
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from apps.access.api.idempotency import honours_key


class ErrorSerializer(serializers.Serializer[Any]):
    """The body of every error."""

    code = serializers.CharField(help_text="Stable, for programs.")
    detail = serializers.CharField(help_text="For people, in their language.")
    fields = serializers.DictField(  # type: ignore[assignment]  # the wire name is fixed
        child=serializers.ListField(child=serializers.CharField()),
        help_text="Messages by the name of the input; nested names have dots.",
    )
    request_id = serializers.CharField(help_text="Also in the header X-Request-Id.")


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Security scheme of bearer tokens."""

    target_class = "apps.access.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """Return the OpenAPI definition."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "cy_<prefix>_<secret>"}


class ApiSchema(AutoSchema):
    """Adds the behaviour of the base classes to each operation."""

    def get_tags(self) -> list[str]:
        """Tag operations by app."""
        return [getattr(self.view, "area", "platform")]

    def get_override_parameters(self) -> list[Any]:
        """Add Idempotency-Key and conditional headers."""
        action = getattr(self.view, "action", None)
        method = self.method.upper()
        headers = []
        if method == "POST" and honours_key(self.view, action):
            headers.append(_header("Idempotency-Key", "A repeat with the same key has no effect."))
        if action == "retrieve":
            headers.append(_header("If-None-Match", "An ETag: 304 when it is still current."))
        if action in ("update", "partial_update", "destroy"):
            headers.append(_header("If-Match", "An ETag: 412 when the object has changed."))
        return headers

    def _map_serializer_field(
        self, field: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        # drf-spectacular omits the blank choice of read-only fields.
        if isinstance(field, serializers.ChoiceField) and field.read_only and _may_be_blank(field):
            field.allow_blank = True
        return super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        error: dict[str, Any] = self._get_response_for_code(  # type: ignore[no-untyped-call]
            ErrorSerializer, "default"
        )
        bodies["default"] = error
        error["description"] = "An error, in the one shape of all errors."
        if getattr(self.view, "action", None) == "retrieve":
            bodies["304"] = {"description": "If-None-Match names the current state: no body."}
        return bodies


def _may_be_blank(field: serializers.ChoiceField) -> bool:
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    try:
        return model is not None and bool(model._meta.get_field(field.source).blank)
    except FieldDoesNotExist:
        return False


def _header(name: str, description: str) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, description=description)

"""Addresses under /api/v1/. Each works with a trailing slash too."""

from __future__ import annotations

from apps.access.api.routers import Router, api_path
from apps.access.api.views import AuditViewSet, MembershipViewSet, MeView, TokenViewSet

router = Router()
router.register("tokens", TokenViewSet, basename="token")
router.register("memberships", MembershipViewSet, basename="membership")
router.register("audit", AuditViewSet, basename="audit")

urlpatterns = [api_path("me", MeView.as_view(), name="me"), *router.urls]

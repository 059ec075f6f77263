"""URLs under /api/v1/; each also works with a trailing slash."""

from __future__ import annotations

from apps.access.api.people import OwnPasswordView, PersonViewSet
from apps.access.api.routers import ApiRouter, api_path
from apps.access.api.views import (
    AuditViewSet,
    MembershipViewSet,
    MeView,
    SavedFilterViewSet,
    TokenViewSet,
)

router = ApiRouter()
router.register("tokens", TokenViewSet, basename="token")
router.register("people", PersonViewSet, basename="person")
router.register("memberships", MembershipViewSet, basename="membership")
router.register("audit", AuditViewSet, basename="audit")
router.register("saved-filters", SavedFilterViewSet, basename="saved-filter")

urlpatterns = [
    api_path("me", MeView.as_view(), name="me"),
    api_path("me/password", OwnPasswordView.as_view(), name="own-password"),
    *router.urls,
]

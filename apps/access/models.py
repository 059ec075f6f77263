"""Users, their roles in projects, API tokens and the audit trail."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.access.errors import AuditIsAppendOnly
from apps.access.querysets import AuditQuerySet, MembershipQuerySet, OwnQuerySet
from apps.access.states import Role
from apps.runtime.fields import SecretTextField

if TYPE_CHECKING:
    from datetime import datetime


class User(AbstractUser):
    """A user. A superuser is admin of every project, an auditor viewer of every project and of the
    audit trail; others have roles by ``Membership``.
    """

    must_change_password = models.BooleanField(
        _("must change the password"),
        default=False,
        help_text=_("After logging in, the user must change the password first."),
    )

    is_auditor = models.BooleanField(
        _("auditor"),
        default=False,
        help_text=_(
            "Reads everything of every project, the whole audit trail included, and changes "
            "nothing: roles above viewer have no effect."
        ),
    )

    # Set by token authentication for one request: the token may have fewer permissions
    # than the user.
    acting_token: ApiToken | None = None

    class Meta:
        verbose_name = _("user")
        verbose_name_plural = _("users")
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(is_auditor=False) | Q(is_superuser=False),
                name="access_user_auditor_or_superuser",
                violation_error_message=_("An auditor changes nothing, a superuser everything."),
            )
        ]

    def set_password(self, raw_password: str | None) -> None:
        """Set the password and clear the obligation to change it."""
        super().set_password(raw_password)
        self.must_change_password = False

    @property
    def sees_everything(self) -> bool:
        """Whether the user, limited by the token in use, reads all projects."""
        reads_all = self.is_superuser or self.is_auditor
        return self.is_active and reads_all and self._token_project_id is None

    @property
    def rules_everything(self) -> bool:
        """Whether the user, limited by the token in use, changes all projects."""
        return self.sees_everything and not self.is_auditor

    def has_perm(self, perm: str, obj: Any = None) -> bool:
        """Django's permissions, for pages of no project; auditors have all view permissions."""
        if self.is_auditor:
            return self.sees_everything and perm.partition(".")[2].startswith("view_")
        return super().has_perm(perm, obj)

    def has_module_perms(self, app_label: str) -> bool:
        """Django's permissions for whole apps; auditors may view every app."""
        if self.is_auditor:
            return self.sees_everything
        return super().has_module_perms(app_label)

    @property
    def _token_project_id(self) -> int | None:
        return self.acting_token.project_id if self.acting_token is not None else None

    def project_q(self, path: str, *, at_least: Role = Role.VIEWER) -> Q:
        """Condition on ``path`` (to a project) for projects where the user has the role."""
        if self.is_auditor and at_least != Role.VIEWER:
            return Q(pk__in=[])
        if self.sees_everything:
            return Q()
        condition = Q()
        if not (self.is_superuser or self.is_auditor):
            held = Membership.objects.living().filter(
                user_id=self.pk, role__in=Role.at_least(at_least)
            )
            condition = Q(**{f"{path}__in": held.values("project_id")})
        if self._token_project_id is not None:
            condition &= Q(**{path: self._token_project_id})
        return condition


class Membership(models.Model):
    """Role of a user in a project."""

    user = models.ForeignKey(
        User, verbose_name=_("user"), related_name="memberships", on_delete=models.CASCADE
    )
    project = models.ForeignKey(
        "projects.Project",
        verbose_name=_("project"),
        related_name="memberships",
        on_delete=models.CASCADE,
    )
    role = models.CharField(_("role"), max_length=16, choices=Role, default=Role.VIEWER)

    objects = MembershipQuerySet["Membership"].as_manager()

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "project"], name="access_membership_once"),
            models.CheckConstraint(
                condition=Q(role__in=Role.values), name="access_membership_role_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.project} · {Role(self.role).label}"


class ApiToken(models.Model):
    """API key: acts as its user, within its scopes and, if set, its project.

    The secret is shown once; only its SHA-256 is stored. A fast hash is enough because the secret
    is 256 random bits.
    """

    name = models.CharField(_("name"), max_length=100)
    user = models.ForeignKey(
        User, verbose_name=_("user"), related_name="api_tokens", on_delete=models.CASCADE
    )
    project = models.ForeignKey(
        "projects.Project",
        verbose_name=_("project"),
        related_name="+",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        help_text=_("Limits the token to this project; empty: every project of its user."),
    )
    prefix = models.CharField(_("prefix"), max_length=16, unique=True, editable=False)
    digest = models.CharField(_("SHA-256 of the secret"), max_length=64, editable=False)
    scopes = models.JSONField(_("scopes"), default=list)
    allowed_networks = models.JSONField(
        _("allowed networks"),
        default=list,
        blank=True,
        help_text=_("Networks from which the token is accepted, such as 10.20.0.0/16; empty: any."),
    )
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    # After a rotation the old secret stays valid until ``old_secret_until``.
    previous_digest = models.CharField(max_length=64, blank=True, default="", editable=False)
    previous_until = models.DateTimeField(
        _("the old secret works until"), null=True, editable=False
    )
    last_used_at = models.DateTimeField(_("last used at"), null=True, editable=False)
    last_used_from = models.CharField(
        _("last used from"), max_length=45, blank=True, default="", editable=False
    )
    revoked_at = models.DateTimeField(_("revoked at"), null=True, editable=False)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} (cy_{self.prefix}_…)"

    def usable(self, now: datetime) -> bool:
        """Neither revoked nor expired at ``now``."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class AuditRecord(models.Model):
    """A recorded action. Append-only: the product never changes or deletes records.

    References become null when their object is deleted; the labels stay.
    """

    at = models.DateTimeField(_("at"), default=timezone.now, db_index=True)
    actor = models.ForeignKey(
        User,
        verbose_name=_("person"),
        related_name="+",
        null=True,
        on_delete=models.SET_NULL,
        db_index=False,
    )
    actor_label = models.CharField(_("person's name"), max_length=150)
    token = models.ForeignKey(
        ApiToken,
        verbose_name=_("API token"),
        related_name="+",
        null=True,
        on_delete=models.SET_NULL,
    )
    action = models.CharField(_("action"), max_length=80)
    object_type = models.CharField(_("kind of object"), max_length=80)
    object_id = models.CharField(_("id of the object"), max_length=64)
    object_label = models.CharField(_("object"), max_length=200)
    project = models.ForeignKey(
        "projects.Project",
        verbose_name=_("project"),
        related_name="+",
        null=True,
        on_delete=models.SET_NULL,
        db_index=False,
    )
    before = models.JSONField(_("before"), null=True)
    after = models.JSONField(_("after"), null=True)
    request_id = models.CharField(_("request id"), max_length=64, blank=True, default="")
    note = models.TextField(_("note"), blank=True, default="")

    objects = AuditQuerySet["AuditRecord"].as_manager()

    class Meta:
        verbose_name = _("audit record")
        verbose_name_plural = _("audit records")
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["object_type", "object_id", "-id"], name="access_audit_object"),
            models.Index(fields=["actor", "-id"], name="access_audit_actor"),
            models.Index(fields=["project", "-id"], name="access_audit_project"),
            models.Index(fields=["action", "-id"], name="access_audit_action"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_label} {self.action} {self.object_label}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the record; a second save raises ``AuditIsAppendOnly``."""
        if not self._state.adding:
            raise AuditIsAppendOnly
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise ``AuditIsAppendOnly``."""
        raise AuditIsAppendOnly


class SecondFactor(models.Model):
    """TOTP secret of a user, encrypted; django-otp's own model stores it in plain text."""

    user = models.OneToOneField(
        User, verbose_name=_("user"), related_name="second_factor", on_delete=models.CASCADE
    )
    secret = SecretTextField(_("secret"))
    confirmed_at = models.DateTimeField(_("confirmed at"), null=True, editable=False)
    # 30-second step of the last accepted code: no code is accepted twice.
    last_step = models.BigIntegerField(default=-1, editable=False)
    recovery_digests = models.JSONField(default=list, editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)
    paused_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = _("two-factor authentication")
        verbose_name_plural = _("two-factor authentication")

    def __str__(self) -> str:
        return str(self.user)


class ExternalIdentity(models.Model):
    """Account of a user at an identity provider, which decides whether the user may sign in."""

    class Source(models.TextChoices):
        """Kind of the provider."""

        OIDC = "oidc", "OpenID Connect"
        LDAP = "ldap", "LDAP"

    user = models.OneToOneField(
        User, verbose_name=_("user"), related_name="identity", on_delete=models.CASCADE
    )
    source = models.CharField(_("provider"), max_length=8, choices=Source.choices)
    # OpenID Connect: issuer and "sub"; LDAP: URL of the directory and distinguished name.
    issuer = models.CharField(_("issuer"), max_length=255)
    subject = models.CharField(_("subject"), max_length=255)
    # JSON of the provider's tokens, with which the account is checked.
    secret = SecretTextField(_("tokens"))
    checked_at = models.DateTimeField(_("checked at"), editable=False)
    # The provider has refused the account; a later sign-in through it opens the user again.
    locked_at = models.DateTimeField(_("locked at"), null=True, editable=False)

    class Meta:
        verbose_name = _("identity at a provider")
        verbose_name_plural = _("identities at a provider")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="access_identity_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.subject}"


class LoginSession(AbstractBaseSession):
    """Session of a browser. ``expire_date`` is its end without further activity."""

    user = models.ForeignKey(
        User, verbose_name=_("user"), null=True, related_name="sessions", on_delete=models.CASCADE
    )
    began_at = models.DateTimeField(_("began at"), default=timezone.now, editable=False)
    seen_at = models.DateTimeField(_("last seen at"), default=timezone.now, editable=False)
    address = models.CharField(_("address"), max_length=45, blank=True, default="")
    agent = models.CharField(_("browser"), max_length=200, blank=True, default="")

    class Meta(AbstractBaseSession.Meta):
        # The stubs of the base class declare "str", but the text is lazy.
        verbose_name = _("session")  # type: ignore[assignment]
        verbose_name_plural = _("sessions")  # type: ignore[assignment]


class SetupLink(models.Model):
    """One-time link to set a user name and a password. Its key is stored as a hash."""

    digest = models.CharField(max_length=64, unique=True, editable=False)
    # For an existing user the link sets a new password; otherwise it creates the user.
    user = models.ForeignKey(
        User,
        verbose_name=_("user"),
        null=True,
        related_name="setup_links",
        on_delete=models.CASCADE,
    )
    username = models.CharField(_("name"), max_length=150, blank=True, default="")
    is_superuser = models.BooleanField(_("superuser"), default=False)
    is_auditor = models.BooleanField(_("auditor"), default=False)
    # Valid only while there is no superuser.
    is_first = models.BooleanField(default=False)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    expires_at = models.DateTimeField(_("expires at"))
    used_at = models.DateTimeField(_("used at"), null=True, editable=False)

    class Meta:
        verbose_name = _("link to set a password")
        verbose_name_plural = _("links to set a password")

    def __str__(self) -> str:
        return self.username or str(_("link to set a password"))


class Restorable(models.Model):
    """Soft-deletable model: hidden when deleted, and restorable until permanent deletion.

    ``objects`` is a ``LivingManager``; ``all_objects`` contains every row.
    """

    deleted_at = models.DateTimeField(_("deleted at"), null=True, editable=False, db_index=True)
    # A name instead of a foreign key: it outlives the user.
    deleted_by = models.CharField(
        _("deleted by"), max_length=150, blank=True, default="", editable=False
    )

    class Meta:
        abstract = True

    @property
    def ends_at(self) -> datetime | None:
        """Time of permanent deletion; None if it is not deleted."""
        if self.deleted_at is None:
            return None
        return self.deleted_at + timedelta(days=settings.DELETED_DAYS)


class SavedFilter(models.Model):
    """A saved list filter of a user: the query string of the list's URL."""

    user = models.ForeignKey(
        User, verbose_name=_("user"), related_name="saved_filters", on_delete=models.CASCADE
    )
    path = models.CharField(_("page"), max_length=200)
    name = models.CharField(_("name"), max_length=60)
    query = models.CharField(_("filter"), max_length=2000)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    objects = OwnQuerySet["SavedFilter"].as_manager()

    class Meta:
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user", "path", "name"], name="access_saved_filter_once"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """URL of the filtered list."""
        return f"{self.path}?{self.query}"

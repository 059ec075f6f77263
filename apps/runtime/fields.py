"""A model field for secrets: sealed in the database, never shown again.

    password = SecretTextField(_("password"))

``project.password`` is the secret itself, for the code that must use it. Everything else gets a
mask or nothing: ``values()``, ``model_to_dict``, ``dumpdata``, ``__dict__``, pickles, forms. It
cannot be searched. A REST serializer must declare it write-only (``apps.runtime.api``).
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.conf import settings
from django.db import models
from django.db.models.query_utils import DeferredAttribute
from django.forms.utils import flatatt
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from yardkit.secretbox import SecretBox, SecretError

if TYPE_CHECKING:
    _TextField = models.TextField[str, str]
else:
    _TextField = models.TextField

SETTING: Final = "SECRETBOX_KEYS"
MASK: Final = "********"


@lru_cache(maxsize=4)
def _box_of(keys: tuple[str, ...]) -> SecretBox:
    return SecretBox(keys, setting=SETTING)


def secret_box() -> SecretBox:
    """Return the box with the keys of the settings. Raises ``yardkit.secretbox.BadKey``."""
    return _box_of(tuple(settings.SECRETBOX_KEYS))


class SealedText:
    """Encrypted secret as stored in the database; ``str()`` and ``repr()`` show a mask."""

    __slots__ = ("sealed",)

    def __init__(self, sealed: str) -> None:
        self.sealed = sealed

    def open(self) -> str:
        """Decrypt the secret. Raises ``yardkit.secretbox.SecretError`` if no key fits."""
        return secret_box().open(self.sealed)

    def __eq__(self, other: object) -> bool:
        # Compare ciphertexts: enough to detect an unchanged value.
        return isinstance(other, SealedText) and self.sealed == other.sealed

    def __hash__(self) -> int:
        return hash(self.sealed)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"SealedText({MASK})"


class SecretAttribute(DeferredAttribute):
    """Descriptor that encrypts on assignment and decrypts on access."""

    def __get__(self, instance: models.Model | None, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        return value.open() if isinstance(value, SealedText) else value

    def __set__(self, instance: models.Model, value: Any) -> None:
        stored = instance.__dict__.get(self.field.attname)
        # ``full_clean`` reads and assigns each field: do not encrypt an unchanged value again.
        if not (isinstance(stored, SealedText) and _holds(stored, value)):
            instance.__dict__[self.field.attname] = _sealed(value)


def _holds(sealed: SealedText, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return hmac.compare_digest(sealed.open().encode(), value.encode())
    except (SecretError, UnicodeEncodeError):
        return False


def _sealed(value: Any) -> Any:
    # "" stays "": an empty field is not secret. Expressions are passed through.
    if isinstance(value, str) and value:
        return SealedText(secret_box().seal(value))
    return value


class SecretTextField(_TextField):
    """Encrypted text field; "" means that no secret is stored."""

    description = _("Secret text")
    descriptor_class = SecretAttribute
    # Marks the value as secret for the audit trail, whatever the name of the field.
    is_secret = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("blank", True)
        kwargs.setdefault("default", "")
        super().__init__(*args, **kwargs)
        # Not in dumpdata; a database backup contains the encrypted form.
        self.serialize = False

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("serialize", None)
        return name, path, args, kwargs

    def from_db_value(self, value: str | None, expression: object, connection: object) -> Any:
        return SealedText(value) if value else value

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        # Bypasses the descriptor: decrypting would need the old key.
        return model_instance.__dict__.get(self.attname, "")

    def get_prep_value(self, value: Any) -> Any:
        value = _sealed(value)
        return value.sealed if isinstance(value, SealedText) else value

    def get_lookup(self, lookup_name: str) -> None:
        """Allow no lookups: equal secrets have different ciphertexts, so a search would find
        nothing.
        """

    def get_transform(self, lookup_name: str) -> None:
        """Allow no transforms."""

    def value_from_object(self, obj: models.Model) -> Any:
        return obj.__dict__.get(self.attname, "")

    def value_to_string(self, obj: models.Model) -> str:
        return MASK if self.value_from_object(obj) else ""

    def formfield(self, **kwargs: Any) -> Any:
        offered = kwargs.pop("widget", None)
        look = (offered() if isinstance(offered, type) else offered) if offered else None
        # Admin themes replace the widget of every text field; use only their CSS classes.
        attributes = {"class": look.attrs["class"]} if look and "class" in look.attrs else {}
        widget = look if isinstance(look, SecretInput) else SecretInput(attrs=attributes)
        for name in ("form_class", "choices_form_class", "max_length"):
            kwargs.pop(name, None)
        return models.Field.formfield(self, form_class=SecretFormField, widget=widget, **kwargs)

    def save_form_data(self, instance: models.Model, data: Any) -> None:
        if data is CLEAR:
            setattr(instance, self.attname, "")
        elif data:
            setattr(instance, self.attname, data)


class _Clear:
    """Marker: the user asked to delete the stored secret."""

    def __repr__(self) -> str:
        return "CLEAR"


CLEAR: Final = _Clear()


class SecretInput(forms.PasswordInput):
    """Input for a new secret; never shows the stored one, and an empty input keeps it."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"autocomplete": "new-password", **(attrs or {})}, render_value=False)

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        if not isinstance(value, SealedText):
            return super().render(name, None, attrs, renderer)
        attrs = {"placeholder": _("stored; leave empty to keep it"), **(attrs or {})}
        box = flatatt({"type": "checkbox", "name": self.clear_name(name)})
        return format_html(
            "{} <label><input{}> {}</label>",
            super().render(name, None, attrs, renderer),
            box,
            _("Remove the stored value"),
        )

    def clear_name(self, name: str) -> str:
        """Name of the check box that deletes the stored secret."""
        return f"{name}-clear"

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        typed = super().value_from_datadict(data, files, name)
        if not typed and data.get(self.clear_name(name)):
            return CLEAR
        return typed

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return name not in data and self.clear_name(name) not in data


class SecretFormField(forms.CharField):
    """Form field of a secret; does not strip spaces, which may belong to the secret."""

    widget = SecretInput

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"strip": False, **kwargs})

    def clean(self, value: Any) -> Any:
        return CLEAR if value is CLEAR and not self.required else super().clean(value or "")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(data)

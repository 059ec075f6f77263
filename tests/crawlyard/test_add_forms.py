"""The pages on which things are added."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.contrib.auth.models import AbstractBaseUser
from django.db import models
from django.test import RequestFactory


def _add_forms(person: AbstractBaseUser) -> list[tuple[str, forms.BaseForm]]:
    request = RequestFactory().get("/admin/")
    request.user = person
    return [
        (model._meta.label, model_admin.get_form(request, None, change=False)())
        for model, model_admin in admin.site._registry.items()
        if model_admin.has_add_permission(request)
    ]


def _default(model: type[models.Model], name: str) -> bool:
    try:
        field = model._meta.get_field(name)
    except LookupError:
        return False
    return isinstance(field, models.Field) and field.has_default()


def test_a_field_that_must_be_filled_shows_its_default(admin_user: AbstractBaseUser) -> None:
    """A declared form field does not take the default of its model's field by itself."""
    add_forms = _add_forms(admin_user)
    empty = [
        f"{label}.{name}"
        for label, form in add_forms
        for name, field in form.fields.items()
        if field.required
        and isinstance(form, forms.ModelForm)
        and _default(form._meta.model, name)
        and form.get_initial_for_field(field, name) in (None, "")
    ]
    assert len(add_forms) > 10
    assert empty == []

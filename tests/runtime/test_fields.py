"""The secret field: readable by code, by nobody else."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest
from django import forms
from django.core import serializers
from django.core.exceptions import FieldError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models
from django.forms.models import model_to_dict
from django.test import override_settings
from rest_framework import serializers as serializers_rest

from apps.runtime.api import SecretCharField
from apps.runtime.fields import MASK, SecretTextField
from yardkit.secretbox import SecretBox, WrongKey, generate_key

SECRET = "correct horse 电池"


class Account(models.Model):
    """What has a secret."""

    login = models.CharField(max_length=20)
    password = SecretTextField("password")

    class Meta:
        app_label = "runtime_test"

    def __str__(self) -> str:
        return self.login


class AccountForm(forms.ModelForm):
    class Meta:
        model = Account
        fields = ["login", "password"]


@pytest.fixture
def table(db: None) -> Iterator[None]:
    key = "bigserial" if connection.vendor == "postgresql" else "integer"
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE runtime_test_account"
            f" (id {key} PRIMARY KEY, login varchar(20), password text)"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE runtime_test_account")


@pytest.fixture
def account(table: None) -> Account:
    return Account.objects.create(login="ops", password=SECRET)


def stored(account: Account) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT password FROM runtime_test_account WHERE id = %s", [account.pk])
        row = cursor.fetchone()
    assert row is not None
    return str(row[0])


def test_code_reads_the_secret_and_the_database_holds_it_sealed(account: Account) -> None:
    assert account.password == SECRET
    assert Account.objects.get(pk=account.pk).password == SECRET
    assert SECRET not in stored(account)
    assert "horse" not in stored(account)


def test_nothing_that_prints_or_copies_it_shows_it(account: Account) -> None:
    loaded = Account.objects.get(pk=account.pk)
    values = Account.objects.values().get(pk=account.pk)

    assert str(values["password"]) == MASK
    assert Account.objects.values_list("password", flat=True)[0] != SECRET
    assert SECRET not in repr(values)
    for each in (account, loaded):
        assert SECRET not in repr(each.__dict__)
        assert SECRET not in str(model_to_dict(each))
        assert SECRET.encode() not in pickle.dumps(each)
        assert "password" not in json.loads(serializers.serialize("json", [each]))[0]["fields"]
    with pytest.raises(TypeError):
        json.dumps(values, cls=DjangoJSONEncoder)


@pytest.mark.parametrize("lookup", ["password", "password__contains", "password__in"])
def test_it_cannot_be_searched(account: Account, lookup: str) -> None:
    with pytest.raises(FieldError):
        Account.objects.filter(**{lookup: SECRET}).exists()


def test_saving_again_does_not_seal_again(account: Account) -> None:
    before = stored(account)
    loaded = Account.objects.get(pk=account.pk)
    loaded.login = "other"
    loaded.save()
    assert stored(account) == before


def test_update_seals_and_empty_stays_empty(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(password="new one")
    assert "new one" not in stored(account)
    account.refresh_from_db()
    assert account.password == "new one"

    account.password = ""
    account.save()
    assert stored(account) == ""
    assert Account.objects.get(pk=account.pk).password == ""


def test_deferred_loading_opens_it_too(account: Account) -> None:
    assert Account.objects.defer("password").get(pk=account.pk).password == SECRET


def test_an_old_key_opens_what_it_sealed_and_a_lost_key_says_which_setting(
    account: Account,
) -> None:
    from django.conf import settings

    new = generate_key()
    with override_settings(SECRETBOX_KEYS=[new, *settings.SECRETBOX_KEYS]):
        rotated = Account.objects.get(pk=account.pk)
        assert rotated.password == SECRET
        rotated.password = "sealed with the new key"
        rotated.save()
        assert SecretBox([new]).open(stored(account)) == "sealed with the new key"
    with override_settings(SECRETBOX_KEYS=[generate_key()]):
        lost = Account.objects.get(pk=account.pk)
        # A list page still works: only who asks for the secret fails.
        assert lost.login == "ops"
        with pytest.raises(WrongKey, match="SECRETBOX_KEYS"):
            _ = lost.password


def test_the_form_never_shows_it_and_keeps_it_when_nothing_is_typed(account: Account) -> None:
    form = AccountForm(instance=account)
    page = form.as_p()
    assert SECRET not in page
    assert stored(account) not in page
    assert 'type="password"' in page
    assert "password-clear" in page

    kept = AccountForm({"login": "renamed", "password": ""}, instance=account)
    assert kept.is_valid(), kept.errors
    assert kept.changed_data == ["login"]
    assert kept.save().password == SECRET


def test_the_form_replaces_and_removes_it(account: Account) -> None:
    typed = AccountForm({"login": "ops", "password": "  spaces count "}, instance=account)
    assert typed.is_valid(), typed.errors
    assert "spaces" not in typed.as_p()
    assert typed.save().password == "  spaces count "

    cleared = AccountForm({"login": "ops", "password-clear": "on"}, instance=account)
    assert cleared.is_valid(), cleared.errors
    assert cleared.changed_data == ["password"]
    assert cleared.save().password == ""
    assert stored(account) == ""


def test_a_theme_lends_its_looks_and_not_its_widget() -> None:
    field = Account._meta.get_field("password")
    themed = field.formfield(widget=forms.Textarea(attrs={"class": "themed", "rows": 3}))
    html = themed.widget.render("password", None)
    assert 'class="themed"' in html
    assert 'type="password"' in html
    assert "textarea" not in html


def test_the_migration_needs_only_this_module() -> None:
    _name, path, arguments, keywords = Account._meta.get_field("password").deconstruct()
    assert path == "apps.runtime.fields.SecretTextField"
    assert (arguments, keywords) == ([], {"blank": True, "default": "", "verbose_name": "password"})


def test_rest_takes_it_and_never_gives_it_back() -> None:
    class AccountSerializer(serializers_rest.Serializer):
        login = serializers_rest.CharField()
        password = SecretCharField()

    taken = AccountSerializer(data={"login": "ops", "password": " s3cret "})
    assert taken.is_valid(), taken.errors
    assert taken.validated_data["password"] == " s3cret "
    assert AccountSerializer(Account(login="ops", password="s3cret")).data == {"login": "ops"}
